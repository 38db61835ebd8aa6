package mistakes

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// A recorder is a test that keeps what is reported. end runs its cleanup.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	errors   []string
	logs     []string
	failed   bool
	cleanups []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors, r.failed = append(r.errors, fmt.Sprintf(format, args...)), true
}

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) end() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}
