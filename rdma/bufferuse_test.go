package rdma_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A recorder is a test whose errors are recorded.
type recorder struct {
	testing.TB
	mu     sync.Mutex
	errors []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// TestBufferUse checks that a test reports a buffer that is used too late, with the line.
func TestBufferUse(t *testing.T) {
	if onKernel {
		t.Skip("only machines in memory report it")
	}
	for name, use := range map[string]func(p *pair){
		"Release": func(p *pair) {
			b := must(p.client.Alloc(10))(t)
			b.Release()
			b.Release()
		},
		"Bytes": func(p *pair) {
			b := must(p.client.Alloc(10))(t)
			check(t, p.client.SendBuffer(t.Context(), b))
			b.Bytes()
		},
		"SendBuffer": func(p *pair) {
			b := must(p.client.Alloc(10))(t)
			check(t, p.client.SendBuffer(t.Context(), b))
			if p.client.SendBuffer(t.Context(), b) == nil {
				t.Error("a buffer was sent twice")
			}
		},
		"WriteBuffer": func(p *pair) {
			_, s := p.share(t, 100, allRights)
			b := must(p.client.Alloc(10))(t)
			b.Release()
			if p.client.WriteBuffer(t.Context(), b, s.Token(), 0) == nil {
				t.Error("a buffer that was released was written")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{TB: t}
			p := connect(r, nil, nil)
			p.onClient(func() { use(p) })
			found := slices.ContainsFunc(r.errors, func(text string) bool {
				return strings.Contains(text, "buffer-use: "+name+" of a buffer that was released or sent before") &&
					strings.Contains(text, "bufferuse_test.go:")
			})
			if !found || len(r.errors) != 1 {
				t.Errorf("reported: %q", r.errors)
			}
		})
	}
}
