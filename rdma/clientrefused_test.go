package rdma_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// TestClientSetupRefused checks what a client does if a call of Setup returns an error of the server: it connects again
// if the server is shutting down, and not otherwise, also if the code is that of a context.
func TestClientSetupRefused(t *testing.T) {
	for code, want := range map[rdma.Code]int32{rdma.CodeUnavailable: 2, rdma.CodeCanceled: 1,
		rdma.CodeDeadlineExceeded: 1, 105: 1} {
		p := machines(t)
		ctx := limit(t)
		l := p.listen(t, nil)
		var calls atomic.Int32
		served := background(func() error {
			return l.Serve(ctx, rdma.Handle(func(context.Context, *rdma.Request) ([]byte, error) {
				if calls.Add(1) == 1 {
					return nil, &rdma.CallError{Code: code, Text: "not now"}
				}
				return nil, nil
			}, nil))
		})
		p.onClient(func() {
			cl := rdma.NewClient(p.addr(l), &rdma.ClientOptions[struct{}]{MinBackoff: time.Millisecond,
				Setup: func(ctx context.Context, c *rdma.Conn) (s struct{}, err error) { return s, echoed(ctx, c, "") }})
			err := cl.Retry(ctx, func(context.Context, *rdma.Conn, struct{}) error { return nil })
			if code == rdma.CodeUnavailable {
				check(t, err)
			} else {
				isCallError(t, err, code, "not now")
			}
			check(t, cl.Close())
		})
		check(t, l.Close())
		check(t, within(t, served, "Serve"))
		if n := calls.Load(); n != want {
			t.Errorf("code %d: %d calls, want %d", code, n, want)
		}
	}
}
