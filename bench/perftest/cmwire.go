package perftest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// A cmWire is a wire over an RC QP that rdma_cm connects. A message is a SEND. Each end
// has one receive posted, and posts the next one before it replies.
type cmWire struct {
	id        *cm.SyncID
	requester requester // of a server
	in, out   *uverbs.MR
}

// resolveTimeout limits the resolution of an address or a route.
const resolveTimeout = 2 * time.Second

// A client makes up to maxAttempts attempts to connect, with retryDelay between them,
// because the server may be about to listen.
const (
	maxAttempts = 20
	retryDelay  = 100 * time.Millisecond
)

// dialID creates an id and resolves the route to the server.
func dialID(ctx context.Context, o *Options, typ uverbs.QPType) (id *cm.SyncID, err error) {
	ai, err := o.addressOf(ctx, o.Server, 0)
	if err != nil {
		return nil, err
	}
	var src netip.AddrPort
	if o.SourceIP != "" {
		src = netip.AddrPortFrom(netip.MustParseAddr(o.SourceIP), 0)
	}
	if id, err = cm.NewID(portSpace(typ)); err != nil {
		return nil, err
	}
	if err := o.resolve(ctx, id, src, ai.Dst, typ); err != nil {
		return nil, errors.Join(err, id.Close())
	}
	return id, nil
}

// resolve resolves the address and the route.
func (o *Options) resolve(ctx context.Context, id *cm.SyncID, src, dst netip.AddrPort, typ uverbs.QPType) error {
	if o.TOS >= 0 {
		if err := id.SetTOS(uint8(o.TOS)); err != nil {
			return err
		}
	}
	if err := id.ResolveAddr(ctx, src, dst, resolveTimeout); err != nil {
		return err
	}
	if typ == uverbs.RC {
		if err := id.SetAckTimeout(uint8(o.QPTimeout)); err != nil {
			return err
		}
	}
	return id.ResolveRoute(ctx, resolveTimeout)
}

func portSpace(typ uverbs.QPType) cm.PortSpace { return choose(typ == uverbs.UD, cm.PSUDP, cm.PSTCP) }

// addressOf resolves a host to an address of the family that the options select.
func (o *Options) addressOf(ctx context.Context, host string, flags cm.AddrInfoFlags) (*cm.AddrInfo, error) {
	family := choose(o.IPv6Addr, cm.IPv6, cm.IPv4)
	all, err := cm.GetAddrInfo(ctx, host, strconv.Itoa(o.Port), &cm.AddrInfo{Flags: flags, Family: family})
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

// listenID creates an id that listens with a backlog of n requests.
func listenID(ctx context.Context, o *Options, typ uverbs.QPType, n int) (id *cm.SyncID, err error) {
	ai, err := o.addressOf(ctx, o.SourceIP, cm.Passive)
	if err != nil {
		return nil, err
	}
	if id, err = cm.NewID(portSpace(typ)); err != nil {
		return nil, err
	}
	if err = id.Bind(ai.Src); err == nil {
		err = id.Listen(n)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("-p %d: %w", o.Port, err), id.Close())
	}
	return id, nil
}

// retryRefused calls connect until a server listens.
func retryRefused[T any](ctx context.Context, connect func() (T, error)) (T, error) {
	for n := 1; ; n++ {
		v, err := connect()
		if err == nil || n == maxAttempts || !errors.Is(err, syscall.ECONNREFUSED) { // also matches cm.ErrRejected
			return v, err
		}
		select {
		case <-time.After(retryDelay):
		case <-ctx.Done():
			return v, context.Cause(ctx)
		}
	}
}

func dialCM(ctx context.Context, o *Options) (wire, error) {
	w, err := retryRefused(ctx, func() (wire, error) {
		id, err := dialID(ctx, o, uverbs.RC)
		if err != nil {
			return nil, err
		}
		p := wireParam(o)
		p.PrivateData = clientTag{run: o.run, control: true}.bytes()
		return newCMWire(id, func() error { return asBusy(id.Connect(ctx, p)) })
	})
	if errors.Is(err, syscall.ECONNREFUSED) {
		err = fmt.Errorf("%w: start the server first, with the same -p, and with -R or -z as here; a server that has a "+
			"client does not listen any more", err)
	}
	return w, err
}

func wireParam(o *Options) *cm.ConnParam {
	return &cm.ConnParam{ResponderResources: cm.NoReads, InitiatorDepth: cm.NoReads,
		RetryCount: retries(o.RetryCount), RNRRetryCount: 7}
}

// retries returns a number of retries for a ConnParam, where 0 stands for the default.
func retries(n int) uint8 {
	if n == 0 {
		return cm.NoRetry
	}
	return uint8(n)
}

func acceptCM(ctx context.Context, o *Options) (wire, error) {
	l, err := listenID(ctx, o, uverbs.RC, o.QPs)
	if err != nil {
		return nil, err
	}
	o.waiting()
	id, err := l.GetRequest(ctx)
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	var w wire
	err = withPatience(ctx, func(ctx context.Context) (err error) {
		w, err = newCMWire(id, func() error {
			if err := id.SetAckTimeout(uint8(o.QPTimeout)); err != nil {
				return err
			}
			return id.Accept(ctx, wireParam(o))
		})
		return err
	})
	return w, errors.Join(err, l.Close())
}

// newCMWire creates the QP of an id and calls connect.
func newCMWire(id *cm.SyncID, connect func() error) (_ wire, err error) {
	w := &cmWire{id: id, requester: requesterOf(id)}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if err := id.CreateQP(nil, uverbs.QPConfig{MaxSendWR: 1, MaxRecvWR: 1}); err != nil {
		return nil, err
	}
	if w.in, err = id.AllocMsgs(binaryKeys); err != nil {
		return nil, err
	}
	if w.out, err = id.AllocMsgs(binaryKeys); err != nil {
		return nil, err
	}
	if err := w.ready(); err != nil {
		return nil, err
	}
	return w, connect()
}

// ready posts the receive for the next message.
func (w *cmWire) ready() error { return w.id.PostRecv(0, w.in.SGE(0, binaryKeys)) }

func (w *cmWire) send(ctx context.Context, message []byte) error {
	n := copy(w.out.Bytes(), message)
	if err := w.id.PostSend(0, uverbs.Signaled, w.out.SGE(0, n)); err != nil {
		return w.gone(err)
	}
	_, err := w.id.SendComp(ctx)
	return w.gone(err)
}

func (w *cmWire) receive(ctx context.Context, message []byte) error {
	wc, err := w.id.RecvComp(ctx)
	if err != nil {
		return w.gone(err)
	}
	if int(wc.ByteLen) != len(message) {
		return atPeer("", "the peer sent %d bytes where %d are expected: it runs another test or has other options",
			wc.ByteLen, len(message))
	}
	copy(message, w.in.Bytes())
	return w.ready()
}

// gone returns errPeerClosed if err means that the connection has ended, and err
// otherwise.
func (w *cmWire) gone(err error) error {
	if err != nil && (errors.Is(err, cm.ErrDisconnected) || errors.Is(err, uverbs.WCWRFlushErr)) {
		return errPeerClosed
	}
	return err
}

func (w *cmWire) state() (int, error) {
	select {
	case <-w.id.Disconnected():
		return 0, errPeerClosed
	default:
		return 0, nil
	}
}

func (w *cmWire) close() error {
	var errs []error
	for _, mr := range []*uverbs.MR{w.in, w.out} {
		if mr != nil {
			errs = append(errs, mr.Close())
		}
	}
	return errors.Join(append(errs, w.id.Close())...)
}
