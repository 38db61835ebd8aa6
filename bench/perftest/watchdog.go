package perftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// A watch looks after a run whose goroutine is busy: it reports when the time is
// up, when the peer has gone, when nothing moves any more, and how far the run is.
// The run asks it when alarm is set, which costs a load.
type watchdog struct {
	alarm atomic.Bool
	phase atomic.Int32 // of a run of a given time
	begin atomic.Int64 // when what counts of it began
	end   atomic.Int64

	ctx      context.Context // ends, for a run that sleeps, when it is to look
	cancel   context.CancelCauseFunc
	parent   context.Context
	wire     wire
	progress io.Writer
	total    int // 0 where a number of messages does not end the run
	sleeps   bool
	lossy    bool         // UC, UD
	done     atomic.Int64 // of a run that sleeps: how far it is
	stopped  chan struct{}
	gap      time.Duration // how long a run in which all is well may show no progress
	held     func() int    // how many requests the send queues hold; nil where only the run may ask

	cpuBegin, cpuEnd cpuTimes // of what counts

	lastDone   int // how far the run was when it was looked at
	lastHeld   int // what the send queues held then
	lastMove   time.Time
	lastReport time.Time
}

// The phases of a run of a given time: what comes in the margins does not
// count.
const (
	untimed int32 = iota // no given time
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
	minBandwidth     = 10e6 // bytes a second of the slowest network that is waited for
	maxSpan          = 10 * time.Minute
)

var errTime = errors.New("the time is up") // never leaves the package

// started is what the times of a run count from.
var started = time.Now()

func now() int64 { return int64(time.Since(started)) }

// newWatch watches a run of messages of a size. held, which may be nil, returns how
// many requests the send queues hold.
func newWatchdog(ctx context.Context, w wire, o *Options, size, total int, held func() int) *watchdog {
	v := &watchdog{parent: ctx, wire: w, progress: o.progress(), total: total, sleeps: o.Events, lossy: o.Type != uverbs.RC,
		stopped: make(chan struct{}), lastMove: time.Now(), lastReport: time.Now(),
		gap: time.Duration(o.LatencyGap)*time.Microsecond + o.span(size), held: held}
	if o.Events && o.NoLock { // the watch's goroutine would be a second user of the queues
		v.held = nil
	}
	v.ctx, v.cancel = context.WithCancelCause(ctx)
	if o.timed() {
		v.phase.Store(warming)
	}
	go v.run()
	return v
}

// waited returns the error of a wait in the watch's context: what ended the
// context, if that is what ended the wait.
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

// time starts the clock of a run of a given time.
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

// look is for a run that has seen the alarm, and has done so much. The error
// ends it.
func (v *watchdog) check(done int) error {
	if v.phase.Load() == finished {
		return errTime
	}
	v.alarm.Store(false)
	return v.checkProgress(done)
}

// span is how long a slow network may take for the messages that one completion
// stands for. Until then a device that gives requests back by completions, as all
// but rxe do, shows nothing of what it has sent.
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

// moved reports whether anything has happened since the last call: a message is
// done, or a queue holds another number of requests.
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
	case pending > 0 && idle > mismatchDelay && v.total > 0 && done == 0:
		return atPeer("", "the peer has finished, but no message has arrived here: it runs another test, or has other options (-b, -D, --write_with_imm, --reversed)")
	case pending > 0 && idle > mismatchDelay && v.total > 0:
		return atPeer("-n", "the peer has finished, but this end has done %d of %d messages: give both ends the same -n, and -b to both or to none", done, v.total)
	case idle > stallTimeout && done == 0:
		return atPeer("-c", "no message has arrived for %v: does the peer have another -c or -b, does it run another test, or does the network lose all packets?", limit)
	case idle > stallTimeout && v.total == 0:
		return atPeer("", "no progress for %v after %d messages: does the peer have another -D, -b or -c, does it run another test, or is the network down?", limit, done)
	case idle > stallTimeout && v.lossy:
		return atPeer("-n", "no progress for %v after %d of %d messages: some may be lost, which is possible without RC, or the peer's -n is smaller", limit, done, v.total)
	case idle > stallTimeout:
		return atPeer("-n", "no progress for %v after %d of %d messages: is the peer's -n smaller, does it have another -b or -c, does it run another test, or is the network down?", limit, done, v.total)
	}
	return nil
}

// tell reports how far a long run is.
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
