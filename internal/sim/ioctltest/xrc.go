package ioctltest

import (
	"math"

	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// openXRCD is ib_uverbs_open_xrcd. Files are identified by their inode.
func (k *Kernel) openXRCD(m *Msg) error {
	r := request[uapi.IbUverbsOpenXrcd](m)
	if !k.XRC {
		return unix.EOPNOTSUPP
	}
	o := &object{kind: "XRCD"}
	if r.Fd != math.MaxUint32 {
		var st unix.Stat_t
		if unix.Fstat(int(r.Fd), &st) != nil {
			return refuse(unix.EBADF, "%d is no descriptor", r.Fd)
		}
		o.file = st.Ino
		known := k.domain(o.file) != nil
		if !known && r.Oflags&unix.O_CREAT == 0 {
			return unix.EAGAIN
		}
		if known && r.Oflags&unix.O_EXCL != 0 {
			return unix.EINVAL
		}
	}
	reply(m, uapi.IbUverbsOpenXrcdResp{XrcdHandle: k.make(o)})
	return nil
}

// domain returns an XRCD that was opened with the file, or nil.
func (k *Kernel) domain(file uint64) *object {
	for _, o := range k.objects {
		if o.kind == "XRCD" && o.file == file {
			return o
		}
	}
	return nil
}

// shared reports whether two opened XRCDs are the same domain.
func shared(a, b *object) bool { return a == b || a.file != 0 && a.file == b.file }

// xrcParents returns the objects that an XRC SRQ refers to besides a PD, and its number. Both are
// zero for another SRQ.
func (k *Kernel) xrcParents(m *Msg) ([]*object, uint32, error) {
	x, xrc := m.Ref(uapi.UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE)
	c, cq := m.Ref(uapi.UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE)
	switch m.Uint(uapi.UVERBS_ATTR_CREATE_SRQ_TYPE) {
	case uapi.IB_UVERBS_SRQT_BASIC:
		return nil, 0, nil
	case uapi.IB_UVERBS_SRQT_XRC:
		if !xrc || !cq {
			return nil, 0, refuse(unix.EINVAL, "an XRC SRQ without XRCD or CQ")
		}
	default:
		return nil, 0, unix.EOPNOTSUPP
	}
	domain, err := k.get("XRCD", x)
	if err != nil {
		return nil, 0, err
	}
	queue, err := k.get("CQ", c)
	if err != nil {
		return nil, 0, err
	}
	k.nextSRQN++
	return []*object{domain, queue}, k.nextSRQN, nil
}

// openQP is ib_uverbs_open_qp. pd_handle is the handle of the XRCD.
func (k *Kernel) openQP(m *Msg) error {
	r := request[uapi.IbUverbsOpenQp](m)
	domain, err := k.get("XRCD", r.PdHandle)
	if err != nil {
		return err
	}
	for _, o := range k.objects {
		if o.kind != "QP" || o.qpn != r.Qpn || o.qpType != uapi.IB_UVERBS_QPT_XRC_TGT || r.QpType != o.qpType ||
			!shared(o.parents[0], domain) {
			continue
		}
		again := &object{kind: "QP", user: r.UserHandle, groups: map[group]bool{}, qpn: o.qpn, qpType: o.qpType,
			parents: []*object{domain}, state: o.state}
		reply(m, uapi.IbUverbsCreateQpResp{QpHandle: k.make(again), Qpn: o.qpn})
		return nil
	}
	return unix.EINVAL
}
