package rdma_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/rdma"
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
		"Datagram": func(p *pair) {
			g := must(rdma.JoinGroup(t.Context(), "239.1.2.3", nil))(t)
			var other *rdma.Group
			p.onServer(func() { other = must(rdma.JoinGroup(t.Context(), "239.1.2.3", nil))(t) })
			check(t, other.Send(t.Context(), []byte("x")))
			d := must(g.Recv(t.Context()))(t)
			d.Release()
			d.Release()
			if d.Bytes() != nil {
				t.Error("a datagram has bytes after Release")
			}
			check(t, g.Close())
			check(t, other.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{TB: t}
			p := connect(r, nil, nil)
			p.onClient(func() { use(p) })
			if name == "Datagram" {
				name = "Release of a datagram that was released before,"
			} else {
				name += " of a buffer that was released or sent before"
			}
			found := slices.ContainsFunc(r.errors, func(text string) bool {
				return strings.Contains(text, "buffer-use: "+name) &&
					strings.Contains(text, "bufferuse_test.go:")
			})
			if !found || len(r.errors) != 1 {
				t.Errorf("reported: %q", r.errors)
			}
		})
	}
}
