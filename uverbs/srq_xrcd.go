package uverbs

import (
	"errors"
	"os"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// An XRCD is a domain of extended reliable connections (XRC, IBA vol. 1 annex A14).
// A process has one target QP for each peer process, and any number of XRC SRQs.
// Each request of the peer's initiator QP specifies the SRQ for its message. So n
// processes on m nodes do not need a QP for each pair of processes.
//
//	node that receives                          node that sends
//	d.CreateQP(QPConfig{Type: XRCRecv})   <-->  pd.CreateQP(QPConfig{Type: XRCSend, SendCQ: cq})
//	pd.CreateSRQ(SRQConfig{XRCD: d, CQ: cq})    SendWR{RemoteSRQN: the SRQ's SRQN}
//
// Its methods may be called from any number of goroutines.
type XRCD struct {
	object
}

// XRCDFlags say how [Context.OpenXRCD] opens a domain. The values are those of O_CREAT and O_EXCL.
type XRCDFlags uint32

// The flags of ibv_open_xrcd(3). They refer to the domain, not to the file.
const (
	XRCDCreate    XRCDFlags = 0x40 // create the domain if the file has none
	XRCDExclusive XRCDFlags = 0x80 // refuse an existing domain
)

// OpenXRCD opens a domain: ibv_open_xrcd(3). Processes that open a domain with the
// same file share the domain, its target QPs and its SRQs. If file is nil, the
// domain is private. The file only identifies the domain: its contents do not
// matter, and it may be closed afterwards.
//
// OpenXRCD returns [ErrNotSupported] if the device has no XRC, EAGAIN if the file
// has no domain and flags does not include XRCDCreate, [ErrInvalid] if the file has
// one and flags includes XRCDExclusive, and [ErrClosed] after Close of the Context or of
// the file.
func (c *Context) OpenXRCD(file *os.File, flags XRCDFlags) (*XRCD, error) {
	x := new(XRCD)
	x.object = object{ctx: c, life: x, kind: "XRCD", rank: rankXRCD}
	if flags&^(XRCDCreate|XRCDExclusive) != 0 {
		return nil, invalid("open XRCD", c.name, "flags may have XRCDCreate and XRCDExclusive")
	}
	if err := x.createWith(func() error { return x.open(file, flags) }); err != nil {
		return nil, err
	}
	return x, nil
}

func (x *XRCD) open(file *os.File, flags XRCDFlags) error {
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
		detail = "the device has no extended reliable connections: see DeviceXRC in DeviceAttr.CapFlags"
	case errors.Is(err, unix.EAGAIN):
		detail = "there is no domain for the file: XRCDCreate creates it"
	case errors.Is(err, unix.EINVAL) && flags&XRCDExclusive != 0:
		detail = "there is a domain for the file already: leave XRCDExclusive out to share it"
	}
	return x.ctx.wrap("open XRCD", x.ctx.name, err, detail)
}

// withFD calls f with the descriptor of file, which stays open during the call. If
// file is nil, it calls f with none.
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

func (x *XRCD) destroy() error {
	return x.destroyHandle(uapi.UVERBS_OBJECT_XRCD, uapi.UVERBS_METHOD_XRCD_DESTROY, uapi.UVERBS_ATTR_DESTROY_XRCD_HANDLE)
}

// Context returns the context of x.
func (x *XRCD) Context() *Context { return x.ctx }

// Close closes the domain: ibv_close_xrcd(3). It returns [ErrBusy] while QPs or
// SRQs of this context use it. It does not affect other processes that have opened
// the domain. Close is idempotent.
func (x *XRCD) Close() error { return x.close() }
