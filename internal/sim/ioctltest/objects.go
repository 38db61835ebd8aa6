package ioctltest

import (
	"maps"
	"slices"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

type object struct {
	kind    string
	parents []*object
	users   int
	user    uint64 // user handle
	channel int    // of a CQ
	qpn     uint32
	state   *uint8 // of a QP; shared with QPs opened by OPEN_QP
	qpType  uint8
	groups  map[group]bool            // groups that a QP is attached to
	file    uint64                    // the file that an XRCD was opened with; 0: none
	srqn    uint32                    // of an XRC SRQ
	srq     uapi.IbUverbsQuerySrqResp // attributes of an SRQ
	mr      memory
	created string // the place, or empty
}

// make stores an object under the lowest free handle. Like the kernel, it reuses handles at once.
func (k *Kernel) make(o *object) uint32 {
	for _, p := range o.parents {
		p.users++
	}
	for k.objects[k.lowest] != nil {
		k.lowest++
	}
	h := k.lowest
	k.objects[h] = o
	o.created = k.place()
	return h
}

func (k *Kernel) remove(handle uint32) {
	delete(k.objects, handle)
	k.lowest = min(k.lowest, handle)
}

// place returns where the program creates an object, as a suffix, or an empty string.
func (k *Kernel) place() string {
	if k.Caller == nil {
		return ""
	}
	if at := k.Caller(); at != "" {
		return at
	}
	return ""
}

// Forget removes an object that a command has created: the device has refused to create its part.
func (k *Kernel) Forget(handle uint32) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.objects[handle].parents {
		p.users--
	}
	k.remove(handle)
}

// get finds an object that a command names. If it does not exist, the library is at fault: it
// must not name an object that it has destroyed.
func (k *Kernel) get(kind string, h uint32) (*object, error) {
	o := k.objects[h]
	if o == nil || o.kind != kind {
		return nil, refuse(unix.ENOENT, "there is no %s %d", kind, h)
	}
	return o, nil
}

func (k *Kernel) destroy(m *Msg, kind string, id uint16) error {
	h, _ := m.Ref(id)
	o, err := k.get(kind, h)
	if err != nil {
		return err
	}
	if o.users > 0 || len(o.groups) > 0 {
		return unix.EBUSY
	}
	for _, p := range o.parents {
		p.users--
	}
	k.remove(h)
	return nil
}

