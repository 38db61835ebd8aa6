package devinfo

import (
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// printPort prints a port. If verbose, it prints all attributes and the GIDs.
func (p printer) printPort(i *portInfo, verbose bool, t transport) {
	a := i.attr
	fmt.Fprintf(p.w, "\t\tport:\t%d\n", i.number)
	p.port("state", "%s (%d)", name(portStates, a.State, "invalid state"), a.State)
	p.port("max_mtu", "%s (%d)", mtu(a.MaxMTU), a.MaxMTU)
	p.port("active_mtu", "%s (%d)", mtu(a.ActiveMTU), a.ActiveMTU)
	p.port("sm_lid", "%d", a.SMLID)
	p.port("port_lid", "%d", a.LID)
	p.port("port_lmc", "0x%02x", a.LMC)
	p.port("link_layer", "%v", a.LinkLayer)
	if !verbose {
		return
	}
	p.port("max_msg_sz", "0x%x", a.MaxMsgSize)
	p.port("port_cap_flags", "0x%08x", a.CapFlags)
	p.port("port_cap_flags2", "0x%04x", a.CapFlags2)
	p.port("max_vl_num", "%s (%d)", name(virtualLanes, a.MaxVLNum, "invalid value"), a.MaxVLNum)
	p.port("bad_pkey_cntr", "0x%x", a.BadPKeyCntr)
	p.port("qkey_viol_cntr", "0x%x", a.QKeyViolCntr)
	p.port("sm_sl", "%d", a.SMSL)
	p.port("pkey_tbl_len", "%d", a.PKeyTableLen)
	p.port("gid_tbl_len", "%d", a.GIDTableLen)
	p.port("subnet_timeout", "%d", a.SubnetTimeout)
	p.port("init_type_reply", "%d", a.InitTypeReply)
	p.port("active_width", "%sX (%d)", name(widths, a.ActiveWidth, "invalid width"), a.ActiveWidth)
	p.port("active_speed", "%s (%d)", name(speeds, a.ActiveSpeed, "invalid speed"), a.ActiveSpeed)
	if t == transportIB {
		p.port("phys_state", "%s (%d)", name(physStates, a.PhysState, "invalid physical state"), a.PhysState)
	}
	for _, g := range i.gids {
		p.gid(&g, a.LinkLayer)
	}
}

// gid prints an entry of the GID table, unless the interface ID is zero.
func (p printer) gid(g *uverbs.GIDEntry, link uverbs.LinkLayer) {
	if [8]byte(g.GID[8:]) == [8]byte{} {
		return
	}
	text, kind := g.GID.String(), "RoCE v2"
	if g.Type != uverbs.GIDTypeRoCEv2 {
		text, kind = "", "RoCE v1"
		for i := 0; i < len(g.GID); i += 2 {
			text += fmt.Sprintf("%02x%02x:", g.GID[i], g.GID[i+1])
		}
		text = text[:len(text)-1]
	}
	if link == uverbs.LinkEthernet {
		text += ", " + kind
	}
	p.port(fmt.Sprintf("GID[%3d]", g.Index), "%s", text)
}

func mtu(m uverbs.MTU) string {
	if n := m.Bytes(); n > 0 {
		return fmt.Sprint(n)
	}
	return "invalid MTU"
}
