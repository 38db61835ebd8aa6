package perftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"sync/atomic"
	"time"
)

// A watchdog supervises a run, whose goroutine is busy. It reports that the duration
// has elapsed, that the peer has disconnected or that there is no progress, and prints
// the progress. The run calls check when alarm is set; testing alarm costs one load.
type watchdog struct {
	alarm atomic.Bool
	phase atomic.Int32 // of a run of a given duration
	begin atomic.Int64 // of the measured time
	end   atomic.Int64

	ctx      context.Context // wakes a run that sleeps
	cancel   context.CancelCauseFunc
	parent   context.Context
	wire     wire
	progress io.Writer
	total    int // messages; 0 if the run does not end after a number of messages
	sleeps   bool
	lossy    bool         // UC, UD
	group    netip.Addr   // from which this end receives; not valid if it does not
	done     atomic.Int64 // messages done by a run that sleeps
	stopped  chan struct{}
	gap      time.Duration // how long a correct run may show no progress; added to the timeouts
	held     func() int    // number of requests in the send queues; nil if only the run may query it

	cpuBegin, cpuEnd cpuTimes // of the measured time

	sampled    int // messages of the measured time
	lastDone   int // messages done at the last call of moved
	lastHeld   int // requests in the send queues then
	lastMove   time.Time
	lastReport time.Time
}

// The phases of a run of a given duration. Only messages in sampling are measured.
const (
	untimed int32 = iota // a run without a given duration
	warming
	sampling
	cooling
	finished
)

const (
	tick             = 250 * time.Millisecond
	stallTimeout     = 20 * time.Second
	mismatchDelay    = 2 * time.Second
	progressInterval = 2 * time.Second
	minBandwidth     = 10e6 // bytes per second of a slow network, see span
	maxSpan          = 10 * time.Minute
)

var errTime = errors.New("the time is up") // ends a run, and is not returned to the caller

// started is the origin of the times of a run.
var started = time.Now()

func now() int64 { return int64(time.Since(started)) }

// newWatchdog starts a watchdog for a run of messages of a size. held, which may be
// nil, returns the number of requests in the send queues.
func newWatchdog(ctx context.Context, w wire, o *Options, size, total int, held func() int) *watchdog {
	v := &watchdog{parent: ctx, wire: w, progress: o.progress(), total: total, sleeps: o.Events,
		lossy:   !o.reliable(),
		stopped: make(chan struct{}), lastMove: time.Now(), lastReport: time.Now(),
		gap: time.Duration(o.LatencyGap)*time.Microsecond + o.burstGap(size) + o.span(size), held: held}
	if o.receivesGroup(o.client()) {
		v.group = o.group().Addr()
	}
	if o.Events && o.NoLock { // the queues are SingleGoroutine
		v.held = nil
	}
	v.ctx, v.cancel = context.WithCancelCause(ctx)
	if o.timed() {
		v.phase.Store(warming)
	}
	go v.run()
	return v
}

// waited returns the error of a wait with the watchdog's context: the cause of the
// context, if the context ended the wait.
func (v *watchdog) waited(err error) error {
	switch {
	case err != nil && v.parent.Err() != nil:
		return ended(v.parent)
	case err != nil && v.ctx.Err() != nil:
		return context.Cause(v.ctx)
	}
	return err
}

func (v *watchdog) run() {
	defer close(v.stopped)
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		select {
		case <-v.ctx.Done():
			v.alarm.Store(true)
			return
		case <-t.C:
			if !v.sleeps {
				v.alarm.Store(true)
			} else if err := v.checkProgress(int(v.done.Load())); err != nil {
				v.cancel(err)
			}
		}
	}
}

func (v *watchdog) stop() {
	v.cancel(nil)
	<-v.stopped
}

// startClock starts the phases of a run of a given duration.
func (v *watchdog) startClock(o *Options) {
	if v.phase.Load() != warming {
		return
	}
	margin := time.Duration(o.Margin) * time.Second
	after(margin, func() {
		v.cpuBegin = v.cpu(o)
		v.begin.Store(now())
		v.phase.Store(sampling)
		after(time.Duration(o.Duration)*time.Second-2*margin, func() {
			v.cpuEnd = v.cpu(o)
			v.end.Store(now())
			v.phase.Store(cooling)
			after(margin, func() {
				v.phase.Store(finished)
				v.alarm.Store(true)
			})
		})
	})
}

