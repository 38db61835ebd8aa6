package devinfo

import (
	"fmt"
	"io"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// A printer writes lines in the format of ibv_devinfo: a name, tabs up to a
// column, and a value.
type printer struct {
	w io.Writer
}

const tabWidth = 8

// These are the columns at which the values start, in the lines of devices and of ports.
const (
	deviceColumn = 40
	portColumn   = 48
)

func (p printer) line(indent int, name string, column int, format string, args ...any) {
	at := indent*tabWidth + len(name) + 1
	tabs := max(1, (column-at+tabWidth-1)/tabWidth)
	fmt.Fprintf(p.w, "%s%s:%s%s\n", strings.Repeat("\t", indent), name, strings.Repeat("\t", tabs),
		fmt.Sprintf(format, args...))
}

func (p printer) device(name, format string, args ...any) {
	p.line(1, name, deviceColumn, format, args...)
}

func (p printer) port(name, format string, args ...any) {
	p.line(3, name, portColumn, format, args...)
}

// item prints one line of a list below a field.
func (p printer) item(s string) { fmt.Fprintf(p.w, "\t\t\t\t\t%s\n", s) }

func (p printer) text(s string) { fmt.Fprintf(p.w, "\t%s\n", s) }

// A bit is the name of a flag.
type bit struct {
	mask uint64
	name string
}

// flags prints the names of the set bits, and the value of those without a name.
func (p printer) flags(set uint64, names []bit) {
	for _, b := range names {
		if set&b.mask != 0 {
			p.item(b.name)
			set &^= b.mask
		}
	}
	if set != 0 {
		p.item(fmt.Sprintf("Unknown flags: 0x%X", set))
	}
}

// printDevice prints a device with its ports.
func printDevice(w io.Writer, d *deviceInfo, verbose bool) {
	p := printer{w}
	a := d.attr
	fmt.Fprintf(w, "hca_id:\t%s\n", d.device.Name)
	transport := transportOf(d.device.NodeType)
	p.device("transport", "%s (%d)", transport, transport)
	if a.FWVer != "" {
		p.device("fw_ver", "%s", a.FWVer)
	}
	p.device("node_guid", "%v", a.NodeGUID)
	p.device("sys_image_guid", "%v", a.SysImageGUID)
	p.device("vendor_id", "0x%04x", a.VendorID)
	p.device("vendor_part_id", "%d", a.VendorPartID)
	p.device("hw_ver", "0x%X", a.HWVer)
	if d.boardID != "" {
		p.device("board_id", "%s", d.boardID)
	}
	p.device("phys_port_cnt", "%d", a.PhysPortCnt)
	if verbose {
		p.limits(a, d.ether)
		p.extended(a, d.ether)
		p.device("num_comp_vectors", "%d", d.vectors)
	}
	for i := range d.ports {
		p.printPort(&d.ports[i], verbose, transport)
		fmt.Fprintln(w)
	}
}

// limits prints the attributes that every device reports.
func (p printer) limits(a *uverbs.DeviceAttr, e *ether.DeviceAttr) {
	p.device("max_mr_size", "0x%x", a.MaxMRSize)
	p.device("page_size_cap", "0x%x", a.PageSizeCap)
	p.device("max_qp", "%d", a.MaxQP)
	p.device("max_qp_wr", "%d", a.MaxQPWR)
	p.device("device_cap_flags", "0x%08x", uint32(a.CapFlags))
	p.flags(uint64(uint32(a.CapFlags)), capFlags)
	p.counts([]count{
		{"max_sge", a.MaxSGE}, {"max_sge_rd", a.MaxSGERd}, {"max_cq", a.MaxCQ}, {"max_cqe", a.MaxCQE},
		{"max_mr", a.MaxMR}, {"max_pd", a.MaxPD}, {"max_qp_rd_atom", a.MaxQPRdAtom}, {"max_ee_rd_atom", 0},
		{"max_res_rd_atom", a.MaxResRdAtom}, {"max_qp_init_rd_atom", a.MaxQPInitRdAtom},
		{"max_ee_init_rd_atom", 0},
	})
	p.device("atomic_cap", "%s (%d)", name(atomicCaps, a.AtomicCap, "invalid atomic capability"), a.AtomicCap)
	p.counts([]count{
		{"max_ee", 0}, {"max_rdd", 0}, {"max_mw", a.MaxMW}, {"max_raw_ipv6_qp", 0},
		{"max_raw_ethy_qp", e.MaxRawEthyQP}, {"max_mcast_grp", a.MaxMcastGrp}, {"max_mcast_qp_attach", a.MaxMcastQPAttach},
		{"max_total_mcast_qp_attach", a.MaxTotalMcastQP}, {"max_ah", a.MaxAH}, {"max_fmr", 0},
	})
	p.device("max_srq", "%d", a.MaxSRQ)
	if a.MaxSRQ != 0 {
		p.counts([]count{{"max_srq_wr", a.MaxSRQWR}, {"max_srq_sge", a.MaxSRQSGE}})
	}
	p.counts([]count{{"max_pkeys", a.MaxPKeys}, {"local_ca_ack_delay", int(a.LocalCAAckDelay)}})
}

// A count is a line with a number.
type count struct {
	name  string
	value int
}

func (p printer) counts(all []count) {
	for _, c := range all {
		p.device(c.name, "%d", c.value)
	}
}

// extended prints the additional attributes of struct ibv_device_attr_ex.
func (p printer) extended(a *uverbs.DeviceAttr, e *ether.DeviceAttr) {
	p.text("general_odp_caps:")
	p.flags(uint64(a.ODP.General), odpGeneral)
	p.odp("rc", a.ODP.RC)
	p.odp("uc", a.ODP.UC)
	p.odp("ud", a.ODP.UD)
	p.odp("xrc", a.ODP.XRC)
	if a.TimestampMask != 0 {
		p.line(1, "completion timestamp_mask", 56, "0x%016x", a.TimestampMask)
	} else {
		p.text("completion_timestamp_mask not supported")
	}
	if a.HCACoreClock != 0 {
		p.device("hca_core_clock", "%dkHZ", a.HCACoreClock)
	} else {
		p.text("core clock not supported")
	}
	if e.RawPacketCaps != 0 {
		p.text("raw packet caps:")
		p.known(uint64(e.RawPacketCaps), rawPacketCaps)
	}
	p.device("device_cap_flags_ex", "0x%X", uint64(a.CapFlags))
	p.flags(uint64(a.CapFlags)&^0xffffffff, capFlagsEx)
	p.tso(&e.TSO)
	p.rss(&e.RSS)
	p.device("max_wq_type_rq", "%d", e.MaxWQTypeRQ)
	p.packetPacing(&a.PacketPacing)
	p.tagMatching(&a.TagMatching)
	p.optional(a)
}

// optional prints attributes that have no line if the device lacks them.
func (p printer) optional(a *uverbs.DeviceAttr) {
	if a.MaxModerateCount != 0 && a.MaxModeratePeriod != 0 {
		fmt.Fprintln(p.w)
		p.text("cq moderation caps:")
		p.line(2, "max_cq_count", 32, "%d", a.MaxModerateCount)
		p.line(2, "max_cq_period", 32, "%d us", a.MaxModeratePeriod.Microseconds())
		fmt.Fprintln(p.w)
	}
	if a.MaxDMSize != 0 {
		p.device("maximum available device memory", "%dBytes", a.MaxDMSize)
		fmt.Fprintln(p.w)
	}
}

func (p printer) odp(transport string, caps uverbs.ODPOps) {
	p.text(transport + "_odp_caps:")
	if caps == 0 {
		p.item("NO SUPPORT")
		return
	}
	p.flags(uint64(caps), odpTransport)
}

// known prints the names of the set bits and omits those without a name.
func (p printer) known(set uint64, names []bit) {
	for _, b := range names {
		if set&b.mask != 0 {
			p.item(b.name)
		}
	}
}

func (p printer) tso(c *ether.TSOCaps) {
	p.text("tso_caps:")
	p.line(2, "max_tso", 48, "%d", c.MaxSize)
	if c.MaxSize != 0 {
		p.qpTypes(c.SupportedQPTs)
	}
}

func (p printer) packetPacing(c *uverbs.PacketPacingCaps) {
	p.text("packet_pacing_caps:")
	p.line(2, "qp_rate_limit_min", deviceColumn, "%dkbps", c.MinRate)
	p.line(2, "qp_rate_limit_max", deviceColumn, "%dkbps", c.MaxRate)
	if c.MaxRate != 0 {
		p.qpTypes(c.SupportedQPTs)
	}
}

// qpTypes prints the types of QPs that have a capability.
func (p printer) qpTypes(set uint32) {
	fmt.Fprint(p.w, "\t\tsupported_qp:\n")
	p.flags(uint64(set), offloadQPTypes)
}

func (p printer) rss(r *ether.RSSCaps) {
	const column = 64
	p.text("rss_caps:")
	p.line(2, "max_rwq_indirection_tables", column, "%d", r.MaxRWQIndirectionTables)
	p.line(2, "max_rwq_indirection_table_size", column, "%d", r.MaxRWQIndirectionTableSize)
	p.line(2, "rx_hash_function", column, "0x%x", r.Functions)
	p.line(2, "rx_hash_fields_mask", column, "0x%X", r.Fields)
	if r.SupportedQPTs != 0 {
		p.qpTypes(r.SupportedQPTs)
	}
}

func (p printer) tagMatching(t *uverbs.TMCaps) {
	if t.MaxNumTags == 0 {
		p.text("tag matching not supported")
		return
	}
	p.counts([]count{{"max_rndv_hdr_size", t.MaxRndvHdrSize}, {"max_num_tags", t.MaxNumTags}, {"max_ops", t.MaxOps},
		{"max_sge", t.MaxSGE}})
	p.text("flags:")
	p.known(uint64(t.Flags), tagMatchingFlags)
}
