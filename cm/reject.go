package cm

import (
	"context"
	"errors"
	"sync"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"golang.org/x/sys/unix"
)

const (
	// maxRejects is how many requests wait to be rejected. While the kernel is slow
	// to reject them, no events are read. It then counts the unread requests against
	// the backlog of their listener and drops those that exceed it. Peers can
	// therefore not make the process or the kernel keep more requests.
	maxRejects = 64
	// maxRejecters is how many requests are rejected at a time.
	maxRejecters = 4
)

// rejectQueue is a queue of requests to be rejected. Its goroutines run only while
// it is not empty, so that the reader of events does not wait for the kernel.
type rejectQueue struct {
	mu      sync.Mutex
	changed chan struct{} // closed when a request is removed or a goroutine ends. It is nil if nothing waits
	queue   []rejectedRequest
	running int   // number of goroutines
	err     error // of the first id that was not destroyed: Close of the node returns it
}

// A rejectedRequest is a request to be rejected.
type rejectedRequest struct {
	id     uint32 // the kernel's number of its id
	reason []byte // for the client: see refusalOf
}

// reject rejects a request. It waits until the kernel has done so.
func (q *rejectQueue) reject(file *rdmacm.File, request rejectedRequest) {
	if request.reason != nil {
		// If it fails, the client has withdrawn the request, or receives no reason.
		_ = file.Reject(request.id, rdmacm.RejectConsumer, request.reason)
	}
	if _, err := file.DestroyID(request.id); err != nil && !errors.Is(err, unix.ENOENT) { // ENOENT: it no longer exists
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.err == nil {
			q.err = err
		}
	}
}

func (q *rejectQueue) add(file *rdmacm.File, request rejectedRequest) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.queue = append(q.queue, request)
	if q.running < maxRejecters {
		q.running++
		go q.run(file)
	}
}

func (q *rejectQueue) run(file *rdmacm.File) {
	for request, ok := q.next(); ok; request, ok = q.next() {
		q.reject(file, request)
	}
}

// next removes and returns a request. If there is none, it returns false, and its
// goroutine must end.
func (q *rejectQueue) next() (request rejectedRequest, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
	if len(q.queue) == 0 {
		q.running--
		return rejectedRequest{}, false
	}
	request = q.queue[0]
	q.queue = q.queue[1:]
	return request, true
}

// waitRoom waits until fewer than maxRejects requests are queued. Readers call it before
// they read an event. It returns false if ctx ends or done is closed before.
func (q *rejectQueue) waitRoom(ctx context.Context, done <-chan struct{}) bool {
	return q.waitUntil(ctx, done, func() bool { return len(q.queue) < maxRejects })
}

// wait waits until all requests have been rejected. It returns why an id was not destroyed: it is with the file.
func (q *rejectQueue) wait() error {
	q.waitUntil(context.Background(), nil, func() bool { return q.running == 0 })
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

func (q *rejectQueue) waitUntil(ctx context.Context, done <-chan struct{}, holds func() bool) bool {
	for {
		q.mu.Lock()
		if holds() {
			q.mu.Unlock()
			return true
		}
		if q.changed == nil {
			q.changed = make(chan struct{})
		}
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		case <-done:
			return false
		}
	}
}
