package rdma_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// TestAllCallsWait checks that a call that waits for its turn goes on when any of the 1024 calls before it has had its
// reply, and that the others need not have had theirs.
func TestAllCallsWait(t *testing.T) {
	t.Parallel()
	const most = 1024
	p := connect(t, &rdma.Options{Linger: -1}, &rdma.Options{Depth: most + 8})
	ctx := limit(t)
	var calls sync.WaitGroup
	defer calls.Wait()
	defer func() { check(t, p.client.Close()) }()
	asked := map[uint32]rdma.Message{}
	receive := func() {
		m := must(p.server.Recv(ctx))(t)
		asked[binary.LittleEndian.Uint32(m.Bytes())] = m
		m.Release()
	}
	call := func(i int) {
		calls.Go(func() {
			m, err := p.client.Call(ctx, binary.LittleEndian.AppendUint32(nil, uint32(i)))
			if err == nil {
				m.Release()
			} else if !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		})
		receive()
	}
	for i := range most {
		call(i)
	}
	next := background(func() error {
		m, err := p.client.Call(ctx, []byte("next"))
		if err == nil {
			m.Release()
		}
		return err
	})
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond) // the call waits
	defer cancel()
	_, err := p.server.Recv(short)
	isError(t, err, context.DeadlineExceeded)
	check(t, asked[500].Reply(ctx, nil))
	m := make(chan error, 1)
	go func() {
		m <- func() error {
			m, err := p.server.Recv(ctx)
			if err == nil {
				err = m.Reply(ctx, nil)
				m.Release()
			}
			return err
		}()
	}()
	check(t, within(t, m, "Recv of the next call"))
	check(t, within(t, next, "the next call"))
}

// TestCloseAtOnce checks that calls return at once when this side closes the connection, also the one that waits for
// completions, while Close waits for a peer that cannot be reached.
func TestCloseAtOnce(t *testing.T) {
	p := connect(t, &rdma.Options{Linger: time.Minute}, &rdma.Options{Linger: -1})
	ctx := limit(t)
	heal := p.net.Partition(p.here, p.there)
	var waits []<-chan error
	for range 4 {
		waits = append(waits, background(func() error { _, err := p.client.Recv(ctx); return err }),
			background(func() error { _, err := p.client.Call(ctx, nil); return err }))
	}
	until(t, "the calls are sent", func() bool { return p.client.Stats().Sent == 4 })
	closing, cancel := context.WithCancel(ctx)
	closed := background(func() error { return p.client.Shutdown(closing) })
	for _, w := range waits {
		isError(t, within(t, w, "a call beside Close"), net.ErrClosed)
	}
	select {
	case err := <-closed:
		t.Errorf("Shutdown has not waited: %v", err)
	default:
	}
	cancel()
	isError(t, within(t, closed, "Shutdown"), context.Canceled)
	heal()
}

// TestLongMessagesGetTheirTurn checks that a long message is sent although other goroutines always have short ones to
// send.
func TestLongMessagesGetTheirTurn(t *testing.T) {
	p := connect(t, nil, &rdma.Options{Depth: 1})
	ctx := limit(t)
	stop := make(chan struct{})
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := p.client.Send(ctx, []byte("short")); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	long := background(func() error { return p.client.Send(ctx, make([]byte, 10000)) })
	received := background(func() error {
		for {
			m, err := p.server.Recv(ctx)
			if err != nil {
				return err
			}
			n := m.Len()
			m.Release()
			if n == 0 {
				return nil
			}
		}
	})
	select {
	case err := <-long:
		check(t, err)
	case <-time.After(patience):
		t.Error("the long message waits, while others are sent")
	}
	close(stop)
	senders.Wait()
	check(t, p.client.Send(ctx, nil))
	check(t, <-received)
}

// TestEndedContexts checks that nothing is sent for a context that has ended before the call.
func TestEndedContexts(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	_, s := p.share(t, 4096, allRights)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	b := must(p.client.Alloc(1000))(t)
	defer b.Release()
	token := s.Token()
	for name, f := range map[string]func() error{
		"Send":        func() error { return p.client.Send(ended, []byte("x")) },
		"Send copied": func() error { return p.client.Send(ended, make([]byte, 1000)) },
		"Send long":   func() error { return p.client.Send(ended, make([]byte, 10000)) },
		"SendBuffer":  func() error { return p.client.SendBuffer(ended, b) },
		"Call":        func() error { _, err := p.client.Call(ended, []byte("x")); return err },
		"Recv":        func() error { _, err := p.client.Recv(ended); return err },
		"Read":        func() error { return p.client.Read(ended, make([]byte, 10), token, 0) },
		"Write":       func() error { return p.client.Write(ended, make([]byte, 10), token, 0) },
		"WriteImm":    func() error { return p.client.WriteImm(ended, make([]byte, 10), token, 0, 1) },
		"FetchAdd":    func() error { _, err := p.client.FetchAdd(ended, token, 0, 1); return err },
		"Batch": func() error {
			batch := p.client.NewBatch()
			batch.Write(b, token, 0)
			return batch.Do(ended)
		},
	} {
		if err := f(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if stats := p.client.Stats(); stats.Sent != 0 || stats.Operations != 0 || stats.Stalls != 0 {
		t.Errorf("%+v", stats)
	}
	check(t, p.client.Send(ctx, []byte("last")))
	m := must(p.server.Recv(ctx))(t)
	if string(m.Bytes()) != "last" {
		t.Errorf("%q was sent", m.Bytes())
	}
	m.Release()
}

// TestKeepAliveAfterSends checks that the keepalive notices a peer that has lost power after messages to which nothing
// is replied.
func TestKeepAliveAfterSends(t *testing.T) {
	t.Parallel()
	p := machines(t)
	p.net.SetTimeouts(verbstest.Timeouts{Ack: 12})
	p.dial(t, &rdma.Options{KeepAlive: 10 * time.Millisecond}, &rdma.Options{Linger: -1})
	p.allow(verbstest.Destination)
	ctx := limit(t)
	for range 3 {
		check(t, p.client.Send(ctx, []byte("x")))
		m := must(p.server.Recv(ctx))(t)
		m.Release()
	}
	received := background(func() error { _, err := p.client.Recv(ctx); return err })
	p.there.Kill()
	isError(t, within(t, received, "Recv"), rdma.ErrDisconnected)
}
