package cm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// Options says how to dial, listen or join. Nil in place of them, and each
// field's zero value, stand for what suits most.
type Options struct {
	// QP describes the QP. Without sizes it has room for 16 sends and 16
	// receives of one SGE.
	QP uverbs.QPConfig
	// PD is where the QP belongs, and with it the memory that is posted. Nil
	// stands for one that connections of a device share. A PD of another device
	// than the connection's is an error.
	PD *uverbs.PD

	// PrivateData goes to the peer with the request, or with its acceptance:
	// see [ConnParam] for how much.
	PrivateData []byte
	// Param says more about the connection. Its PrivateData gives way to that
	// above.
	Param *ConnParam

	// LocalAddr is where to dial from. The zero AddrPort leaves it to the
	// routing table.
	LocalAddr netip.AddrPort
	// Timeout bounds each of the resolutions of address and route: two seconds
	// if zero. The context bounds everything.
	Timeout time.Duration
	// TOS is the type of service of the connection's packets.
	TOS uint8
	// ReuseAddr lets several listeners share a port.
	ReuseAddr bool
	// V6Only keeps a listener on [::] from serving IPv4.
	V6Only bool
	// Backlog is how many requests wait for Accept; the kernel's maximum if
	// zero.
	Backlog int

	// Setup runs when the QP exists and the peer cannot send yet: post the first
	// receives there. Its error ends the connection.
	Setup func(*Conn) error
}

func (o *Options) qp(typ uverbs.QPType) uverbs.QPConfig {
	const usual = 16
	cfg := o.QP
	if cfg.MaxSendWR == 0 && cfg.MaxRecvWR == 0 {
		cfg.MaxSendWR, cfg.MaxRecvWR = usual, usual
	}
	cfg.Type = typ
	return cfg
}

func (o *Options) param() *ConnParam {
	p := defaultConnParam
	if o.Param != nil {
		p = *o.Param
	}
	if o.PrivateData != nil {
		p.PrivateData = o.PrivateData
	}
	return &p
}

// A Conn is a reliable connection. All that an id does it does too; receives,
// sends and their completions are those of rdma_verbs.h: see [ID.PostRecv],
// [ID.PostSend], [ID.PostRead], [ID.SendComp] and [ID.RecvComp]. Its methods
// may be called from any number of goroutines.
type Conn struct {
	*SyncID
	private []byte
}

// Dial connects to host:port, where a program listens in PSTCP. Host is a name
// or an IP address, with a zone where it is link-local; of a name's addresses
// the first that answers is taken. When ctx ends before the connection stands,
// nothing is left of it. The errors are those of [GetAddrInfo], [NewID],
// [SyncID.ResolveAddr], [SyncID.ResolveRoute], [ID.CreateQP] and
// [SyncID.Connect], or what Setup answers: [ErrRejected] where nobody listens,
// [ErrTimeout] and [ErrUnreachable] where nobody is.
func Dial(ctx context.Context, addr string, o *Options) (*Conn, error) {
	if o == nil {
		o = &Options{}
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, invalid("dial", addr, "want host:port")
	}
	infos, err := GetAddrInfo(ctx, host, port, &AddrInfo{PortSpace: PSTCP, Src: o.LocalAddr})
	if err != nil {
		return nil, err
	}
	return dialFirst(ctx, infos, o)
}

// dialFirst dials one address after the other. Who has refused would refuse at
// its other addresses as well.
func dialFirst(ctx context.Context, infos []AddrInfo, o *Options) (*Conn, error) {
	var errs []error
	for k := range infos {
		c, err := dial(ctx, &infos[k], o)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil || errors.Is(err, ErrRejected) {
			break
		}
	}
	if len(errs) == 1 {
		return nil, errs[0]
	}
	return nil, errors.Join(errs...)
}

func dial(ctx context.Context, ai *AddrInfo, o *Options) (_ *Conn, err error) {
	s, err := NewID(PSTCP)
	if err != nil {
		return nil, err
	}
	c := &Conn{SyncID: s}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if o.TOS != 0 {
		if err := s.SetTOS(o.TOS); err != nil {
			return nil, err
		}
	}
	if err := s.ResolveAddr(ctx, ai.Src, ai.Dst, o.Timeout); err != nil {
		return nil, err
	}
	if err := s.ResolveRoute(ctx, o.Timeout); err != nil {
		return nil, err
	}
	if err := c.setUp(o); err != nil {
		return nil, err
	}
	if err := s.Connect(ctx, o.param()); err != nil {
		return nil, err
	}
	c.private = s.Event().PrivateData
	return c, nil
}

