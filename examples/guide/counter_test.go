package guide

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

func TestCounter(t *testing.T) {
	net := verbstest.NewNetwork(t)
	server, client := net.Machine(), net.Machine()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	counter := rdma.NewRegion(8)
	served := make(chan error, 1)
	server.Run(func() {
		l, err := rdma.Listen(":7471", nil)
		if err != nil {
			t.Fatal(err)
		}
		go func() { served <- ShareCounter(ctx, l, counter) }()
	})
	const each = 20
	numbers := make(chan uint64, 2*each)
	client.Run(func() {
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if err := count(ctx, server.AddrPort(7471).String(), each, numbers); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	})
	close(numbers)
	seen := map[uint64]bool{}
	for n := range numbers {
		if seen[n] || n >= 2*each {
			t.Errorf("the number %d again, or too high", n)
		}
		seen[n] = true
	}
	if len(seen) != 2*each {
		t.Errorf("%d numbers", len(seen))
	}
	stop()
	if err := errors.Join(<-served, counter.Close()); err != nil {
		t.Error(err)
	}
}

// count sends n numbers of the counter at addr to numbers.
func count(ctx context.Context, addr string, n int, numbers chan<- uint64) (err error) {
	c, err := rdma.Dial(ctx, addr, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	counter, err := rdma.RecvToken(ctx, c)
	if err != nil {
		return err
	}
	for range n {
		number, err := NextNumber(ctx, c, counter)
		if err != nil {
			return err
		}
		numbers <- number
	}
	return nil
}

// TestNobody checks what the guide says of a server that does not run.
func TestNobody(t *testing.T) {
	net := verbstest.NewNetwork(t)
	server, client := net.Machine(), net.Machine()
	page, err := os.ReadFile("../../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	client.Run(func() {
		_, err := rdma.Dial(t.Context(), server.AddrPort(7471).String(), nil)
		if !errors.Is(err, cm.ErrRejected) || !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("nobody listens: %v", err)
		}
		if _, said, _ := strings.Cut(err.Error(), ": connect: "); !strings.Contains(string(page), said) {
			t.Errorf("the guide does not have the text %q", said)
		}
		_, err = rdma.Dial(t.Context(), "203.0.113.1:7471", nil)
		if !errors.Is(err, cm.ErrUnreachable) || !errors.Is(err, unix.ENETUNREACH) {
			t.Errorf("no route: %v", err)
		}
	})
}