var handlers = map[string]func(*Kernel, *Msg) error{
	"DEVICE.GET_CONTEXT":      (*Kernel).getContext,
	"DEVICE.QUERY_CONTEXT":    (*Kernel).queryContext,
	"MR.QUERY":                (*Kernel).queryMR,
	"PD.QUERY":                (*Kernel).queryPD,
	"DEVICE.QUERY_PORT":       (*Kernel).queryPort,
	"DEVICE.QUERY_GID_TABLE":  (*Kernel).queryGIDs,
	"DEVICE.QUERY_GID_ENTRY":  (*Kernel).queryGID,
	"DEVICE.QUERY_PORT_SPEED": (*Kernel).queryPortSpeed,
	"MODIFY_CQ_EX":            (*Kernel).modifyCQ,
	"MODIFY_QP_EX":            (*Kernel).modifyQPEx,
	"MR.REG_DMABUF":           (*Kernel).regDMABuf,
	"ASYNC_EVENT.ALLOC":       (*Kernel).allocAsync,
	"QUERY_DEVICE_EX":         (*Kernel).queryDevice,
	"QUERY_DEVICE":            (*Kernel).queryDeviceLegacy,
	"ALLOC_PD":                (*Kernel).allocPD,
	"REG_MR":                  (*Kernel).regMR,
	"REREG_MR":                (*Kernel).reregMR,
	"MR.ADVISE":               (*Kernel).adviseMR,
	"CREATE_COMP_CHANNEL":     (*Kernel).createChannel,
	"CQ.CREATE":               (*Kernel).createCQ,
	"RESIZE_CQ":               (*Kernel).resizeCQ,
	"POLL_CQ":                 (*Kernel).pollCQ,
	"QP.CREATE":               (*Kernel).createQP,
	"MODIFY_QP":               (*Kernel).modifyQP,
	"QUERY_QP":                (*Kernel).queryQP,
	"CREATE_AH":               (*Kernel).createAH,
	"ATTACH_MCAST":            (*Kernel).attachMcast,
	"DETACH_MCAST":            (*Kernel).detachMcast,
	"SRQ.CREATE":              (*Kernel).createSRQ,
	"MODIFY_SRQ":              (*Kernel).modifySRQ,
	"QUERY_SRQ":               (*Kernel).querySRQ,
	"ALLOC_MW":                (*Kernel).allocMW,
	"MW.DESTROY": func(k *Kernel, m *Msg) error {
		return k.destroy(m, "MW", uapi.UVERBS_ATTR_DESTROY_MW_HANDLE)
	},
	"AH.DESTROY": func(k *Kernel, m *Msg) error {
		return k.destroy(m, "AH", uapi.UVERBS_ATTR_DESTROY_AH_HANDLE)
	},
	"SRQ.DESTROY": func(k *Kernel, m *Msg) error {
		return k.destroy(m, "SRQ", uapi.UVERBS_ATTR_DESTROY_SRQ_HANDLE)
	},
	"OPEN_XRCD": (*Kernel).openXRCD,
	"XRCD.DESTROY": func(k *Kernel, m *Msg) error {
		return k.destroy(m, "XRCD", uapi.UVERBS_ATTR_DESTROY_XRCD_HANDLE)
	},
	"OPEN_QP": (*Kernel).openQP,
	"PD.DESTROY": func(k *Kernel, m *Msg) error {
		return k.destroy(m, "PD", uapi.UVERBS_ATTR_DESTROY_PD_HANDLE)
	},
	"MR.DESTROY": func(k *Kernel, m *Msg) error {
		return k.destroy(m, "MR", uapi.UVERBS_ATTR_DESTROY_MR_HANDLE)
	},
	"CQ.DESTROY": func(k *Kernel, m *Msg) error {
		return k.destroy(m, "CQ", uapi.UVERBS_ATTR_DESTROY_CQ_HANDLE)
	},
	"DM.ALLOC":       (*Kernel).allocDM,
	"DM.QUERY":       (*Kernel).queryDM,
	"DM.MAP_OP_ADDR": (*Kernel).mapDMOp,
	"DM.FREE":        func(k *Kernel, m *Msg) error { return k.destroy(m, "DM", uapi.UVERBS_ATTR_FREE_DM_HANDLE) },
	"MR.REG_DM":      (*Kernel).regDM,
	"UAR.ALLOC":      (*Kernel).allocUAR,
	"UAR.DESTROY": func(k *Kernel, m *Msg) error {
		return k.destroy(m, "UAR", uapi.MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE)
	},
	"WQ.CREATE":             (*Kernel).createWQ,
	"MODIFY_WQ_EX":          (*Kernel).modifyWQ,
	"CREATE_RWQ_IND_TBL_EX": (*Kernel).createRWQIndTable,
	"CREATE_FLOW_EX":        (*Kernel).createFlow,
	"WQ.DESTROY": func(k *Kernel, m *Msg) error {
		return k.destroy(m, "WQ", uapi.UVERBS_ATTR_DESTROY_WQ_HANDLE)
	},
	"FLOW.DESTROY": func(k *Kernel, m *Msg) error { return k.destroy(m, "flow", uapi.UVERBS_ATTR_DESTROY_FLOW_HANDLE) },
	"RWQ_IND_TBL.DESTROY": func(k *Kernel, m *Msg) error {
		return k.destroy(m, "table", uapi.UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE)
	},
	"QP.DESTROY": func(k *Kernel, m *Msg) error { return k.destroy(m, "QP", uapi.UVERBS_ATTR_DESTROY_QP_HANDLE) },
}

// Names returns the names of the commands that the kernel handles.
func Names() []string { return slices.Sorted(maps.Keys(handlers)) }

func (k *Kernel) getContext(m *Msg) error {
	if k.context {
		return unix.EINVAL
	}
	k.context = true
	one := uint64(1)
	m.Answer(uapi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, ioctl.BytesOf(&k.Vectors))
	m.Answer(uapi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, ioctl.BytesOf(&one))
	return nil
}

