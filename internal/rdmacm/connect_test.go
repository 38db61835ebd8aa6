package rdmacm_test

import (
	"net/netip"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

func testConnection(m machine) {
	p := m.pair(uapi.RDMA_PS_TCP)
	m.refused("too much private data",
		p.client.Connect(&uapi.RdmaUcmConnect{ConnParam: connParam(1, string(numbered(57))), Id: p.active}), unix.EINVAL)
	e := p.request()
	c := rdmacm.ConnParam(&e)
	if e.Id == p.listener || c.QpNum != p.activeQPN || c.ResponderResources != 5 || c.InitiatorDepth != 3 ||
		c.PrivateDataLen != 56 ||
		string(c.PrivateData[:6]) != "hello\x00" || c.RetryCount != 7 || c.RnrRetryCount != 6 || c.Valid != 0 ||
		e.Ece != (uapi.RdmaUcmEce{VendorId: 5, AttrMod: 6}) {
		m.Errorf("request %+v of %+v", c, e)
	}
	_, err := p.server.InitQPAttr(p.listener, qpsInit)
	m.refused("a listener's QP", err, unix.EINVAL)
	must(m, p.accept(e.Id))
	r := m.next(p.client, rdmacm.EventConnectResponse, activeUID)
	if c := rdmacm.ConnParam(&r); c.QpNum != p.passiveQPN || c.ResponderResources != 5 || c.InitiatorDepth != 3 ||
		c.PrivateDataLen != 196 ||
		string(c.PrivateData[:8]) != "welcome\x00" || c.RnrRetryCount != 6 ||
		r.Ece != (uapi.RdmaUcmEce{VendorId: 7, AttrMod: 8}) {
		m.Errorf("response %+v of %+v", c, r)
	}
	m.none(p.server) // until the active side has confirmed
	must(m, p.client.Accept(&uapi.RdmaUcmAccept{Id: p.active}))
	m.next(p.server, rdmacm.EventEstablished, passiveUID)
	p.attributes(e.Id)
	must(m, p.client.Disconnect(p.active))
	m.next(p.server, rdmacm.EventDisconnected, passiveUID)
	must(m, p.server.Disconnect(e.Id))
	m.next(p.client, rdmacm.EventDisconnected, activeUID)
	if n := m.destroy(p.server, e.Id); n < 2 { // and TIMEWAIT_EXIT, which may have arrived
		m.Errorf("%d events of the passive id, want 2", n)
	}
}

// attributes compares the attributes of the two QPs.
func (p *pair) attributes(passive uint32) {
	p.Helper()
	get := func(f *rdmacm.File, id, state uint32) *uapi.IbUverbsQpAttr {
		attr, err := f.InitQPAttr(id, state)
		must(p, err)
		return attr
	}
	type both [2]*uapi.IbUverbsQpAttr
	init := both{get(p.client, p.active, qpsInit), get(p.server, passive, qpsInit)}
	rtr := both{get(p.client, p.active, qpsRTR), get(p.server, passive, qpsRTR)}
	rts := both{get(p.client, p.active, qpsRTS), get(p.server, passive, qpsRTS)}
	for i, name := range []string{"active", "passive"} {
		p.Logf("%s: masks %#x %#x %#x, access %#x, path MTU %d, SGID index %d, timeout %d", name, init[i].QpAttrMask,
			rtr[i].QpAttrMask, rts[i].QpAttrMask, init[i].QpAccessFlags,
			rtr[i].PathMtu, rtr[i].AhAttr.Grh.SgidIndex, rts[i].Timeout)
		if init[i].QpAttrMask != 0x39 || init[i].QpAccessFlags&0xff != 1<<1|1<<2|1<<3 || init[i].PortNum != 1 {
			p.Errorf("%s to INIT: %+v", name, init[i])
		}
		if rtr[i].QpAttrMask != 0x129181 || rtr[i].RqPsn != rts[1-i].SqPsn || rtr[i].AhAttr.IsGlobal != 1 ||
			rtr[i].PathMtu == 0 {
			p.Errorf("%s to RTR: %+v", name, rtr[i])
		}
		if rts[i].QpAttrMask != 0x12e01 || rts[i].RetryCnt != 7 || rts[i].RnrRetry != 6 || rts[i].Timeout == 0 {
			p.Errorf("%s to RTS: %+v", name, rts[i])
		}
		if gid := netip.AddrFrom16(rtr[i].AhAttr.Grh.Dgid).Unmap(); gid.String() != p.addr {
			p.Errorf("%s: peer %v", name, gid)
		}
	}
	if rtr[0].DestQpNum != p.passiveQPN || rtr[1].DestQpNum != p.activeQPN {
		p.Errorf("peers %#x and %#x", rtr[0].DestQpNum, rtr[1].DestQpNum)
	}
	// The passive side has accepted 3 and 5.
	if rtr[0].MaxDestRdAtomic != 5 || rts[0].MaxRdAtomic != 3 || rtr[1].MaxDestRdAtomic != 3 || rts[1].MaxRdAtomic != 5 {
		p.Errorf("depths %d %d, %d %d", rtr[0].MaxDestRdAtomic, rts[0].MaxRdAtomic, rtr[1].MaxDestRdAtomic,
			rts[1].MaxRdAtomic)
	}
}

func testReject(m machine) {
	for reason, want := range map[uint8]int32{0: 28, 28: 28, 35: 35} {
		p := m.pair(uapi.RDMA_PS_TCP)
		child := p.request().Id
		m.refused("too much private data", p.server.Reject(child, reason, numbered(149)), unix.EINVAL)
		must(m, p.server.Reject(child, reason, []byte("no")))
		e := m.next(p.client, rdmacm.EventRejected, activeUID)
		if c := rdmacm.ConnParam(&e); int32(e.Status) != want || c.PrivateDataLen != 148 ||
			string(c.PrivateData[:3]) != "no\x00" {
			m.Errorf("reason %d, want %d; %+v", int32(e.Status), want, c)
		}
		m.refused("accept after reject", p.accept(child), unix.EINVAL)
		m.none(p.server)
	}
}

// testEndings destroys an id in each state of a connection.
func testEndings(m machine) {
	p := m.pair(uapi.RDMA_PS_TCP)
	m.destroy(p.server, p.request().Id)
	if e := m.next(p.client, rdmacm.EventRejected, activeUID); e.Status != 28 {
		m.Errorf("destroying a request: reason %d", e.Status)
	}

	p = m.pair(uapi.RDMA_PS_TCP)
	child := p.request().Id
	must(m, p.accept(child))
	m.next(p.client, rdmacm.EventConnectResponse, activeUID)
	m.destroy(p.client, p.active)
	if e := m.next(p.server, rdmacm.EventRejected, passiveUID); e.Status != 28 {
		m.Errorf("destroying an answered id: reason %d", e.Status)
	}

	p = m.pair(uapi.RDMA_PS_TCP)
	child = p.establish()
	m.destroy(p.server, child)
	m.next(p.client, rdmacm.EventDisconnected, activeUID)

	p = m.pair(uapi.RDMA_PS_TCP)
	p.establish()
	m.destroy(p.client, p.active)
	m.next(p.server, rdmacm.EventDisconnected, passiveUID)
}

func testNobodyListens(m machine) {
	p := m.pair(uapi.RDMA_PS_TCP)
	m.destroy(p.server, p.listener)
	must(m, p.client.Connect(&uapi.RdmaUcmConnect{ConnParam: connParam(1, ""), Id: p.active}))
	e := m.next(p.client, rdmacm.EventRejected, activeUID)
	if c := rdmacm.ConnParam(&e); e.Status != 8 || c.PrivateDataLen != 148 {
		m.Errorf("reason %d, %+v", e.Status, c)
	}
}

// testDroppedEvents: the kernel keeps no events for a child without uid.
func testDroppedEvents(m machine) {
	p := m.pair(uapi.RDMA_PS_TCP)
	child := p.request().Id
	m.destroy(p.client, p.active)
	m.none(p.server)
	if _, err := p.server.InitQPAttr(child, qpsInit); err == nil && m.real {
		m.Log("the rejection is still on its way")
		return
	}
	m.refused("accept after the peer has gone", p.accept(child), unix.EINVAL)
}

func testDatagram(m machine) {
	p := m.pair(uapi.RDMA_PS_UDP)
	e := p.request()
	if ud := rdmacm.UDParam(&e); ud.PrivateDataLen != 180 || string(ud.PrivateData[:6]) != "hello\x00" || ud.QpNum != 0 {
		m.Errorf("request %+v", ud)
	}
	must(m, p.accept(e.Id))
	r := m.next(p.client, rdmacm.EventEstablished, activeUID)
	ud := rdmacm.UDParam(&r)
	if gid := netip.AddrFrom16(ud.AhAttr.Grh.Dgid).Unmap(); ud.QpNum != p.passiveQPN || ud.Qkey != 0x01234567 ||
		gid.String() != m.addr || ud.PrivateDataLen != 136 ||
		string(ud.PrivateData[:8]) != "welcome\x00" || ud.AhAttr.IsGlobal != 1 || ud.AhAttr.PortNum != 1 {
		m.Errorf("response %+v", ud)
	}
	m.none(p.server)
	attr, err := p.client.InitQPAttr(p.active, qpsInit)
	if must(m, err); attr.Qkey != 0x01234567 || attr.QpAttrMask != 1<<0|1<<4|1<<5|1<<6 {
		m.Errorf("attributes %+v", attr)
	}
}

func testDatagramRejected(m machine) {
	p := m.pair(uapi.RDMA_PS_UDP)
	must(m, p.server.Reject(p.request().Id, 0, nil))
	if e := m.next(p.client, rdmacm.EventUnreachable, activeUID); e.Status != 2 {
		m.Errorf("status %d", int32(e.Status))
	}
	p = m.pair(uapi.RDMA_PS_UDP)
	m.destroy(p.server, p.request().Id)
	if e := m.next(p.client, rdmacm.EventUnreachable, activeUID); e.Status != 2 {
		m.Errorf("destroying a request: status %d", int32(e.Status))
	}
	p = m.pair(uapi.RDMA_PS_UDP)
	m.destroy(p.server, p.listener)
	must(m, p.client.Connect(&uapi.RdmaUcmConnect{ConnParam: connParam(1, ""), Id: p.active}))
	if e := m.next(p.client, rdmacm.EventUnreachable, activeUID); e.Status != 1 {
		m.Errorf("nobody listens: status %d", int32(e.Status))
	}
}
