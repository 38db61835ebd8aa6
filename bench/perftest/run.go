package perftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// Run plays one end of a test, and prints its reports to out. It ends early
// with [ErrInterrupted] when ctx does, and with [uverbs.ErrDeviceGone] when the
// device does; either way it reports what was measured until then. The other
// errors: [Error] for what the two ends were told, and what uverbs and cm answer.
func Run(ctx context.Context, o *Options, out io.Writer) error {
	return run(ctx, o, out, findDevice)
}

// run is Run on a device that find opens by its name.
func run(ctx context.Context, o *Options, out io.Writer, find func(name string) (*uverbs.Context, error)) (err error) {
	p := *o
	p.out, p.run = out, rand.Uint64()|1
	defer func() { err = errors.Join(err, p.outputErr) }()
	if err := p.normalize(); err != nil {
		return err
	}
	if err := p.checkMemory("/proc/meminfo"); err != nil {
		return err
	}
	if p.cqModByList {
		p.printf("%sPost List requested - CQ moderation will be the size of the post list\n", separator)
	}
	if p.noPeakByDefault {
		p.printf(" WARNING: BW peak won't be measured in this run.\n")
	}
	dev, err := openDevice(&p, find)
	if err != nil {
		return err
	}
	s := &session{o: &p, e: &endpoint{o: &p, dev: dev}}
	defer func() { err = errors.Join(err, s.close()) }()
	monitor, monitored := newDeviceMonitor(ctx, &p, dev)
	defer monitor.stop()
	if err = s.open(monitored); err == nil {
		err = s.measure(monitored)
	}
	if err == nil {
		err = s.waitDestroy(monitored)
	}
	if err != nil && ctx.Err() != nil {
		return s.interruptedError()
	}
	return monitor.cause(err)
}

// interrupted tells whether there are figures.
func (s *session) interruptedError() error {
	if s.e.watchdog == nil {
		return fmt.Errorf("%w: nothing has been measured at this end", ErrInterrupted)
	}
	return fmt.Errorf("%w; these are the results so far", ErrInterrupted)
}

// idle keeps the objects for a while.
func (s *session) waitDestroy(ctx context.Context) error {
	if s.o.WaitDestroy == 0 {
		return nil
	}
	s.o.printf(" Waiting %d seconds before releasing resources...\n", s.o.WaitDestroy)
	select {
	case <-time.After(time.Duration(s.o.WaitDestroy) * time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// A session is one run of a test.
type session struct {
	o   *Options
	ctl *control
	e   *endpoint
}

func (s *session) close() error {
	err := s.e.close()
	if s.ctl != nil {
		err = errors.Join(err, s.ctl.close())
	}
	return err
}

// open finds the peer, agrees with it, and makes what the test needs.
func (s *session) open(ctx context.Context) error {
	o := s.o
	w, err := o.connectControl(ctx)
	if err != nil {
		return err
	}
	s.ctl = &control{wire: w, client: o.client(), withGID: o.withGID, binary: o.CommCM}
	s.e.ctl = s.ctl
	if err := s.ctl.agree(ctx, o); err != nil {
		return err
	}
	if err := o.fitDatagram(); err != nil {
		return err
	}
	if err := s.e.prepareObjects(); err != nil {
		return err
	}
	if o.RDMACM {
		err = s.e.connectByCM(ctx)
	} else {
		err = s.e.createQPs()
	}
	if err != nil {
		return err
	}
	o.info()
	return s.e.handshake(ctx)
}

// meet makes the connection on which the two ends agree.
func (o *Options) connectControl(ctx context.Context) (wire, error) {
	switch {
	case o.CommCM && o.client():
		return dialCM(ctx, o)
	case o.CommCM:
		return acceptCM(ctx, o)
	case o.client():
		return dialTCP(ctx, o)
	}
	return acceptTCP(ctx, o)
}

// handshake exchanges the keys of all QPs, connects these, and lets both ends
// know that this is done. The tests differ in how often they wait for each
// other.
func (e *endpoint) handshake(ctx context.Context) error {
	o := e.o
	early := !o.Bandwidth && o.remote() // these tests begin with a meeting
	late := o.Verb != Send              // and these end with one
	first := e.qps[0].own
	if early {
		if err := e.ctl.syncSoon(ctx, first); err != nil {
			return err
		}
	}
	if err := e.swapAll(ctx); err != nil {
		return err
	}
	if !o.RDMACM {
		if err := e.sameFamily(); err != nil {
			return err
		}
		if err := e.connect(); err != nil {
			return err
		}
	}
	if !late {
		if err := e.ctl.syncSoon(ctx, first); err != nil {
			return err
		}
	}
	for _, q := range e.qps {
		o.address("local", q.own)
	}
	if err := e.swapAll(ctx); err != nil {
		return err
	}
	for _, q := range e.qps {
		o.address("remote", q.peer)
	}
	if late {
		return e.ctl.syncSoon(ctx, first)
	}
	return nil
}

// swapAll exchanges the keys of all QPs.
func (e *endpoint) swapAll(ctx context.Context) error {
	return withPatience(ctx, func(ctx context.Context) (err error) {
		for i, q := range e.qps {
			if q.peer, err = e.ctl.swap(ctx, q.own); err != nil {
				return err
			}
			if q.peer.qpn == 0 && !e.o.RDMACM {
				return atPeer("-R", "the peer connects its queue pairs by rdma_cm: give -R to both ends, or to none")
			}
			if i > 0 && q.peer.qpn == e.qps[0].peer.qpn {
				return atPeer("-q", "the peer has fewer queue pairs than the %d here: give both ends the same -q", len(e.qps))
			}
		}
		e.ctl.peer = &e.qps[0].peer
		return nil
	})
}

// sameFamily sees to it that both GIDs stand for addresses of one family.
func (e *endpoint) sameFamily() error {
	own, peer := e.qps[0].own.gid.Addr(), e.qps[0].peer.gid.Addr()
	if e.o.withGID && own.Unmap().Is4() != peer.Unmap().Is4() {
		return atPeer("-x", "the GID here is %v and the peer's is %v: choose two of the same address family with -x, or give --ipv6 to both ends or to none", own, peer)
	}
	return nil
}

// fitDatagram is for a peer with a smaller MTU.
func (o *Options) fitDatagram() error {
	if o.Type != uverbs.UD || o.Size <= o.mtu.Bytes() {
		return nil
	}
	if o.given['s'] {
		return here("-s", "%d bytes are more than the peer's MTU, %d, which limits a datagram", o.Size, o.mtu.Bytes())
	}
	o.Size = o.mtu.Bytes()
	return nil
}

// sizes are those that the test goes through.
func (o *Options) sizes() (all []int) {
	if !o.All {
		return []int{o.Size}
	}
	for size := 2; size <= o.Size; size *= 2 {
		all = append(all, size)
	}
	return all
}