// setUp makes the QP and lets the program post its receives.
func (c *Conn) setUp(o *Options) error {
	if err := c.CreateQP(o.PD, o.qp(uverbs.RC)); err != nil {
		return err
	}
	if o.Setup == nil {
		return nil
	}
	return o.Setup(c)
}

// PrivateData returns what the peer sent with its request, or its acceptance,
// padded with zeros to what the message has room for.
func (c *Conn) PrivateData() []byte { return c.private }

// Shutdown ends the connection and waits until the peer knows of it, then
// closes it. What is still in the queues is flushed: take the completions of
// what must arrive before. When ctx ends first, the connection is closed all
// the same. The errors are those of [SyncID.Disconnect] and [ID.Close].
func (c *Conn) Shutdown(ctx context.Context) error {
	err := c.Disconnect(ctx)
	return errors.Join(err, c.SyncID.Close())
}

// Close ends the connection and closes it. It does not wait for the peer, who
// is told once: see [Conn.Shutdown]. It is idempotent. The errors are those of
// [ID.Close].
func (c *Conn) Close() error { return c.SyncID.Close() }

// A Listener takes connections.
type Listener struct {
	id *SyncID
	o  Options
}

// Listen waits for connections at host:port in PSTCP. An empty host stands for
// every address of both families, port 0 for one that the kernel chooses. The
// errors are those of [GetAddrInfo], [NewID], [ID.Bind] and [ID.Listen].
func Listen(addr string, o *Options) (_ *Listener, err error) {
	l := &Listener{}
	if o != nil {
		l.o = *o
	}
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
	if err := l.listen(infos[0].Src); err != nil {
		return nil, errors.Join(err, l.id.Close())
	}
	return l, nil
}

func (l *Listener) listen(addr netip.AddrPort) error {
	if l.o.ReuseAddr {
		if err := l.id.SetReuseAddr(true); err != nil {
			return err
		}
	}
	if l.o.V6Only {
		if err := l.id.SetAFOnly(true); err != nil {
			return err
		}
	}
	if err := l.id.Bind(addr); err != nil {
		return err
	}
	return l.id.Listen(l.o.Backlog)
}

// Accept waits for a connection and takes it up, with the QP that Options
// describe and after their Setup. Several goroutines may wait. An error is
// either the listener's end ([uverbs.ErrClosed], or the context's), or of one
// connection, as [Request.Accept] has them, after which Accept may be called
// again.
//
// It returns when the peer has heard of it: a peer that never answers holds it
// up for about 70 seconds, until the kernel gives up. A server of peers that it
// does not trust takes requests by [Listener.Request], and accepts each in a
// goroutine of its own.
func (l *Listener) Accept(ctx context.Context) (_ *Conn, err error) {
	r, err := l.Request(ctx)
	if err != nil {
		return nil, err
	}
	return r.Accept(ctx, nil)
}

// A Request is a connection that waits to be taken up, or refused.
type Request struct {
	id *SyncID
	o  *Options
}

// Request waits for a connection without taking it up, so that the program can
// look at who asks. Exactly one of Accept, Reject and Close must follow. The
// errors are those of [SyncID.GetRequest].
func (l *Listener) Request(ctx context.Context) (*Request, error) {
	s, err := l.id.GetRequest(ctx)
	if err != nil {
		return nil, err
	}
	return &Request{id: s, o: &l.o}, nil
}

// ID is the id of the connection to be.
func (r *Request) ID() *SyncID { return r.id }

// PrivateData is what the peer sent along, padded with zeros.
func (r *Request) PrivateData() []byte { return r.id.Event().PrivateData }

// Accept takes the connection up. Nil options stand for those of the listener.
// An error ends the connection. The errors are those of [ID.CreateQP] and
// [SyncID.Accept], or what Setup answers.
func (r *Request) Accept(ctx context.Context, o *Options) (*Conn, error) {
	if o == nil {
		o = r.o
	}
	c := &Conn{SyncID: r.id, private: r.PrivateData()}
	err := c.setUp(o)
	if err == nil {
		err = c.SyncID.Accept(ctx, o.param())
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Reject refuses the connection, and tells the peer why. The errors are those
// of [ID.Reject] and [ID.Close].
func (r *Request) Reject(privateData []byte) error {
	return errors.Join(r.id.Reject(privateData), r.id.Close())
}

// Close refuses the connection. The errors are those of [ID.Close].
func (r *Request) Close() error { return r.id.Close() }

// Addr returns where the listener waits.
func (l *Listener) Addr() netip.AddrPort { return l.id.LocalAddr() }

// ID is the listener's id.
func (l *Listener) ID() *SyncID { return l.id }

// Close ends the listener. Requests that wait are refused; connections that
// were taken up stay. It is idempotent. The errors are those of [ID.Close].
func (l *Listener) Close() error { return l.id.Close() }
