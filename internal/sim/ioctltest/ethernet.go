package ioctltest

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// This file has the commands for raw packets: WQs, tables of WQs, flows.

// spreads reports whether the command creates a QP with an indirection table instead of queues.
func spreads(m *Msg) bool {
	_, there := m.Ref(uapi.UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE)
	return there
}

func (k *Kernel) checkType(qpType uint8) error {
	if qpType == uapi.IB_UVERBS_QPT_RAW_PACKET && !k.NetRaw {
		return unix.EPERM
	}
	if tables[qpType] == nil || qpType == uapi.IB_UVERBS_QPT_RAW_PACKET && !k.Raw {
		return unix.EOPNOTSUPP
	}
	return nil
}

const wqFlags = uapi.IB_UVERBS_WQ_FLAGS_CVLAN_STRIPPING | uapi.IB_UVERBS_WQ_FLAGS_SCATTER_FCS |
	uapi.IB_UVERBS_WQ_FLAGS_DELAY_DROP |
	uapi.IB_UVERBS_WQ_FLAGS_PCI_WRITE_END_PADDING

func (k *Kernel) createWQ(m *Msg) error {
	o := &object{kind: "WQ", state: new(uint8), user: m.Uint(uapi.UVERBS_ATTR_CREATE_WQ_USER_HANDLE)}
	wr, sge := uint32(m.Uint(uapi.UVERBS_ATTR_CREATE_WQ_MAX_WR)), uint32(m.Uint(uapi.UVERBS_ATTR_CREATE_WQ_MAX_SGE))
	if !k.Raw {
		return unix.EOPNOTSUPP
	}
	for _, p := range []struct {
		kind string
		id   uint16
	}{{"PD", uapi.UVERBS_ATTR_CREATE_WQ_PD_HANDLE}, {"CQ", uapi.UVERBS_ATTR_CREATE_WQ_CQ_HANDLE}} {
		h, _ := m.Ref(p.id)
		parent, err := k.get(p.kind, h)
		if err != nil {
			return err
		}
		o.parents = append(o.parents, parent)
	}
	if m.Uint(uapi.UVERBS_ATTR_CREATE_WQ_TYPE) != uapi.IB_UVERBS_WQT_RQ ||
		m.Uint(uapi.UVERBS_ATTR_CREATE_WQ_FLAGS)&^wqFlags != 0 ||
		wr == 0 || wr > k.Device.MaxQpWr || sge > k.Device.MaxSge {
		return unix.EINVAL
	}
	o.qpn = k.nextQPN
	k.nextQPN++
	h := k.make(o)
	m.Made(uapi.UVERBS_ATTR_CREATE_WQ_HANDLE, int(h))
	m.Answer(uapi.UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR, ioctl.BytesOf(&wr))
	m.Answer(uapi.UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE, ioctl.BytesOf(&sge))
	m.Answer(uapi.UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, ioctl.BytesOf(&o.qpn))
	k.driver(m, h, o.qpn)
	return nil
}

// The states and attribute bits of a WQ (enum ib_wq_state, ib_wq_attr_mask).
const (
	wqReset, wqReady, wqError = 0, 1, 2

	wqState, wqCurState, wqFlagsMask = 1 << 0, 1 << 1, 1 << 2
)

func (k *Kernel) modifyWQ(m *Msg) error {
	r := request[uapi.IbUverbsExModifyWq](m)
	if r.AttrMask == 0 || r.AttrMask > wqState|wqCurState|wqFlagsMask {
		return unix.EINVAL
	}
	o, err := k.get("WQ", r.WqHandle)
	if err != nil {
		return err
	}
	from, to := uint32(*o.state), uint32(*o.state)
	if r.AttrMask&wqCurState != 0 {
		from = r.CurrWqState
	}
	if r.AttrMask&wqState != 0 {
		to = r.WqState
	}
	if from != uint32(*o.state) || to > wqError || from == wqError && to == wqReady {
		return unix.EINVAL
	}
	*o.state = uint8(to)
	return nil
}

func (k *Kernel) createRWQIndTable(m *Msg) error {
	const head, largest = 8, 13
	r := request[uapi.IbUverbsExCreateRwqIndTable](m)
	handles := m.data[uapi.UVERBS_ATTR_CORE_IN][head:]
	if r.LogIndTblSize > largest {
		return unix.EINVAL
	}
	if len(handles) != 4<<r.LogIndTblSize {
		return refuse(unix.EINVAL, "a table of 2^%d WQs in %d bytes", r.LogIndTblSize, len(handles))
	}
	o := &object{kind: "table"}
	for ; len(handles) > 0; handles = handles[4:] {
		wq, err := k.get("WQ", binary.LittleEndian.Uint32(handles))
		if err != nil {
			return err
		}
		o.parents = append(o.parents, wq)
	}
	if max := k.Extended.RssCaps.MaxRwqIndirectionTableSize; max > 0 && 1<<r.LogIndTblSize > max {
		return unix.EINVAL
	}
	h := k.make(o)
	reply(m, uapi.IbUverbsExCreateRwqIndTableResp{ResponseLength: 16, IndTblHandle: h, IndTblNum: h + 1})
	return nil
}

func (k *Kernel) createFlow(m *Msg) error {
	const head, most = 24, 10
	r := request[uapi.IbUverbsCreateFlow](m)
	a := &r.FlowAttr
	specs := m.data[uapi.UVERBS_ATTR_CORE_IN][head:]
	if !k.NetRaw {
		return unix.EPERM
	}
	if r.CompMask != 0 || a.NumOfSpecs > most || int(a.Size) != len(specs) || a.Reserved != [2]byte{} {
		return refuse(unix.EINVAL, "%d specifications of %d bytes in %d bytes", a.NumOfSpecs, a.Size, len(specs))
	}
	for range a.NumOfSpecs {
		if len(specs) < 8 || int(binary.LittleEndian.Uint16(specs[4:])) > len(specs) ||
			binary.LittleEndian.Uint16(specs[4:]) < 8 {
			return refuse(unix.EINVAL, "specifications end with % x", specs)
		}
		specs = specs[binary.LittleEndian.Uint16(specs[4:]):]
	}
	if len(specs) > 0 {
		return refuse(unix.EINVAL, "behind the specifications is % x", specs)
	}
	if a.Port < 1 || int(a.Port) > len(k.Ports) {
		return unix.EINVAL
	}
	qp, err := k.get("QP", r.QpHandle)
	if err != nil {
		return err
	}
	if qp.qpType != uapi.IB_UVERBS_QPT_UD && qp.qpType != uapi.IB_UVERBS_QPT_RAW_PACKET {
		return unix.EINVAL
	}
	if !k.Raw {
		return unix.EOPNOTSUPP
	}
	reply(m, uapi.IbUverbsCreateFlowResp{FlowHandle: k.make(&object{kind: "flow", parents: []*object{qp}})})
	return nil
}
