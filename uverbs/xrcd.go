package uverbs

import (
	"errors"
	"os"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// An XRCD is a domain of extended reliable connections (XRC, IBA vol. 1 annex
// A14). A process has one target QP for each peer process, and any number of
// XRC SRQs: the peer's initiator says in every request which SRQ a message is
// for, so that n processes on m nodes do not need a QP for each pair.
//
//	node that receives                          node that sends
//	d.CreateQP(QPConfig{Type: XRCRecv})   <-->  pd.CreateQP(QPConfig{Type: XRCSend, SendCQ: cq})
//	pd.CreateSRQ(SRQConfig{XRCD: d, CQ: cq})    SendWR{RemoteSRQN: the SRQ's SRQN}
//
// Its methods may be called from any number of goroutines.
type XRCD struct {
	object
}

// OpenXRCD opens a domain: ibv_open_xrcd(3). Processes that open it with the
// same file share it, and with it the target QPs and SRQs that are made in it.
// With a nil file it is the caller's own. The file is only a name: what is in it
// does not matter, and it may be closed afterwards.
//
// flags may have os.O_CREATE, which makes the domain if there is none for the
// file, and os.O_EXCL, which refuses one that exists. Both are about the domain,
// not about the file. [ErrNotSupported] where the device has no XRC; EAGAIN when
// there is no domain for the file and flags has no O_CREATE; [ErrInvalid] when
// there is one, and flags has O_EXCL; [ErrClosed] after
// Close of the Context, or of the file.
func (c *Context) OpenXRCD(file *os.File, flags int) (*XRCD, error) {
	x := &XRCD{object{ctx: c, kind: "XRCD", rank: rankXRCD}}
	x.destroy = func() error {
		return x.destroyHandle(uapi.UVERBS_OBJECT_XRCD, uapi.UVERBS_METHOD_XRCD_DESTROY, uapi.UVERBS_ATTR_DESTROY_XRCD_HANDLE, noReply, 0)
	}
	if flags&^(os.O_CREATE|os.O_EXCL) != 0 {
		return nil, invalid("open XRCD", c.name, "flags may have os.O_CREATE and os.O_EXCL")
	}
	if err := x.make(func() error { return x.open(file, flags) }); err != nil {
		return nil, err
	}
	return x, nil
}

func (x *XRCD) open(file *os.File, flags int) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	const none = -1
	err := withFD(file, none, func(fd int) error {
		resp := ioctl.Write[uapi.IbUverbsOpenXrcdResp](cmd, uapi.IB_USER_VERBS_CMD_OPEN_XRCD,
			&uapi.IbUverbsOpenXrcd{Fd: uint32(fd), Oflags: uint32(flags)})
		if err := x.ctx.dev.Do(cmd); err != nil {
			return err
		}
		x.handle, x.number = resp.XrcdHandle, resp.XrcdHandle
		return nil
	})
	detail := ""
	switch {
	case notSupported(err):
		detail = "the device has no extended reliable connections: QueryDevice tells by DeviceXRC"
	case errors.Is(err, unix.EAGAIN):
		detail = "there is no domain for the file: give os.O_CREATE to make it"
	case errors.Is(err, unix.EINVAL) && flags&os.O_EXCL != 0:
		detail = "there is a domain for the file already: leave os.O_EXCL out to share it"
	}
	return x.ctx.wrap("open XRCD", x.ctx.name, err, detail)
}