func (k *Kernel) queryPort(m *Msg) error {
	n := m.Uint(uapi.UVERBS_ATTR_QUERY_PORT_PORT_NUM)
	if n < 1 || n > uint64(len(k.Ports)) {
		return unix.EINVAL
	}
	r := uapi.IbUverbsQueryPortRespEx{LegacyResp: k.Ports[n-1]}
	m.Answer(uapi.UVERBS_ATTR_QUERY_PORT_RESP, ioctl.BytesOf(&r))
	return nil
}

func (k *Kernel) queryGIDs(m *Msg) error {
	const entry = 32
	room := m.data[uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES]
	if m.Uint(uapi.UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE) != entry || len(room) < entry*len(k.GIDs) {
		return unix.EINVAL
	}
	var all []byte
	for i := range k.GIDs {
		all = append(all, ioctl.BytesOf(&k.GIDs[i])...)
	}
	n := uint64(len(k.GIDs))
	m.Answer(uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, all)
	m.Answer(uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, ioctl.BytesOf(&n))
	return nil
}

func (k *Kernel) allocAsync(m *Msg) error {
	fd, err := k.eventPair()
	if err != nil {
		return err
	}
	if k.async < 0 {
		k.async = fd
	}
	m.Made(uapi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, fd)
	return nil
}

func (k *Kernel) queryDevice(m *Msg) error {
	r := k.Extended
	r.Base, r.ResponseLength = k.Device, uint32(ioctl.SizeOf[uapi.IbUverbsExQueryDeviceResp]())
	reply(m, r)
	return nil
}

func (k *Kernel) queryDeviceLegacy(m *Msg) error {
	if !k.context {
		return unix.EINVAL
	}
	reply(m, k.Device)
	return nil
}

func (k *Kernel) allocPD(m *Msg) error {
	reply(m, uapi.IbUverbsAllocPdResp{PdHandle: k.make(&object{kind: "PD"})})
	return nil
}

func (k *Kernel) createChannel(m *Msg) error {
	k.forgetClosed()
	fd, err := k.eventPair()
	if err != nil {
		return err
	}
	reply(m, uapi.IbUverbsCreateCompChannelResp{Fd: uint32(fd)})
	return nil
}

// driver writes the driver's part of the reply to a create command.
func (k *Kernel) driver(m *Msg, handle, qpn uint32) {
	if k.OnDriver != nil {
		m.Answer(uapi.UVERBS_ATTR_UHW_OUT, k.OnDriver(m, handle, qpn))
	}
}

func (k *Kernel) createCQ(m *Msg) error {
	o := &object{kind: "CQ", channel: -1, user: m.Uint(uapi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE)}
	if fd, ok := m.Ref(uapi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL); ok {
		o.channel = int(fd)
		if mine, open := k.channels[o.channel]; !open || hungUp(mine) {
			return refuse(unix.EBADF, "%d is no completion channel", fd)
		}
	}
	cqe := uint32(m.Uint(uapi.UVERBS_ATTR_CREATE_CQ_CQE))
	if uint32(m.Uint(uapi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR)) >= k.Vectors || cqe == 0 || cqe > k.Device.MaxCqe {
		return unix.EINVAL
	}
	h := k.make(o)
	m.Made(uapi.UVERBS_ATTR_CREATE_CQ_HANDLE, int(h))
	m.Answer(uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, ioctl.BytesOf(&cqe))
	k.driver(m, h, 0)
	return nil
}

func (k *Kernel) resizeCQ(m *Msg) error {
	r := request[uapi.IbUverbsResizeCq](m)
	if _, err := k.get("CQ", r.CqHandle); err != nil {
		return err
	}
	if r.Cqe > k.Device.MaxCqe {
		return unix.EINVAL
	}
	if k.OnResizeCQ != nil {
		if err := k.OnResizeCQ(); err != nil {
			return err
		}
	}
	reply(m, uapi.IbUverbsResizeCqResp{Cqe: r.Cqe})
	return nil
}

// polledCQ is the reply of POLL_CQ with room for one completion.
type polledCQ struct {
	uapi.IbUverbsPollCqResp
	_ uapi.IbUverbsWc
}

