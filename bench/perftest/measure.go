package perftest

import (
	"context"
	"errors"
	"runtime"
	"time"
)

// measure runs the test and disconnects.
func (e *endpoint) measure(ctx context.Context) error {
	o := e.o
	idle := !o.active() && !o.Bidirectional
	switch {
	case idle && o.Bandwidth && !o.receives():
		return e.serveClient(ctx)
	case idle && o.fetches():
		if err := e.ctl.sync(ctx, e.first()); err != nil {
			return err
		}
		o.rule()
		return e.disconnect(ctx)
	}
	o.header()
	var err error
	if o.Bandwidth {
		err = e.measureBandwidth(ctx)
	} else {
		err = e.measureLatency(ctx)
	}
	o.rule()
	if err != nil {
		return err
	}
	return e.disconnect(ctx)
}

// serveClient is the server's part in a one-sided bandwidth test: it waits for the
// client to finish, and prints the client's results.
func (e *endpoint) serveClient(ctx context.Context) error {
	o := e.o
	o.header()
	if err := e.ctl.sync(ctx, e.first()); err != nil {
		return err
	}
	peer, err := e.reports(ctx, bwReport{})
	if err != nil {
		return err
	}
	o.printBandwidth(peer)
	if err := e.syncSoon(ctx); err != nil {
		return err
	}
	o.rule()
	return e.disconnect(ctx)
}

// reports exchanges results after a run.
func (e *endpoint) reports(ctx context.Context, own bwReport) (peer bwReport, err error) {
	ctx, cancel := e.afterRun(ctx)
	defer cancel()
	return e.ctl.reports(ctx, own)
}

// afterRun returns ctx with a timeout for messages after a run, for which the peer may have
// needed longer than this end.
func (e *endpoint) afterRun(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, patience+e.lastRun, errSilentPeer)
}

// held returns the number of requests in the send queues. On rxe it decreases with each
// request that is done, signaled or not.
func (e *endpoint) held() (n int) {
	for _, q := range e.qps {
		n += q.qp.SendsOutstanding()
	}
	return n
}

// watched runs f with a watchdog.
func (e *endpoint) watched(ctx context.Context, f func() error) error {
	total := e.o.Iters * e.o.QPs
	if e.o.receives() && e.o.Bidirectional {
		total *= 2
	}
	if e.o.Duration > 0 {
		total = 0
	}
	e.watchdog = newWatchdog(ctx, e.ctl.wire, e.o, e.size, total, e.held)
	begun := time.Now()
	defer func() {
		e.watchdog.stop()
		e.o.busy, e.lastRun = e.watchdog.busy(), time.Since(begun)
	}()
	if !e.o.Events { // the goroutine never waits
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	if err := f(); !errors.Is(err, errTime) {
		return err
	}
	return nil
}

// syncAfterRun synchronizes with the peer after a run.
func (e *endpoint) syncAfterRun(ctx context.Context) error {
	ctx, cancel := e.afterRun(ctx)
	defer cancel()
	return e.ctl.sync(ctx, e.first())
}

// measureLatency measures the latency of each size.
func (e *endpoint) measureLatency(ctx context.Context) error {
	o := e.o
	for _, size := range o.sizes() {
		e.prepare(size)
		if o.receives() {
			if err := e.fill(); err != nil {
				return err
			}
			if err := e.syncSoon(ctx); err != nil {
				return err
			}
		}
		var r latencyResult
		err := e.watched(ctx, func() (err error) {
			r, err = e.runLatency()
			return err
		})
		if err == nil || figuresValid(err) {
			o.printLatency(r.figures(o, size))
		}
		if err != nil {
			return err
		}
	}
	if o.Verb == Write || o.Verb == WriteImm {
		return e.awaitClientEnd(ctx)
	}
	return e.syncAfterRun(ctx)
}

// awaitClientEnd ends a test that has no final sync. The client has sent the last
// message, and the server must keep its QP until the client has the acknowledgement,
// that is until it closes the control connection.
func (e *endpoint) awaitClientEnd(ctx context.Context) error {
	if e.o.client() {
		return nil
	}
	limit := 2 * time.Second
	if e.o.RDMACM { // there the client waits for the server
		limit = 100 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := e.ctl.receive(ctx, make([]byte, 1)); err == nil {
		return atPeer("", "the peer continues after the end of %v: it runs another test", e.o.Test)
	}
	return nil
}

// measureBandwidth measures the bandwidth of each size.
func (e *endpoint) measureBandwidth(ctx context.Context) error {
	o := e.o
	var own, best bwReport
	for _, size := range o.sizes() {
		var total bwReport
		var err error
		if own, total, err = e.bandwidthOf(ctx, size); err != nil {
			return err
		}
		best.avg, best.rate = max(best.avg, total.avg), max(best.rate, total.rate) // one size has to reach a limit
	}
	if !o.receives() && !o.Bidirectional {
		if err := e.syncAfterRun(ctx); err != nil {
			return err
		}
		if _, err := e.reports(ctx, own); err != nil {
			return err
		}
	}
	if err := e.syncAfterRun(ctx); err != nil {
		return err
	}
	return o.checkLimits(best)
}

// bandwidthOf measures one size. It returns the results of this end, and the sum of
// both ends.
func (e *endpoint) bandwidthOf(ctx context.Context, size int) (own, total bwReport, err error) {
	o := e.o
	e.prepare(size)
	if o.postsReceives() {
		if err := e.fill(); err != nil {
			return own, total, err
		}
	}
	if o.WarmUp {
		if err := e.warmUp(ctx); err != nil {
			return own, total, err
		}
	}
	meets := o.receives() || o.Bidirectional && !o.Infinite
	if meets {
		if err := e.syncSoon(ctx); err != nil {
			return own, total, err
		}
	}
	err = e.watched(ctx, func() error {
		b, err := e.runBandwidth()
		own = b.report()
		return err
	})
	if err != nil && o.Infinite && own.iters == 0 { // everything has been reported
		return own, own, err
	}
	if err != nil {
		if figuresValid(err) {
			o.printBandwidth(own)
		}
		return own, own, err
	}
	if meets && o.All && o.Verb != Send {
		if err := e.syncAfterRun(ctx); err != nil {
			return own, total, err
		}
	}
	if total, err = e.total(ctx, own); err != nil {
		return own, total, err
	}
	if o.All && o.Verb == Send {
		err = e.syncAfterRun(ctx)
	}
	return own, total, err
}

// total prints the results of a size, including those of the peer in a bidirectional
// test.
func (e *endpoint) total(ctx context.Context, own bwReport) (bwReport, error) {
	o := e.o
	if !o.Bidirectional || o.receives() && o.Duration > 0 {
		o.printBandwidth(own)
		return own, nil
	}
	peer, err := e.reports(ctx, own)
	switch {
	case err != nil:
		return own, err
	case peer.size != own.size:
		return own, atPeer("-s", "the peer's messages have %d bytes, and here -s is %d: give both ends the same",
			peer.size, own.size)
	case peer.iters != own.iters && o.Duration == 0:
		return own, atPeer("-n", "the peer has done %d messages, and this end %d: give both ends the same -n",
			peer.iters, own.iters)
	}
	sum := own.plus(peer)
	o.printBandwidth(sum)
	if !o.ReportBoth || o.All {
		return sum, nil
	}
	for _, r := range []struct {
		title string
		bwReport
	}{{"Local", own}, {"Remote", peer}} {
		if o.fullReport() {
			o.printf("%s\n %s results: \n", separator, r.title)
		}
		o.header()
		o.printBandwidth(r.bwReport)
	}
	return sum, nil
}
