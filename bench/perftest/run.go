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

// Run runs one end of a test and prints its report to out. It returns [ErrInterrupted]
// when ctx ends, and [uverbs.ErrDeviceGone] when the device is gone; in both cases it
// first prints the results so far. Other errors are an [Error] for options of the two
// ends, and errors of packages uverbs and cm.
func Run(ctx context.Context, o *Options, out io.Writer) error {
	return run(ctx, o, out, findDevice)
}

// run implements Run with find as the function that opens the device.
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
	e := &endpoint{o: &p, dev: dev}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := p.openCounters("/sys/class/infiniband"); err != nil {
		return err
	}
	monitor, monitored := newDeviceMonitor(ctx, &p, dev)
	defer monitor.stop()
	if err = e.open(monitored); err == nil {
		err = e.measure(monitored)
	}
	if err == nil {
		err = e.waitDestroy(monitored)
	}
	switch {
	case err == nil || ctx.Err() == nil:
		return monitor.cause(err)
	case e.watchdog == nil:
		return fmt.Errorf("%w: nothing has been measured at this end", ErrInterrupted)
	}
	return fmt.Errorf("%w; these are the results so far", ErrInterrupted)
}

// waitDestroy waits before the objects are closed (--wait_destroy).
func (e *endpoint) waitDestroy(ctx context.Context) error {
	if e.o.WaitDestroy == 0 {
		return nil
	}
	e.o.printf(" Waiting %d seconds before releasing resources...\n", e.o.WaitDestroy)
	select {
	case <-time.After(time.Duration(e.o.WaitDestroy) * time.Second):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// open connects to the peer, exchanges parameters, and creates and connects the QPs.
func (e *endpoint) open(ctx context.Context) error {
	o := e.o
	w, err := o.connectControl(ctx)
	if err != nil {
		return err
	}
	e.ctl = &control{wire: w, client: o.client(), withGID: o.withGID, binary: o.CommCM}
	if err := e.ctl.agree(ctx, o); err != nil {
		return err
	}
	if err := o.fitDatagram(); err != nil {
		return err
	}
	if err := e.prepareObjects(); err != nil {
		return err
	}
	if o.RDMACM {
		err = e.connectByCM(ctx)
	} else {
		err = e.createQPs()
	}
	if err == nil {
		err = e.attach()
	}
	if err != nil {
		return err
	}
	o.info()
	return e.handshake(ctx)
}

// connectControl establishes the control connection.
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

// handshake exchanges the keys of all QPs, connects the QPs, and synchronizes with the
// peer. The order depends on the test.
func (e *endpoint) handshake(ctx context.Context) error {
	o := e.o
	for _, step := range []struct {
		when bool
		do   func(context.Context) error
	}{
		{!o.Bandwidth && o.remote(), e.syncSoon},
		{true, e.swapAll},
		{!o.RDMACM, e.connect},
		{o.Verb == Send, e.syncSoon},
		{true, e.announce},
		{o.Verb != Send, e.syncSoon},
	} {
		if !step.when {
			continue
		}
		if err := step.do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// syncSoon synchronizes the two ends, with the timeout patience.
func (e *endpoint) syncSoon(ctx context.Context) error { return e.ctl.syncSoon(ctx, e.first()) }

// announce exchanges the keys again, with the numbers of DCTs, and prints them.
func (e *endpoint) announce(ctx context.Context) error {
	for _, q := range e.qps {
		if q.dct != nil {
			q.own.qpn = q.dct.QPN()
		}
	}
	for _, s := range e.swaps() {
		e.o.address("local", *s.own)
	}
	if err := e.swapAll(ctx); err != nil {
		return err
	}
	for _, s := range e.swaps() {
		if e.o.dc() && s.peer.qpn == 0 {
			return atPeer("-c", "the peer has a queue pair without a number: give -c DC to both ends")
		}
		e.o.address("remote", *s.peer)
	}
	for _, q := range e.qps {
		if e.o.dc() {
			q.qpn = q.peer.qpn
		}
	}
	return nil
}

// swapAll exchanges the keys of all QPs.
func (e *endpoint) swapAll(ctx context.Context) error {
	return withPatience(ctx, func(ctx context.Context) (err error) {
		all := e.swaps()
		for i, s := range all {
			if *s.peer, err = e.ctl.swap(ctx, *s.own); err != nil {
				return err
			}
			if s.peer.qpn == 0 && !e.o.RDMACM && !e.o.dc() { // a DCT has no number at first
				return atPeer("-R", "the peer connects its queue pairs by rdma_cm: give -R to both ends, or to none")
			}
			if i > 0 && s.peer.qpn != 0 && s.peer.qpn == all[0].peer.qpn {
				return atPeer("-q", "the peer has fewer queue pairs than the %d here: give both ends the same -q", len(e.qps))
			}
		}
		e.ctl.peer = all[0].peer
		return e.o.checkGroup(*e.ctl.peer)
	})
}

// sameFamily checks that the GIDs of both ends are addresses of the same family.
func (e *endpoint) sameFamily() error {
	own, peer := e.qps[0].own.gid, e.qps[0].peer.gid
	if e.o.withGID && isIPv4(own) != isIPv4(peer) {
		return atPeer("-x", "the GID here is %v and the peer's is %v: choose two of the same address family with -x, or "+
			"give --ipv6 to both ends or to none", own.Addr(), peer.Addr())
	}
	return nil
}

// fitDatagram reduces the size of datagrams to the MTU that both ends have agreed on.
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

// sizes returns the message sizes to measure.
func (o *Options) sizes() (all []int) {
	if !o.All {
		return []int{o.Size}
	}
	for size := 2; size <= o.Size; size *= 2 {
		all = append(all, size)
	}
	return all
}
