package cm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// dialTimeout limits Dial and JoinMulticast if neither the context nor Options do.
// If a peer never replies, the kernel repeats the request for about 78 seconds.
const dialTimeout = 30 * time.Second

// minShare is the minimum time for an address while others remain.
const minShare = 2 * time.Second

// Dial connects to host:port, where a program listens in PSTCP. Host is a name or an
// IP address, with a zone if it is link-local. An empty host stands for the
// addresses of this machine's RDMA devices. Loopback addresses such as 127.0.0.1 do
// not belong to any device.
//
// If a name has several addresses, Dial tries them in order until one accepts. The
// remaining time, from Options.Timeout or the context's deadline, is divided among
// them, but each has at least 2 seconds. Options.Prepare and Options.Setup are called
// for each address that is tried. If Dial fails, it closes what it has created.
//
// The error is an [Error] whose cause names the step that failed. If several
// addresses failed, it contains the errors of all. Dial returns [ErrRejected] if no
// program listens, with [ErrServerBusy] or [ErrServerLimit] if the server has refused
// for that reason, [ErrTimeout], [ErrUnreachable] or context.DeadlineExceeded if no
// machine replies, context.Cause(ctx) if ctx ends first, or the error of Prepare or
// Setup. Otherwise the errors are those of [GetAddrInfo], [NewID],
// [SyncID.ResolveAddr], [SyncID.ResolveRoute], [ID.CreateQP] and [SyncID.Connect].
func Dial(ctx context.Context, addr string, o *Options) (*Conn, error) {
	if o == nil {
		o = &Options{}
	}
	ctx, cancel := o.withDeadline(ctx)
	defer cancel()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, invalid("dial", addr, "want host:port or :port")
	}
	infos, err := dialAddrs(ctx, host, port, o)
	if err != nil {
		return nil, operationError("dial", addr, err)
	}
	c, err := dialEach(ctx, infos, o)
	if err != nil {
		return nil, operationError("dial", addr, err)
	}
	return c, nil
}

// withDeadline returns ctx with the deadline that the options set.
func (o *Options) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.Timeout > 0 {
		return context.WithTimeout(ctx, o.Timeout)
	}
	if _, bounded := ctx.Deadline(); bounded {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, dialTimeout)
}

// dialAddrs returns the addresses to dial.
func dialAddrs(ctx context.Context, host, port string, o *Options) ([]AddrInfo, error) {
	hints := &AddrInfo{PortSpace: PSTCP, Src: o.LocalAddr}
	if host != "" {
		return GetAddrInfo(ctx, host, port, hints)
	}
	n, err := lookupPort(ctx, PSTCP, port)
	if err != nil {
		return nil, &Error{Op: "look up", Object: port, Kind: uverbs.ErrInvalid, Err: err}
	}
	ips, err := deviceAddrs(ctx)
	if err != nil {
		return nil, err
	}
	infos := make([]AddrInfo, len(ips))
	for k, ip := range ips {
		infos[k] = *hints
		infos[k].Dst = netip.AddrPortFrom(ip, n)
	}
	return infos, nil
}

const opListAddrs = "list addresses"

// deviceAddrs returns the addresses of this machine that belong to RDMA devices. It
// tries to bind an id to each, because on InfiniBand and iWARP the devices themselves
// do not know their IP addresses. If a device cannot be opened, it skips the address.
func deviceAddrs(ctx context.Context) ([]netip.Addr, error) {
	all, err := machineAddrs()
	if err != nil {
		return nil, &Error{Op: opListAddrs, Err: err}
	}
	var ours []netip.Addr
	var errs []error
	for _, ip := range all {
		if ip.IsLoopback() || ip.IsLinkLocalUnicast() {
			continue
		}
		if ctx.Err() != nil {
			return nil, ended(ctx, opListAddrs, "")
		}
		s, err := NewID(PSTCP)
		if err != nil {
			return nil, err // as for every other address
		}
		switch err := errors.Join(s.Bind(netip.AddrPortFrom(ip, 0)), s.Close()); {
		case err == nil:
			ours = append(ours, ip)
		case !errors.Is(err, uverbs.ErrNoDevice) && !errors.Is(err, unix.EADDRNOTAVAIL):
			errs = append(errs, err)
		}
	}
	switch {
	case len(ours) > 0:
		return ours, nil
	case len(errs) > 0:
		return nil, errors.Join(errs...)
	}
	return nil, &Error{Op: opListAddrs, Kind: uverbs.ErrNoDevice, Errno: unix.ENODEV,
		Detail: "no RDMA device of this machine has an IP address: see `rdma link` and `ip address`"}
}

// attempts has the errors of the addresses that were tried.
type attempts []attempt

type attempt struct {
	addr netip.AddrPort
	err  error
}

