package rdma_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// TestSlowReceiver checks that a sender waits for a receiver that does not release messages, within its context, that
// nothing is lost then, and that it goes on afterwards.
func TestSlowReceiver(t *testing.T) {
	for _, depth := range []int{1, 2, 7} {
		for _, n := range []int{10, 1000, 5000} {
			p := connect(t, &rdma.Options{Offers: 1}, &rdma.Options{Depth: depth})
			ctx := limit(t)
			check(t, p.client.Send(ctx, numbered(0, n))) // a busy machine may need longer than below
			sent := 1
			for { // until the window is full
				short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				err := p.client.Send(short, numbered(sent, n))
				cancel()
				if err != nil {
					isError(t, err, os.ErrDeadlineExceeded)
					break
				}
				sent++
			}
			if sent > depth {
				t.Errorf("depth %d, length %d: %d messages were sent", depth, n, sent)
			}
			const more = 100
			errs := make(chan error, 1)
			go func() {
				for i := range more {
					if err := p.client.Send(ctx, numbered(sent+i, n)); err != nil {
						errs <- err
						return
					}
				}
				errs <- nil
			}()
			for i := range sent + more {
				m := must(p.server.Recv(ctx))(t)
				if !bytes.Equal(m.Bytes(), numbered(i, n)) {
					t.Fatalf("depth %d, length %d: message %d is another", depth, n, i)
				}
				m.Release()
			}
			check(t, <-errs)
			if p.client.Stats().Stalls == 0 {
				t.Error("no call has waited")
			}
		}
	}
}

func numbered(i, n int) []byte {
	b := pattern(n, i)
	binary.LittleEndian.PutUint64(b, uint64(i))
	return b
}

// TestHeldMessages checks that messages stay as they are while the program holds them, and that the peer may go on as
// soon as one is released, in any order.
func TestHeldMessages(t *testing.T) {
	p := connect(t, nil, &rdma.Options{Depth: 4})
	ctx := limit(t)
	var held []rdma.Message
	for i := range 4 {
		check(t, p.client.Send(ctx, numbered(i, 200)))
		held = append(held, must(p.server.Recv(ctx))(t))
	}
	for i := range 40 {
		k := i * 7 % 4
		held[k].Release()
		check(t, p.client.Send(ctx, numbered(100+i, 200)))
		held[k] = must(p.server.Recv(ctx))(t)
		if !bytes.Equal(held[k].Bytes(), numbered(100+i, 200)) {
			t.Fatalf("message %d is another", i)
		}
	}
	for _, m := range held {
		m.Release()
	}
}

// TestContextsOfReceives checks that a Recv whose context ends loses no message, also while a long one is read.
func TestContextsOfReceives(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	const messages = 60
	errs := make(chan error, 1)
	go func() {
		for i := range messages {
			if err := p.client.Send(ctx, numbered(i, []int{50, 3000, 200000}[i%3])); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	ended := 0
	for i, try := 0, 0; i < messages; try++ {
		short, cancel := context.WithTimeout(ctx, time.Duration(try%5)*50*time.Microsecond)
		m, err := p.server.Recv(short)
		cancel()
		if err != nil {
			isError(t, err, os.ErrDeadlineExceeded)
			ended++
			continue
		}
		if !bytes.Equal(m.Bytes(), numbered(i, []int{50, 3000, 200000}[i%3])) {
			t.Fatalf("message %d is another", i)
		}
		m.Release()
		i++
	}
	check(t, <-errs)
	if ended == 0 {
		t.Error("no context has ended")
	}
}

// TestCalls checks that replies find their calls, in any order, and that a message can be replied to once.
func TestCalls(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	const calls = 20
	replies := make(chan error, calls)
	for i := range calls {
		go func() {
			m, err := p.client.Call(ctx, numbered(i, 8+i*700))
			if err == nil {
				if !bytes.Equal(m.Bytes(), numbered(i+1000, 8+(calls-i)*700)) {
					err = errors.New("another reply")
				}
				m.Release()
			}
			replies <- err
		}()
	}
	var asked []rdma.Message
	for range calls {
		asked = append(asked, must(p.server.Recv(ctx))(t))
	}
	for k := range asked {
		m := asked[len(asked)-1-k]
		i := int(binary.LittleEndian.Uint64(m.Bytes()))
		if !m.IsCall() {
			t.Error("it is not a call")
		}
		m.Release()
		check(t, m.Reply(ctx, numbered(i+1000, 8+(calls-i)*700)))
		isError(t, m.Reply(ctx, nil), rdma.ErrNotCall)
	}
	for range calls {
		check(t, <-replies)
	}
	check(t, p.client.Send(ctx, []byte("no call")))
	m := must(p.server.Recv(ctx))(t)
	isError(t, m.Reply(ctx, nil), rdma.ErrNotCall)
	m.Release()
}

// TestLateReplies checks that a reply to a call whose context has ended is dropped, of any length, and that its number
// is not mixed up with that of a later call.
func TestLateReplies(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	for i := range 30 {
		n := []int{10, 3000, 100000}[i%3]
		short, cancel := context.WithCancel(ctx)
		called := make(chan error, 1)
		go func() {
			_, err := p.client.Call(short, numbered(i, 100))
			called <- err
		}()
		late := must(p.server.Recv(ctx))(t)
		cancel()
		isError(t, <-called, context.Canceled)
		check(t, late.Reply(ctx, numbered(i, n)))
		late.Release()
		go func() {
			m, err := p.server.Recv(ctx)
			if err == nil {
				err = m.Reply(ctx, m.Bytes())
				m.Release()
			}
			called <- err
		}()
		m := must(p.client.Call(ctx, numbered(i+500, 40)))(t)
		if !bytes.Equal(m.Bytes(), numbered(i+500, 40)) {
			t.Errorf("call %d: another reply", i)
		}
		m.Release()
		check(t, <-called)
	}
}
