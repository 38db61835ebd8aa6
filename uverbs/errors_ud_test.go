package uverbs

import (
	"testing"

	"golang.org/x/sys/unix"
)

// The functions of this file return parts of the cases of TestErrorTexts.

func datagramErrors(t *testing.T) []errorCase {
	r := newRig(t)
	b := r.bundle(t, false)
	m := r.meeting(t, b, false)
	qp := good(b.pd.CreateQP(QPConfig{Type: UD, SendCQ: b.cq, QKey: 1 << 31}))(t)
	inv := []error{ErrInvalid, unix.EINVAL}
	ah := func(change func(*AHAttr)) error {
		a := somewhere
		change(&a)
		return second(b.pd.CreateAH(a))
	}
	refused := func(errno unix.Errno, command string, call func() error) error {
		r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{command: errno} })
		defer r.k.Set(func() { r.k.Refuse = nil })
		return call()
	}
	group := GID{0: 0xff, 1: 0x12, 15: 1}
	attach := func() error { return m.qp.AttachMcast(group, 0) }
	same := func(*AHAttr) {}
	return []errorCase{
		{"UD, connected", m.qp.Connect(Endpoint{MTU: MTU1024}), inv},
		{"RC, made ready", b.qp.Ready(), inv},
		{"UD, INIT without QKey", qp.Modify(QPAttr{State: StateInit, Port: 1}, MaskState|MaskPort|MaskPKeyIndex|MaskAccess),
			inv},
		{"UD, privileged QKey", qp.Init(), []error{unix.EPERM}},
		{"AH over no port", ah(func(a *AHAttr) { a.Port = 0 }), inv},
		{"AH without GRH", ah(func(a *AHAttr) { a.IsGlobal = false }), inv},
		{"AH, GID index out of range", ah(func(a *AHAttr) { a.SGIDIndex = 77 }), inv},
		{"AH, no such GID", refused(unix.ENODATA, "CREATE_AH",
			func() error { return ah(func(a *AHAttr) { a.SGIDIndex = 77 }) }), []error{unix.ENODATA}},
		{"AH, no route", refused(unix.ENETUNREACH, "CREATE_AH", func() error { return ah(same) }), []error{unix.ENETUNREACH}},
		{"AH, nobody there", refused(unix.ETIMEDOUT, "CREATE_AH", func() error { return ah(same) }), []error{unix.ETIMEDOUT}},
		{"AH, none left", refused(unix.ENOMEM, "CREATE_AH", func() error { return ah(same) }), []error{unix.ENOMEM}},
		{"reply to a failed receive", second(r.c.AHAttrFromWC(1, &WC{Status: WCLocLenErr}, nil)), inv},
		{"reply, short GRH", second(r.c.AHAttrFromWC(1, &WC{Flags: WCGRH}, make([]byte, 39))), inv},
		{"reply, no GRH", second(r.c.AHAttrFromWC(1, &WC{Flags: WCGRH}, make([]byte, GRHLen))), inv},
		{"reply, another protocol", second(r.c.AHAttrFromWC(1, &WC{Flags: WCGRH}, header6(6, "fe80::9", "fe80::1"))), inv},
		{"reply, not ours", second(r.c.AHAttrFromWC(1, &WC{Flags: WCGRH}, header4(0, "192.0.2.9", "192.0.2.2"))), inv},
		{"group, no multicast", m.qp.AttachMcast(somewhere.DGID, 0), inv},
		{"group, RC", b.qp.AttachMcast(group, 0), inv},
		{"group, not attached", m.qp.DetachMcast(group, 0), inv},
		{"group, refused", refused(unix.EINVAL, "ATTACH_MCAST", attach), inv},
		{"group, none left", refused(unix.ENOMEM, "ATTACH_MCAST", attach), []error{unix.ENOMEM}},
	}
}

func srqErrors(t *testing.T) []errorCase {
	r := newRig(t)
	b := r.bundle(t, false)
	m := r.meeting(t, b, false)
	inv := []error{ErrInvalid, unix.EINVAL}
	srq := func(cfg SRQConfig) error { return second(b.pd.CreateSRQ(cfg)) }
	other := newRig(t)
	cq := good(other.c.CreateCQ(CQConfig{Entries: 1, NoEvents: true}))(t)
	pd := good(other.c.AllocPD())(t)
	cases := []errorCase{
		{"SRQ of no receive", srq(SRQConfig{}), inv},
		{"SRQ, MaxSGE negative", srq(SRQConfig{MaxWR: 1, MaxSGE: -1}), inv},
		{"SRQ, Limit negative", srq(SRQConfig{MaxWR: 1, Limit: -1}), inv},
		{"SRQ, Limit too large", srq(SRQConfig{MaxWR: 1, Limit: 2}), inv},
		{"SRQ too large", srq(SRQConfig{MaxWR: 513}), inv},
		{"SRQ, MaxSGE too large", srq(SRQConfig{MaxWR: 1, MaxSGE: 9}), inv},
		{"QP with an SRQ of another Context", second(pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, SRQ: m.srq})), inv},
		{"SRQ resized to 0", m.srq.Modify(SRQAttr{}, SRQMaskMaxWR), inv},
		{"SRQ resized to too much", m.srq.Modify(SRQAttr{MaxWR: 513}, SRQMaskMaxWR), inv},
		{"SRQ, negative limit", m.srq.Modify(SRQAttr{Limit: -1}, SRQMaskLimit), inv},
		{"SRQ, limit too large", m.srq.Modify(SRQAttr{Limit: 65}, SRQMaskLimit), inv},
		{"SRQ of a QP", m.srq.Close(), []error{ErrBusy}},
	}
	r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"SRQ.CREATE": unix.ENOMEM} })
	return append(cases, errorCase{"no SRQ left", srq(SRQConfig{MaxWR: 1}), []error{unix.ENOMEM}})
}