// pollCQ has no completions: those of the programs' CQs are not the kernel's.
func (k *Kernel) pollCQ(m *Msg) error {
	if _, err := k.get("CQ", request[uapi.IbUverbsPollCq](m).CqHandle); err != nil {
		return err
	}
	reply(m, polledCQ{})
	return nil
}

// maxInline is how much inline data a QP may have. The kernel's mlx5 driver leaves it to the provider: a WQE of a
// ConnectX has at most 1024 bytes, of which 20 are for the control segment and the length.
const maxInline = 1024 - 20

func (k *Kernel) createQP(m *Msg) error {
	o := &object{kind: "QP", user: m.Uint(uapi.UVERBS_ATTR_CREATE_QP_USER_HANDLE),
		groups: map[group]bool{}, state: new(uint8)}
	var err error
	if o.qpType, err = k.typeOfQP(m); err != nil {
		return err
	}
	if o.parents, err = k.parentsOfQP(m, o.qpType); err != nil {
		return err
	}
	c := ioctl.SliceOf[uapi.IbUverbsQpCap](slices.Clone(m.data[uapi.UVERBS_ATTR_CREATE_QP_CAP]))[0]
	if c.MaxSendWr > k.Device.MaxQpWr || c.MaxRecvWr > k.Device.MaxQpWr || c.MaxInlineData > maxInline ||
		c.MaxSendSge > k.Device.MaxSge || c.MaxRecvSge > k.Device.MaxSge {
		return unix.EINVAL
	}
	if o.qpType != DCT { // a DCT has its number from RTR on
		o.qpn = k.nextQPN
		k.nextQPN++
	}
	h := k.make(o)
	m.Made(uapi.UVERBS_ATTR_CREATE_QP_HANDLE, int(h))
	m.Answer(uapi.UVERBS_ATTR_CREATE_QP_RESP_CAP, ioctl.BytesOf(&c))
	m.Answer(uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, ioctl.BytesOf(&o.qpn))
	k.driver(m, h, o.qpn)
	return nil
}

// parentsOfQP returns the objects that a QP refers to. It fails if one that the type requires is
// missing, or if there is one that the type does not allow.
func (k *Kernel) parentsOfQP(m *Msg, qpType uint8) (parents []*object, err error) {
	target, initiator := qpType == uapi.IB_UVERBS_QPT_XRC_TGT, qpType == uapi.IB_UVERBS_QPT_XRC_INI
	spread := spreads(m)
	for _, p := range []struct {
		kind         string
		id           uint16
		must, mayNot bool
	}{
		{"PD", uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE, !target, target},
		{"CQ", uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, !target && !spread, target},
		{"CQ", uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, !target && !initiator && !spread, target || spread},
		{"SRQ", uapi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE, qpType == DCT, initiator || spread},
		{"table", uapi.UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE, false, qpType != uapi.IB_UVERBS_QPT_RAW_PACKET},
		{"XRCD", uapi.UVERBS_ATTR_CREATE_QP_XRCD_HANDLE, target, !target},
	} {
		h, there := m.Ref(p.id)
		if there && p.mayNot || !there && p.must {
			return nil, refuse(unix.EINVAL, "a QP of type %d with a %s: %v", qpType, p.kind, there)
		}
		if !there {
			continue
		}
		parent, err := k.get(p.kind, h)
		if err != nil {
			return nil, err
		}
		if p.kind == "SRQ" && parent.srqn != 0 != target {
			return nil, refuse(unix.EINVAL, "an SRQ of another type")
		}
		parents = append(parents, parent)
	}
	return parents, nil
}

func (k *Kernel) queryQP(m *Msg) error {
	r := request[uapi.IbUverbsQueryQp](m)
	o, err := k.get("QP", r.QpHandle)
	if err != nil {
		return err
	}
	if o.qpType == DCT {
		if err := o.queryDCT(r.AttrMask); err != nil {
			return err
		}
	}
	resp := uapi.IbUverbsQueryQpResp{QpState: *o.state, CurQpState: *o.state}
	if k.OnQueryQP != nil {
		k.OnQueryQP(r.QpHandle, &resp)
	}
	reply(m, resp)
	return nil
}