// withFD runs f with the descriptor of file, which stays open meanwhile, or with
// none when there is no file.
func withFD(file *os.File, none int, f func(fd int) error) error {
	if file == nil {
		return f(none)
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	ran := false
	if cerr := raw.Control(func(fd uintptr) { ran, err = true, f(int(fd)) }); cerr != nil && !ran {
		return &Error{Op: "open XRCD", Kind: ErrClosed, Detail: "the file has been closed"}
	}
	return err
}

// Context returns the context that x was opened from.
func (x *XRCD) Context() *Context { return x.ctx }

// CreateQP makes the receiving end of an extended reliable connection, of type
// [XRCRecv], in state RESET. It has no queues and no CQs: its messages go to the
// SRQs of the domain that the peer names, and their completions to the CQs of
// those. Of cfg, Access and GID count, and Type may be left 0. [QP.Connect] takes
// it to a peer's [XRCSend] QP. [ErrInvalid] for a configuration that asks for
// more, [ErrNotSupported] where the device has none, [ErrClosed] after Close of
// the domain.
func (x *XRCD) CreateQP(cfg QPConfig) (*QP, error) {
	const op = "create QP"
	if cfg.Type != 0 && cfg.Type != XRCRecv {
		return nil, invalid(op, x.String(), "a QP of a domain is of type XRCRecv, not "+cfg.Type.String()+": make others by a PD")
	}
	if cfg.SendCQ != nil || cfg.RecvCQ != nil || cfg.SRQ != nil || cfg.MaxSendWR|cfg.MaxRecvWR|cfg.MaxSendSGE|cfg.MaxRecvSGE|cfg.MaxInline != 0 {
		return nil, invalid(op, x.String(), "an XRCRecv QP has no queues: leave CQs, SRQ and the Max fields out")
	}
	if err := checkGID(op, &x.object, cfg.GID); err != nil {
		return nil, err
	}
	cfg.Type = XRCRecv
	return newQP(x.ctx, cfg, []*object{&x.object}, func(q *QP) error {
		q.xrcd = x
		return q.create()
	})
}

// OpenQP opens an XRCRecv QP that another process, or another context of this
// one, has made in the domain: ibv_open_qp(3). It lives until all who have made
// or opened it have closed it. Each may change its state. [QP.State] is what it
// was in when it was opened, or what Modify of this QP has made of it; Query asks.
// [ErrInvalid] when there is no such QP in the domain, [ErrClosed] after Close of
// the domain.
func (x *XRCD) OpenQP(qpn uint32) (*QP, error) {
	return newQP(x.ctx, QPConfig{Type: XRCRecv}, []*object{&x.object}, func(q *QP) error {
		q.xrcd = x
		return q.open(qpn)
	})
}

func (q *QP) open(qpn uint32) error {
	const op = "open QP"
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.Write[uapi.IbUverbsCreateQpResp](cmd, uapi.IB_USER_VERBS_CMD_OPEN_QP,
		&uapi.IbUverbsOpenQp{UserHandle: q.id, PdHandle: q.xrcd.handle, Qpn: qpn, QpType: uint8(XRCRecv)})
	if err := q.ctx.dev.Do(cmd); err != nil {
		detail := ""
		if errors.Is(err, unix.EINVAL) {
			detail = "the domain has no XRCRecv QP of number " + itoa(uint64(qpn))
		}
		return q.ctx.wrap(op, q.xrcd.String(), err, detail)
	}
	q.handle, q.number = resp.QpHandle, resp.Qpn
	q.impl = noQueues{}
	a, err := q.query(MaskState)
	if err != nil {
		q.exists = true
		q.unmake(q.destroyKernel)
		return err
	}
	return q.enter(a.State)
}

// Close closes the domain: ibv_close_xrcd(3). It answers [ErrBusy] while QPs or
// SRQs of this context use it. Those of other processes keep theirs. It is
// idempotent.
func (x *XRCD) Close() error { return x.close() }

// noQueues are those of an XRCRecv QP. The gates of the
// QP let no request through.
type noQueues struct{}

func (noQueues) PostSend([]SendWR) (int, error)                           { return 0, ErrNoQueue }
func (noQueues) PostRecv([]RecvWR) (int, error)                           { return 0, ErrNoQueue }
func (noQueues) Begin()                                                   {}
func (noQueues) Op(_ Opcode, _ SendFlags, _, _ uint64, _, _ uint32)       {}
func (noQueues) Atomic(uint64, uint64)                                    {}
func (noQueues) Bind(ProviderBind, error)                                 {}
func (noQueues) Flush(uint32, Placement, Selectivity)                     {}
func (noQueues) SGE(SGE)                                                  {}
func (noQueues) Inline([]byte)                                            {}
func (noQueues) SendSGE(SendFlags, uint64, SGE)                           {}
func (noQueues) WriteSGE(_ SendFlags, _, _ uint64, _ uint32, _ SGE)       {}
func (noQueues) ReadSGE(_ SendFlags, _, _ uint64, _ uint32, _ SGE)        {}
func (noQueues) SendInline(SendFlags, uint64, []byte)                     {}
func (noQueues) WriteInline(_ SendFlags, _, _ uint64, _ uint32, _ []byte) {}
func (noQueues) UDAddr(*AH, uint32, uint32)                               {}
func (noQueues) RemoteSRQ(uint32)                                         {}
func (noQueues) Submit() error                                            { return ErrNoQueue }
func (noQueues) Abort()                                                   {}
func (noQueues) SendsOutstanding() int                                    { return 0 }
func (noQueues) RecvsOutstanding() int                                    { return 0 }
func (noQueues) Reset() error                                             { return nil }
func (noQueues) Retire() error                                            { return nil }
