package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// TestHandleStress makes calls of all lengths in both directions, whose handlers reply, fail, panic and wait, and whose
// callers have deadlines, cancel and go on. Each call has its own reply or error, and the connection goes on.
func TestHandleStress(t *testing.T) {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	o := &rdma.Options{Depth: 8, EagerSize: 1024, Logger: quiet}
	p := connect(t, o, o)
	handle := func(ctx context.Context, r *rdma.Request) ([]byte, error) {
		if want := fmt.Sprint(r.Len()); r.Metadata()["length"] != want {
			return nil, fmt.Errorf("%s bytes, and metadata for %s", want, r.Metadata())
		}
		switch r.Bytes()[0] {
		case 'e':
			return nil, &rdma.CallError{Code: 100, Text: fmt.Sprint(r.Len())}
		case 'p':
			panic("on demand")
		case 'w':
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return r.Bytes(), nil
	}
	var served, callers sync.WaitGroup
	for _, c := range []*rdma.Conn{p.client, p.server} {
		served.Go(func() {
			if err := c.Handle(t.Context(), handle, &rdma.HandleOptions{MaxHandlers: 5}); err != nil &&
				!errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		})
		for i := range 6 {
			callers.Go(func() {
				random := rand.New(rand.NewPCG(uint64(i), 0))
				for range 60 {
					stressHandle(t, c, random)
				}
			})
		}
	}
	callers.Wait()
	for _, c := range []*rdma.Conn{p.client, p.server} {
		m := must(c.Call(rdma.WithMetadata(limit(t), "length", "4"), []byte("last")))(t)
		m.Release()
	}
	closed := background(p.client.Close)
	served.Wait()
	check(t, within(t, closed, "Close"))
}

// stressHandle makes a call, and checks its reply or error.
func stressHandle(t *testing.T, c *rdma.Conn, random *rand.Rand) {
	what := "repw"[random.IntN(4)]
	request := bytes.Repeat([]byte{what}, 1+random.IntN([]int{100, 1024, 20000}[random.IntN(3)]))
	length := fmt.Sprint(len(request))
	ctx, cancel := rdma.WithMetadata(limit(t), "length", length), func() {}
	if what == 'w' {
		d := time.Duration(random.IntN(2000)) * time.Microsecond
		if random.IntN(2) == 0 {
			ctx, cancel = context.WithTimeout(ctx, d)
		} else {
			ctx, cancel = context.WithCancel(ctx)
			defer time.AfterFunc(d, cancel).Stop()
		}
	}
	defer cancel()
	m, err := c.Call(ctx, request)
	switch {
	case what == 'r' && err == nil:
		if !bytes.Equal(m.Copy(), request) {
			t.Errorf("another reply to %s bytes", length)
		}
	case what == 'e':
		isCallError(t, err, 100, length)
	case what == 'p':
		isCallError(t, err, rdma.CodeInternal, "the handler has panicked")
	case what == 'w' && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
	default:
		t.Errorf("%c of %s bytes returns %v", what, length, err)
	}
}
