package uverbs

import "sync"

// A queueLock serialises calls of a queue's provider, unless the queue belongs to
// one goroutine.
type queueLock struct {
	single bool
	calls  sync.Mutex
}

func (l *queueLock) lock() {
	if !l.single {
		l.calls.Lock()
	}
}

func (l *queueLock) unlock() {
	if !l.single {
		l.calls.Unlock()
	}
}