func after(d time.Duration, f func()) {
	if d == 0 {
		f()
		return
	}
	time.AfterFunc(d, f)
}

// sample counts messages that are done in the measured time.
func (v *watchdog) sample(n int) {
	if v.phase.Load() == sampling {
		v.sampled += n
	}
}

// check is called by a run after an alarm, with the number of messages that are done.
// If it returns an error, the run ends.
func (v *watchdog) check(done int) error {
	if v.phase.Load() == finished {
		return errTime
	}
	v.alarm.Store(false)
	return v.checkProgress(done)
}

// span returns how long a slow network may take for the messages that one completion
// covers. Meanwhile only rxe's queues show progress, since other devices free their
// entries with the completion.
func (o *Options) span(size int) time.Duration {
	messages := 1
	if o.Bandwidth {
		messages = min(o.CQMod, o.Iters) * o.QPs
	}
	if o.Bidirectional {
		messages *= 2
	}
	seconds := float64(messages) * float64(size) / minBandwidth
	return time.Duration(min(seconds, maxSpan.Seconds()) * float64(time.Second))
}

// moved reports whether there was progress since the last call: messages are done, or a
// queue holds another number of requests.
func (v *watchdog) moved(done int) bool {
	held := v.lastHeld
	if v.held != nil {
		held = v.held()
	}
	moved := done != v.lastDone || held != v.lastHeld
	v.lastDone, v.lastHeld = done, held
	return moved
}

func (v *watchdog) checkProgress(done int) error {
	if v.parent.Err() != nil {
		return ended(v.parent)
	}
	pending, gone := v.wire.state()
	if gone != nil {
		return fmt.Errorf("during the run, after %d messages: %w", done, gone)
	}
	at := time.Now()
	if v.moved(done) {
		v.lastMove = at
	}
	v.reportProgress(at, done)
	idle := at.Sub(v.lastMove) - v.gap
	limit := (stallTimeout + v.gap).Round(time.Second)
	switch {
	case v.group.IsValid() && done == 0 && (pending > 0 && idle > mismatchDelay && v.total > 0 || idle > stallTimeout):
		return nothingFrom(v.group)
	case pending > 0 && idle > mismatchDelay && v.total > 0 && done == 0:
		return atPeer("", "the peer has finished, but no message has arrived here: it runs another test, or has other "+
			"options (-b, -D, --write_with_imm, --reversed)")
	case pending > 0 && idle > mismatchDelay && v.total > 0:
		return atPeer("-n", "the peer has finished, but this end has done %d of %d messages: give both ends the same -n, "+
			"and -b to both or to none", done, v.total)
	case idle > stallTimeout && done == 0:
		return atPeer("-c", "no message has arrived for %v: does the peer have another -c or -b, does it run another test, "+
			"or does the network lose all packets?", limit)
	case idle > stallTimeout && v.total == 0:
		return atPeer("", "no progress for %v after %d messages: does the peer have another -D, -b or -c, does it run "+
			"another test, or is the network down?", limit, done)
	case idle > stallTimeout && v.lossy:
		return atPeer("-n", "no progress for %v after %d of %d messages: some may be lost, which is possible without RC, "+
			"or the peer's -n is smaller", limit, done, v.total)
	case idle > stallTimeout:
		return atPeer("-n", "no progress for %v after %d of %d messages: is the peer's -n smaller, does it have another -b "+
			"or -c, does it run another test, or is the network down?", limit, done, v.total)
	}
	return nil
}

// reportProgress prints the progress of a long run.
func (v *watchdog) reportProgress(at time.Time, done int) {
	if v.progress == nil || at.Sub(v.lastReport) < progressInterval {
		return
	}
	v.lastReport = at
	if v.total > 0 {
		fmt.Fprintf(v.progress, " %d of %d messages\n", done, v.total)
		return
	}
	fmt.Fprintf(v.progress, " %d messages\n", done)
}
