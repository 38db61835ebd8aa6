package uverbs

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// An AH is an address handle: the destination of datagrams that UD QPs of its PD send. Any
// number of requests and goroutines may use it at the same time.
type AH struct {
	shared driver.AH // must be the first field: providers read it
	object
	pd *PD
}

// CreateAH creates an address handle: ibv_create_ah(3). On RoCE the kernel resolves the
// neighbor or the router on the path to the peer, which takes seconds if it does not reply.
//
// It returns [ErrInvalid] if the port cannot send to the address, [ErrClosed] after Close of
// the PD, or the kernel's error for the path, such as EHOSTUNREACH if the neighbor does not
// reply.
func (p *PD) CreateAH(attr AHAttr) (*AH, error) {
	a := &AH{pd: p}
	a.object = object{ctx: p.ctx, life: a, kind: "AH", rank: rankAH}
	a.addParents(&p.object)
	if err := a.createWith(func() error { return a.create(&attr) }); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *AH) create(attr *AHAttr) error {
	create := func(uhwIn, uhwOut []byte) (driver.Reply, error) {
		return a.setHandle(a.command(attr, uhwIn, uhwOut))
	}
	reply, err := a.ctx.impl.CreateAH(attr, a.ctx.ahEnv(attr), a.shared.AV(), create)
	if err != nil {
		a.destroyIfExists(a.destroyKernel)
		return a.ctx.explainCreateAH(err, attr)
	}
	a.handle, a.number = reply.Handle, reply.Handle
	a.shared.Open(a.pd.shared())
	return nil
}

// ahEnv returns what the provider's part of an AH depends on.
func (c *Context) ahEnv(attr *AHAttr) *driver.AHEnv {
	return &driver.AHEnv{
		Ethernet: func() (bool, error) {
			a, err := c.QueryPort(int(attr.Port))
			return err == nil && a.LinkLayer == LinkEthernet, err
		},
		RoCEv2: func() (bool, error) {
			g, err := c.unnamedGID(int(attr.Port), int(attr.SGIDIndex))
			return err == nil && g.Type == GIDTypeRoCEv2, err
		},
	}
}

func (a *AH) command(attr *AHAttr, uhwIn, uhwOut []byte) (driver.Reply, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.Write[uapi.IbUverbsCreateAhResp](cmd, uapi.IB_USER_VERBS_CMD_CREATE_AH,
		&uapi.IbUverbsCreateAh{PdHandle: a.pd.handle, Attr: attr.wire()})
	reply := cmd.UHW(uhwIn, len(uhwOut))
	if err := a.ctx.dev.Do(cmd); err != nil {
		return driver.Reply{}, err
	}
	copy(uhwOut, reply)
	return driver.Reply{Handle: resp.AhHandle}, nil
}

// wire returns the attributes in the form that CREATE_AH accepts.
func (a *AHAttr) wire() uapi.IbUverbsAhAttr {
	return uapi.IbUverbsAhAttr{
		Grh: uapi.IbUverbsGlobalRoute{Dgid: a.DGID, FlowLabel: a.FlowLabel, SgidIndex: a.SGIDIndex,
			HopLimit: a.HopLimit, TrafficClass: a.TrafficClass},
		Dlid: a.DLID, Sl: a.SL, SrcPathBits: a.SrcPathBits, StaticRate: uint8(a.StaticRate),
		IsGlobal: b2u(a.IsGlobal), PortNum: a.Port}
}

// explainCreateAH adds the cause to the kernel's error, as explainModify does.
func (c *Context) explainCreateAH(err error, attr *AHAttr) error {
	detail := ""
	switch errnoOf(err) {
	case unix.EINVAL, unix.ENODATA:
		if detail = c.explainPort(int(attr.Port)); detail == "" {
			detail = c.explainAddress(attr)
		}
	case unix.ENOMEM:
		detail = "the kernel has no memory for it, or the device no AH left"
	default:
		detail = explainRoute(attr, err)
	}
	return c.wrap("create AH", c.name, err, detail)
}

// CreateAHFromWC creates an address handle for a reply to a datagram that was received:
// ibv_create_ah_from_wc(3). See [Context.AHAttrFromWC]. It returns [ErrInvalid] as that does;
// otherwise the errors are those of [PD.CreateAH].
func (p *PD) CreateAHFromWC(port int, wc *WC, grh []byte) (*AH, error) {
	attr, err := p.ctx.AHAttrFromWC(port, wc, grh)
	if err != nil {
		return nil, err
	}
	return p.CreateAH(attr)
}

// part returns the part of a that posts read, or nil if a is nil.
func (a *AH) part() *driver.AH {
	if a == nil {
		return nil
	}
	return &a.shared
}

// PD returns the PD that created a.
func (a *AH) PD() *PD { return a.pd }

func (a *AH) destroy() error {
	a.shared.Close()
	err := a.destroyKernel()
	if err != nil { // the AH still exists
		a.shared.Open(a.pd.shared())
	}
	return err
}

func (a *AH) destroyKernel() error {
	return a.destroyHandle(uapi.UVERBS_OBJECT_AH, uapi.UVERBS_METHOD_AH_DESTROY, uapi.UVERBS_ATTR_DESTROY_AH_HANDLE)
}

// Close destroys the handle: ibv_destroy_ah(3). Requests that use it must have completed: a
// device may fail those that have not, and with them their QP. Close is idempotent. If the
// kernel refuses, Close returns its error and the handle stays usable.
func (a *AH) Close() error { return a.close() }

// errClosedAH is the error of a post with a closed AH. It matches ErrClosed.
var errClosedAH error = &sentinel{
	text:  "uverbs: the AH has been closed: close it when the requests that name it have completed",
	errno: unix.EBADF,
	kinds: []error{ErrClosed},
}

func init() {
	driver.ErrNoAH, driver.ErrClosedAH, driver.ErrForeignAH = ErrNoAH, errClosedAH, ErrForeignAH
}
