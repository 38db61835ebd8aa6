package cm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A Listener accepts connections. Its methods may be called concurrently.
type Listener struct{ handshakes }

// Listen listens for connections at host:port in PSTCP. An empty host stands for all
// addresses of both families, and port 0 for a port that the kernel chooses.
//
// Without a host, Listen needs no RDMA device, and it also serves devices that are
// added later. [Devices] returns the present devices that can be opened. If a request
// arrives at a device whose provider is not linked, Accept returns an error.
//
// Listen returns [uverbs.ErrNoProvider] if the program links no provider, and
// [uverbs.ErrNoDevice] for a loopback address, because the kernel would serve all
// addresses instead. Otherwise the errors are those of [GetAddrInfo], [NewID],
// [ID.Bind] and [ID.Listen].
func Listen(addr string, o *ListenOptions) (*Listener, error) {
	l := &Listener{}
	l.init(o)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, invalid("listen", addr, "want host:port or :port")
	}
	infos, err := GetAddrInfo(context.Background(), host, port, &AddrInfo{Flags: Passive, PortSpace: PSTCP})
	if err != nil {
		return nil, err
	}
	if l.id, err = NewID(PSTCP); err != nil {
		return nil, err
	}
	if err = checkListenAddr(infos[0].Src); err == nil {
		err = l.listen(func() error { return l.id.Bind(infos[0].Src) })
	}
	if err != nil {
		return nil, errors.Join(err, l.id.Close())
	}
	return l, nil
}

// ListenIB is [Listen] at an address of the InfiniBand family. Its ServiceID has the number of the port space, PSTCP,
// shifted left by 16, and the port. The errors are those of [NewID], [ID.BindIB] and [ID.Listen].
func ListenIB(addr IBAddr, o *ListenOptions) (_ *Listener, err error) {
	l := &Listener{}
	l.init(o)
	if l.id, err = NewID(PSTCP); err != nil {
		return nil, err
	}
	if err := l.listen(func() error { return l.id.BindIB(addr) }); err != nil {
		return nil, errors.Join(err, l.id.Close())
	}
	return l, nil
}

// hasProvider reports whether the program links a provider. Hermetic tests replace
// it.
var hasProvider = driver.Registered

// checkListenAddr returns an error for a listener that could never accept, or that
// would serve other addresses than addr.
func checkListenAddr(addr netip.AddrPort) error {
	switch {
	case !hasProvider():
		return &Error{Op: opListen, Object: addr.String(), Kind: uverbs.ErrNoProvider,
			Detail: "the program links no provider, so no device could be opened:" +
				" add import _ \"github.com/goverbs/goverbs/provider/all\""}
	case addr.Addr().IsLoopback():
		return &Error{Op: opListen, Object: addr.String(), Kind: uverbs.ErrNoDevice, Errno: unix.EADDRNOTAVAIL,
			Detail: "loopback addresses belong to no RDMA device, and the kernel would serve every address instead:" +
				" use an address of a device, or none to serve them all"}
	}
	return nil
}

// listen listens at the address that bind binds the id to.
func (l *Listener) listen(bind func() error) error {
	if l.options.ReuseAddr {
		if err := l.id.SetReuseAddr(true); err != nil {
			return err
		}
	}
	if l.options.V6Only {
		if err := l.id.SetAFOnly(true); err != nil {
			return err
		}
	}
	if err := bind(); err != nil {
		return err
	}
	if l.options.Backlog < 0 {
		return invalid(opListen, l.id.name(),
			"ListenOptions.Backlog is "+strconv.Itoa(l.options.Backlog)+": the minimum is 0")
	}
	// The kernel drops requests that exceed its backlog, and their clients wait for
	// seconds until they are repeated. So its backlog is the maximum, and the listener's
	// applies to the requests that were read.
	if err := l.id.Listen(0); err != nil {
		return err
	}
	l.id.setBacklog(l.backlog())
	if !l.options.ManualAccept {
		l.dispatcher.Go(l.dispatch)
	}
	return nil
}

