package vm

import (
	"sync"

	"github.com/goverbs/goverbs/testbed/vm/internal/wire"
)

// An outputQueue queues a command's output between the goroutine that reads
// from the guest, which must not block, and a writer that may block.
type outputQueue struct {
	mu     sync.Mutex
	frames []wire.Frame
	ended  bool
	more   chan struct{} // has an element when something was added
}

func (q *outputQueue) init() { q.more = make(chan struct{}, 1) }

func (q *outputQueue) add(f wire.Frame) {
	q.mu.Lock()
	q.frames = append(q.frames, f)
	q.mu.Unlock()
	q.wake()
}

func (q *outputQueue) end() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.wake()
}

func (q *outputQueue) wake() {
	select {
	case q.more <- struct{}{}:
	default: // the reader will check anyway
	}
}

// complete reports whether the end was received.
func (q *outputQueue) complete() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.ended
}

// next returns the next frame, or false at the end and when the guest has
// failed.
func (q *outputQueue) next(dead <-chan struct{}) (wire.Frame, bool) {
	for {
		q.mu.Lock()
		if len(q.frames) > 0 {
			f := q.frames[0]
			q.frames = q.frames[1:]
			q.mu.Unlock()
			return f, true
		}
		ended := q.ended
		q.mu.Unlock()
		if ended {
			return wire.Frame{}, false
		}
		select {
		case <-q.more:
		case <-dead:
			if !q.pending() {
				return wire.Frame{}, false
			}
		}
	}
}

func (q *outputQueue) pending() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.frames) > 0 || q.ended
}
