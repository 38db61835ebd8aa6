package rdma_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// The environment sets the scale of TestStress.
func stressNumber(name string, def int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return def
}

// TestStress has many goroutines on many connections that send, call, read and write at the same time, with contexts
// that end early. It checks contents and order, and that every call returns within its context.
func TestStress(t *testing.T) {
	t.Parallel()
	stress(t)
}

func stress(t *testing.T) {
	conns, workers := stressNumber("GOVERBS_RDMA_CONNS", 8), stressNumber("GOVERBS_RDMA_GOROUTINES", 8)
	d, err := time.ParseDuration(os.Getenv("GOVERBS_RDMA_STRESS"))
	if err != nil {
		d = 2 * time.Second
	}
	p := machines(t)
	ctx, cancel := context.WithTimeout(t.Context(), d+5*time.Minute)
	defer cancel()
	var servers sync.WaitGroup
	l := p.listen(t, nil)
	p.onServer(func() {
		servers.Go(func() {
			for {
				c, err := l.Accept(ctx)
				if err != nil {
					if !errors.Is(err, os.ErrClosed) && ctx.Err() == nil && !isListenerEnd(err) {
						t.Error(err)
					}
					return
				}
				servers.Go(func() { stressServer(ctx, t, c) })
			}
		})
	})
	var clients sync.WaitGroup
	end := time.Now().Add(d)
	dialing := make(chan struct{}, 64) // as many handshakes have time, also on a loaded machine
	p.onClient(func() {
		for i := range conns {
			clients.Go(func() {
				dialing <- struct{}{}
				c, err := rdma.Dial(ctx, p.addr(l), dialingOptions(nil))
				<-dialing
				if err != nil {
					t.Error(err)
					return
				}
				stressClient(ctx, t, c, i, workers, end)
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	})
	clients.Wait()
	check(t, l.Close())
	servers.Wait()
}

func isListenerEnd(err error) bool {
	var e *rdma.Error
	return errors.As(err, &e) && e.Op == "accept at"
}

// stressServer shares memory in reply to the first call, sends calls back, and checks the order of messages.
func stressServer(ctx context.Context, t *testing.T, c *rdma.Conn) {
	region := rdma.NewRegion(64 * 4096)
	var workers sync.WaitGroup
	var mu sync.Mutex
	last := map[uint32]uint32{} // by worker
	m, err := c.Recv(ctx)
	if err != nil {
		t.Error(err)
		return
	}
	s, err := c.Share(ctx, region, rdma.CanRead|rdma.CanWrite|rdma.CanAtomic)
	if err != nil {
		t.Error(err)
		return
	}
	token, _ := s.Token().MarshalBinary()
	if err := m.Reply(ctx, token); err != nil {
		t.Error(err)
	}
	m.Release()
	for range 4 {
		workers.Go(func() {
			for {
				mu.Lock()
				m, err := c.Recv(ctx)
				if err == nil && !m.IsCall() {
					b := m.Bytes()
					worker, number := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
					if number != last[worker]+1 {
						t.Errorf("worker %d: message %d after %d", worker, number, last[worker])
					}
					last[worker] = number
				}
				mu.Unlock()
				if err != nil {
					if err != io.EOF {
						t.Error(err)
					}
					return
				}
				if m.IsCall() {
					if err := m.Reply(ctx, m.Bytes()); err != nil && !errors.Is(err, rdma.ErrDisconnected) {
						t.Error(err)
					}
				}
				m.Release()
			}
		})
	}
	workers.Wait()
	if err := errors.Join(region.Close(), c.Close()); err != nil {
		t.Error(err)
	}
}

// stressClient has workers that do everything.
func stressClient(ctx context.Context, t *testing.T, c *rdma.Conn, conn, workers int, end time.Time) {
	m, err := c.Call(ctx, []byte("token"))
	if err != nil {
		t.Error(err)
		return
	}
	var token rdma.Token
	if err := token.UnmarshalBinary(m.Bytes()); err != nil {
		t.Error(err)
	}
	m.Release()
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(conn), uint64(w)))
			sent := uint32(0)
			for time.Now().Before(end) && !t.Failed() {
				if err := stressStep(ctx, c, r, token, w, &sent); err != nil {
					t.Errorf("connection %d, worker %d: %v", conn, w, err)
					return
				}
			}
		})
	}
	all.Wait()
}

func stressLength(r *rand.Rand) int {
	return 8 + []func() int{
		func() int { return r.IntN(100) }, func() int { return r.IntN(4000) }, func() int { return r.IntN(100) },
		func() int { return 4090 + r.IntN(20) }, func() int { return r.IntN(100000) },
	}[r.IntN(5)]()
}

// stressStep does one thing.
func stressStep(ctx context.Context, c *rdma.Conn, r *rand.Rand, token rdma.Token, w int, sent *uint32) error {
	n := stressLength(r)
	switch r.IntN(6) {
	case 0:
		b := pattern(n, w)
		binary.LittleEndian.PutUint32(b, uint32(w))
		binary.LittleEndian.PutUint32(b[4:], *sent+1)
		if err := c.Send(ctx, b); err != nil {
			return err
		}
		*sent++
		return nil
	case 1:
		return stressCall(ctx, c, pattern(n, w))
	case 2:
		short, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(300))*time.Microsecond)
		defer cancel()
		if err := stressCall(short, c, pattern(n, w)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		return nil
	case 3:
		off, b := w%64*4096, pattern(min(n, 4080), w)
		if err := c.Write(ctx, b, token, off); err != nil {
			return err
		}
		got := make([]byte, len(b))
		if err := c.Read(ctx, got, token, off); err != nil {
			return err
		}
		if !bytes.Equal(got, b) {
			return fmt.Errorf("read %d bytes: not those that were written", len(b))
		}
		return nil
	case 4:
		_, err := c.FetchAdd(ctx, token, w%64*4096+4088, 1)
		return err
	}
	b, err := c.Alloc(n)
	if err != nil {
		return err
	}
	copy(b.Bytes(), pattern(n, w))
	m, err := c.CallBuffer(ctx, b)
	if err != nil {
		return err
	}
	defer m.Release()
	if !bytes.Equal(m.Bytes(), pattern(n, w)) {
		return fmt.Errorf("another reply to %d bytes", n)
	}
	return nil
}

func stressCall(ctx context.Context, c *rdma.Conn, b []byte) error {
	m, err := c.Call(ctx, b)
	if err != nil {
		return err
	}
	defer m.Release()
	if !bytes.Equal(m.Bytes(), b) {
		return fmt.Errorf("another reply to %d bytes", len(b))
	}
	return nil
}