// Accept waits for a connection and returns it.
//
// The handshakes of a listener run in the background, from Listen on: they create the QP
// that ListenOptions describe and call their Prepare, Setup and Established. A client may therefore be
// connected, and may have sent messages, before Accept is called. ListenOptions.MaxHandshakes
// limits how many connections are between request and Accept, and ListenOptions.Backlog how
// many requests wait for a handshake. Clients beyond them receive [ErrServerBusy], those
// beyond ListenOptions.MaxConns and ListenOptions.MaxConnsPerPeer receive [ErrServerLimit].
//
// Each handshake waits for the peer's confirmation, and for Established, for at most ListenOptions.HandshakeTimeout.
// Peers that send nothing but their request do not delay others for long: the handshakes
// of one address use at most about three quarters of the slots that are free, and the
// address that has the fewest is served first. If HandshakeTimeout is longer than ten
// seconds, requests that wait for a slot get one earlier: at the address with the most
// handshakes, those that have waited longest are canceled if no peer of this address has
// confirmed for ten seconds. If more requests wait than MaxHandshakes, or if peers of the
// address did not confirm, its newest request is served first: the clients of the older
// ones may have given up.
//
// If ctx ends, the call returns, but the handshakes go on: a later call returns their
// connections. Accept returns context.Cause(ctx) if ctx ends first. It returns
// [ErrListenerClosed], now and from then on, if the listener was closed or its device
// removed, and [uverbs.ErrInvalid] with ListenOptions.ManualAccept. Any other error is of a
// single connection, as in [Request.Accept]: the QP could not be created, Prepare, Setup or
// Established failed, or an object could not be closed. If the only cause is the peer, because
// it disconnected or took too long, the listener drops the connection without an error.
// A typical loop is:
//
//	for {
//		conn, err := l.Accept(ctx)
//		if errors.Is(err, cm.ErrListenerClosed) || ctx.Err() != nil {
//			return err
//		}
//		if err != nil {
//			log.Print(err)
//			continue
//		}
//		go serve(conn)
//	}
func (l *Listener) Accept(ctx context.Context) (*Conn, error) {
	switch {
	case ctx.Err() != nil:
		return nil, ended(ctx, opAcceptAt, l.id.name())
	case l.endCause() != nil:
		return nil, l.endCause()
	case l.options.ManualAccept:
		return nil, invalid(opAcceptAt, l.id.name(), "ListenOptions.ManualAccept is set: call Request, or leave it unset")
	}
	select {
	case a := <-l.results:
		if a.err != nil {
			return nil, a.err
		}
		return a.conn.finishSetup(), nil
	case <-l.done:
		return nil, l.endCause()
	case <-ctx.Done():
		return nil, ended(ctx, opAcceptAt, l.id.name())
	}
}

// Request waits for a connection request and returns it, so that the caller can
// inspect the peer before accepting. Call exactly one of Accept, Reject and Close.
// ListenOptions.ManualAccept must be set, so that the listener does not accept requests by
// itself. Backlog, MaxConns and MaxConnsPerPeer of ListenOptions apply. Request
// returns [uverbs.ErrInvalid] without ListenOptions.ManualAccept. Otherwise the errors are
// those of [SyncID.GetRequest].
func (l *Listener) Request(ctx context.Context) (*Request, error) {
	if !l.options.ManualAccept {
		return nil, invalid(opAcceptAt, l.id.name(),
			"the listener accepts requests by itself: set ListenOptions.ManualAccept, or call Accept")
	}
	for {
		s, err := l.id.GetRequest(ctx)
		if err != nil {
			return nil, err
		}
		peer := s.ID.peerHost()
		full := l.conns.Acquire(peer, 1)
		if full == nil {
			s.ID.whenClosed(func() { l.conns.Release(peer, 1) })
			return &Request{id: s, options: &l.options.Options}, nil
		}
		why := connLimitError(full)
		if err := errors.Join(s.ID.refuse(why), s.Close()); err != nil {
			return nil, err
		}
		l.notifyRefused(peer, why)
	}
}

// Addr returns the address that the listener listens on.
func (l *Listener) Addr() netip.AddrPort { return l.id.LocalAddr() }

// ID returns the listener's id.
func (l *Listener) ID() *SyncID { return l.id }

// Close closes the listener and returns when all its handshakes have ended, so Setup and
// Established must not call it. Waiting requests are rejected, and connections that Accept has
// not returned are closed: their peers receive [ErrDisconnected]. Connections that it has returned stay open. Close is
// idempotent. The errors are those of [ID.Close].
func (l *Listener) Close() error {
	l.stop()
	l.dispatcher.Wait() // it rejects requests
	// The last SyncID to close also closes the descriptor: a request that was read is to
	// have its own SyncID before.
	l.withoutID.Wait()
	err := l.id.Close()
	l.running.Wait()
	return err
}
