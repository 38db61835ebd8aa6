package main

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// start starts a server on another machine than the client's. The result runs f on the client's.
func start(t *testing.T) (ctx context.Context, addr string, here *verbstest.Machine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	net := verbstest.NewNetwork(t)
	here, there := net.Machine(), net.Machine()
	addr = there.AddrPort(7471).String()
	served := make(chan error, 1)
	there.Run(func() { go func() { served <- serve(ctx, addr) }() })
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	here.Run(func() {
		for ctx.Err() == nil {
			if c, err := rdma.Dial(ctx, addr, nil); err == nil { // the server listens
				if err := c.Close(); err != nil {
					t.Error(err)
				}
				return
			}
		}
		t.Fatal("the server does not listen")
	})
	return ctx, addr, here
}

// TestExclusion has many holders of two locks.
func TestExclusion(t *testing.T) {
	ctx, addr, here := start(t)
	var inside [2]atomic.Int32
	var last [2]atomic.Uint64
	names := [2]string{"a", "b"}
	const workers = 8
	ended := make(chan error, workers)
	here.Run(func() {
		for w := range workers {
			go func() {
				var err error
				for range 5 {
					err = errors.Join(err, hold(ctx, addr, names[w%2], func(_ context.Context, token uint64) error {
						defer inside[w%2].Add(-1)
						if inside[w%2].Add(1) != 1 {
							return errors.New("two hold the lock")
						}
						if before := last[w%2].Swap(token); before >= token {
							return errors.New("the token does not grow")
						}
						return nil
					}))
				}
				ended <- err
			}()
		}
	})
	for range workers {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestLost has a holder whose machine fails: another process gets the lock, and the context of a holder whose server
// fails ends.
func TestLost(t *testing.T) {
	ctx, addr, here := start(t)
	here.Run(func() {
		first := make(chan *rdma.Conn, 1)
		c, err := rdma.Dial(ctx, addr, &small)
		if err != nil {
			t.Fatal(err)
		}
		m, err := c.Call(ctx, []byte("name"))
		if err != nil {
			t.Fatal(err)
		}
		m.Release()
		if _, err := c.Call(ctx, []byte("name")); !isRefused(err) {
			t.Errorf("a second lock of a connection: %v", err)
		}
		first <- c
		second := make(chan error, 1)
		go func() {
			second <- hold(ctx, addr, "name", func(ctx context.Context, _ uint64) error {
				if len(first) > 0 {
					return errors.New("two hold the lock")
				}
				return nil
			})
		}()
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		defer cancel()
		if err := hold(short, addr, "name", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a wait for the lock with a deadline: %v", err)
		}
		<-first
		if err := c.CloseWithError(1, "the holder fails"); err != nil {
			t.Error(err)
		}
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
}

// TestServerFails removes the device of a holder, which loses the lock.
func TestServerFails(t *testing.T) {
	ctx, addr, here := start(t)
	here.Run(func() {
		err := hold(ctx, addr, "name", func(ctx context.Context, _ uint64) error {
			here.RemoveDevice()
			<-ctx.Done()
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "the lock is lost") || !errors.Is(err, uverbs.ErrDeviceGone) {
			t.Errorf("the error is %v", err)
		}
	})
}

func isRefused(err error) bool {
	var e *rdma.CallError
	return errors.As(err, &e) && e.Code == rdma.CodeInvalidArgument
}

// TestCommand runs a command that prints its token.
func TestCommand(t *testing.T) {
	ctx, addr, here := start(t)
	here.Run(func() {
		var out strings.Builder
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("LOCK_TEST_CHILD", "1")
		if err := run(ctx, []string{"run", addr, "name", self}, &out); err != nil || out.String() != "1\n" {
			t.Errorf("the command prints %q: %v", out.String(), err)
		}
		if err := run(ctx, []string{"run", addr, "name", "/none"}, io.Discard); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a command that does not exist: %v", err)
		}
	})
	if err := run(ctx, []string{"run", addr}, io.Discard); err == nil {
		t.Error("a command line without a command is accepted")
	}
}

func TestMain(m *testing.M) {
	if os.Getenv("LOCK_TEST_CHILD") != "" {
		os.Stdout.WriteString(os.Getenv("LOCK_TOKEN") + "\n")
		return
	}
	os.Exit(m.Run())
}