func (a attempts) Error() string {
	texts := make([]string, len(a))
	for k := range a {
		addr := a[k].addr.String()
		texts[k] = addr + ": " + strings.TrimPrefix(withoutObject(a[k].err, addr).Error(), "cm: ")
	}
	return strings.Join(texts, "; ")
}

func (a attempts) Unwrap() []error {
	errs := make([]error, len(a))
	for k := range a {
		errs[k] = a[k].err
	}
	return errs
}

// dialEach tries the addresses in order.
func dialEach(ctx context.Context, infos []AddrInfo, o *Options) (*Conn, error) {
	var failures attempts
	for k := range infos {
		part, cancel := share(ctx, time.Now(), len(infos)-k)
		c, err := dial(part, &infos[k], o)
		cancel()
		if err == nil {
			return c, nil
		}
		failures = append(failures, attempt{infos[k].Dst, err})
		if ctx.Err() != nil {
			break
		}
	}
	if len(failures) == 1 {
		return nil, failures[0].err
	}
	return nil, failures
}

// share limits ctx for the next of n addresses to its part of the remaining time, or
// to minShare if that is longer.
func share(ctx context.Context, now time.Time, n int) (context.Context, context.CancelFunc) {
	deadline, bounded := ctx.Deadline()
	if !bounded || n == 1 {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, now.Add(max(deadline.Sub(now)/time.Duration(n), minShare)))
}

func dial(ctx context.Context, ai *AddrInfo, o *Options) (*Conn, error) {
	return dialBy(ctx, o, func(s *SyncID) error { return s.ResolveAddr(ctx, ai.Src, ai.Dst, o.ResolveTimeout) })
}

// DialIB is [Dial] to an address of the InfiniBand family. Options.LocalIB is the address to dial from. The program
// sets Options.Paths if there is no subnet manager. The methods LocalAddr and RemoteAddr of the Conn return the zero
// AddrPort: see [ID.LocalGID] and [ID.RemoteGID]. The errors are those of [Dial], with those of [SyncID.ResolveIB].
func DialIB(ctx context.Context, addr IBAddr, o *Options) (*Conn, error) {
	if o == nil {
		o = &Options{}
	}
	ctx, cancel := o.withDeadline(ctx)
	defer cancel()
	c, err := dialBy(ctx, o, func(s *SyncID) error { return s.ResolveIB(ctx, o.LocalIB, addr, o.ResolveTimeout) })
	if err != nil {
		return nil, operationError("dial", addr.GID.String(), err)
	}
	return c, nil
}

// dialBy connects to the address that resolve resolves.
func dialBy(ctx context.Context, o *Options, resolve func(*SyncID) error) (_ *Conn, err error) {
	s, err := NewID(PSTCP)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	c := &Conn{id: s}
	defer func() {
		if err != nil {
			err = joinErrors(err, c.abandon())
		}
	}()
	if err := o.prepareID(s); err != nil {
		return nil, err
	}
	if err := withStep("resolve address", resolve(s)); err != nil {
		return nil, err
	}
	if err := withStep("resolve route", o.resolveRoute(ctx, s)); err != nil {
		return nil, err
	}
	if _, err := c.setUp(o); err != nil {
		return nil, err
	}
	before := time.Since(began)
	if err := s.Connect(ctx, c.param(o)); err != nil {
		return nil, explainDeadline(ctx, err, before, time.Since(began)-before)
	}
	if err := c.established(ctx, o, s.Event().PrivateData); err != nil {
		return nil, err
	}
	return c.finishSetup(), nil
}

// explainDeadline adds what to check to the error of Connect, if the deadline of ctx has passed. The steps before it
// have lasted for before, and Connect for waited.
func explainDeadline(ctx context.Context, err error, before, waited time.Duration) error {
	own, ok := err.(*Error)
	if !ok || !errors.Is(err, os.ErrDeadlineExceeded) || context.Cause(ctx) != context.DeadlineExceeded {
		return err
	}
	e := *own
	reply := waited.Round(time.Millisecond).String()
	if before > waited {
		e.Detail = "no reply within the " + reply + " before the deadline, since the steps before lasted " +
			before.Round(time.Millisecond).String() +
			": this machine is busy: set a later deadline, or call Dial less often at the same time"
	} else {
		e.Detail = "no reply within " + reply + ", before the deadline of the call: the peer is busy or not reached: " +
			checkPeer
	}
	return &e
}

// resolveRoute resolves the route, unless the program knows it.
func (o *Options) resolveRoute(ctx context.Context, s *SyncID) error {
	if len(o.Paths) > 0 {
		return s.SetPaths(ctx, o.Paths)
	}
	return s.ResolveRoute(ctx, o.ResolveTimeout)
}

// prepareID sets the options that an id needs before it is bound.
func (o *Options) prepareID(s *SyncID) error {
	if o.TOS != 0 {
		if err := s.SetTOS(o.TOS); err != nil {
			return err
		}
	}
	if o.ReuseAddr {
		return s.SetReuseAddr(true)
	}
	return nil
}
