package rdma

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestHostileCancels checks that the connection ends if the peer cancels what it may not.
func TestHostileCancels(t *testing.T) {
	cancel := func(h *hostile, number int) bool { return h.send(kindCancel, 0, number, nil) }
	call := func(h *hostile, number int) bool { return h.send(kindCall, 0, number, nil) }
	for name, c := range map[string]struct {
		attack func(c *Conn, h *hostile)
		text   string
		no     features
	}{
		"no call":      {func(_ *Conn, h *hostile) { cancel(h, 0) }, "a cancel of call 0, which it has not begun", 0},
		"another call": {func(_ *Conn, h *hostile) { _ = call(h, 5) && cancel(h, 4) }, "a cancel of call 4, which", 0},
		"number 1023":  {func(_ *Conn, h *hostile) { _ = call(h, 5) && cancel(h, 1023) }, "a cancel of call 1023, which", 0},
		"twice": {func(c *Conn, h *hostile) {
			_ = call(h, 5) && cancel(h, 5)
			c.mu.Lock()
			c.look() // it sends a credit
			c.unlock()
			cancel(h, 5)
		},
			"a cancel of call 5, which it has not begun or has canceled before", 0},
		"flood": {func(_ *Conn, h *hostile) {
			for i := 0; i < 10 && call(h, i); i++ {
			}
			for i := 0; i < 10 && cancel(h, i); i++ {
			}
		}, "a cancel without a credit: a peer may send 1", 0},
		"without the feature": {func(_ *Conn, h *hostile) { _ = call(h, 0) && cancel(h, 0) }, "a cancel without a credit",
			featureCancel},
		"credits": {func(_ *Conn, h *hostile) {
			_ = h.send(kindCredits, 0, maxCalls-maxCancels, nil) && h.send(kindCredits, 0, 1, nil)
		}, "1 credits beside 1024", 0},
		"credits without the feature": {func(_ *Conn, h *hostile) { h.send(kindCredits, 0, 1, nil) }, "1 credits beside 0",
			featureCancel},
		"a body": {func(_ *Conn, h *hostile) { h.send(kindCancel, 0, 0, []byte("x")) }, "1 bytes in a SEND of kind 7", 0},
	} {
		t.Run(name, func(t *testing.T) {
			hi := honestHello()
			hi.features &^= c.no
			conn, h := hostilePair(t, nil, hi)
			c.attack(conn, h)
			var err error
			for err == nil {
				_, err = conn.Recv(h.ctx)
			}
			if !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("Recv returns %v", err)
			}
		})
	}
}

// TestCancelFlow checks that cancels wait for credits, that a call with a reply is not canceled, and that the cancel of
// a call that has been replied to is no mistake.
func TestCancelFlow(t *testing.T) {
	c, h := hostilePair(t, nil, honestHello())
	var cancels []context.CancelFunc
	errs := make(chan error, 5)
	for i := range 5 {
		ctx, cancel := context.WithCancel(h.ctx)
		cancels = append(cancels, cancel)
		go func() { _, err := c.Call(ctx, nil); errs <- err }()
		if k, number, _ := h.next(); k.base() != kindCall || number != i {
			t.Fatalf("kind %d, number %d", k, number)
		}
	}
	for i, cancel := range cancels {
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if i < maxCancels {
			if k, number, _ := h.next(); k != kindCancel || number != i {
				t.Fatalf("kind %d, number %d", k, number)
			}
		}
	}
	// One cancel has a credit, and four wait. Of these, the second call gets a reply.
	h.post(uverbs.OpSendImm, packImm(kindReply, credits{}, 2), nil)
	h.send(kindCredits, 0, 1, nil)
	c.mu.Lock()
	c.look()
	c.unlock()
	for _, want := range []int{1, 3, 4} {
		if k, number, _ := h.next(); k != kindCancel || number != want {
			t.Fatalf("kind %d, number %d, want %d", k, number, want)
		}
		h.send(kindReply, 0, want, nil)
		h.send(kindCredits, 0, 1, nil)
		c.mu.Lock()
		c.look()
		c.unlock()
	}
	c.mu.Lock()
	if len(c.control.cancels) != 0 || c.cancels.credits != 1 || c.calls.pending != 1 {
		t.Errorf("%d cancels wait, %d credits, %d calls are pending", len(c.control.cancels), c.cancels.credits,
			c.calls.pending)
	}
	c.unlock()
	// The other direction: the cancel comes after the reply.
	h.post(uverbs.OpSendImm, packImm(kindCall, credits{replies: 1}, 9), nil)
	m, err := c.Recv(h.ctx)
	if err := good(t, m, err).Reply(h.ctx, nil); err != nil {
		t.Fatal(err)
	}
	m.Release()
	h.send(kindCancel, 0, 9, nil)
	c.mu.Lock()
	c.look()
	c.unlock()
	if err := c.Err(); err != nil {
		t.Error(err)
	}
}

// TestNoCancelWithoutFeature checks that a peer which does not know cancels gets none.
func TestNoCancelWithoutFeature(t *testing.T) {
	hi := honestHello()
	hi.features = 0
	c, h := hostilePair(t, nil, hi)
	ctx, cancel := context.WithCancel(h.ctx)
	called := make(chan error, 1)
	go func() { _, err := c.Call(ctx, nil); called <- err }()
	if k, _, _ := h.next(); k != kindCall {
		t.Fatalf("kind %d", k)
	}
	cancel()
	if err := <-called; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := c.Send(h.ctx, []byte("next")); err != nil {
		t.Fatal(err)
	}
	if k, _, _ := h.next(); k != kindMessage {
		t.Errorf("kind %d", k)
	}
}
