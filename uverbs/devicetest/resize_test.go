package devicetest

import (
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceResizeUnderTraffic resizes CQs while requests complete and other goroutines poll, and
// checks that no completion is lost, duplicated or reordered.
func TestDeviceResizeUnderTraffic(t *testing.T) {
	const messages, window = 3000, 48
	l := newLoop(t, nil)
	for i := range uint64(l.b.qp.Cap().MaxRecvWR) {
		receive(t, l.b.qp, uverbs.RecvWR{WRID: i})
	}
	// A token for each message that each queue has room for.
	var room [2]chan struct{}
	for i := range room {
		room[i] = make(chan struct{}, window)
		for range window {
			room[i] <- struct{}{}
		}
	}
	polled := func(queue int, next uint64) {
		if next < messages-window {
			room[queue] <- struct{}{}
		}
	}
	done := make(chan error, 3)
	some := make(chan struct{}, 1) // receives a value after messages have arrived
	go func() { done <- l.postAll(messages, room[:]) }()
	go func() {
		done <- l.pollAll(l.a, messages, func(next uint64, wc *uverbs.WC) bool {
			polled(0, next)
			return wc.WRID == next && wc.Opcode == uverbs.WCSend
		})
	}()
	go func() {
		done <- l.pollAll(l.b, messages, func(next uint64, wc *uverbs.WC) bool {
			ok := wc.Imm == uint32(next) && wc.Opcode == uverbs.WCRecv
			if _, err := l.b.qp.PostRecv(uverbs.RecvWR{WRID: next}); err != nil {
				t.Error(err)
				return false
			}
			polled(1, next)
			if next%16 == 0 {
				select {
				case some <- struct{}{}:
				default:
				}
			}
			return ok
		})
	}()
	resizes := 0
	for left := 3; left > 0; resizes++ {
		check(t, l.a.cq.Resize(128<<(resizes%5)))
		check(t, l.b.cq.Resize(2048>>(resizes%5)))
		select {
		case err := <-done:
			check(t, err)
			left--
		case <-some:
		}
	}
	for _, e := range []end{l.a, l.b} {
		if n := must(e.cq.Poll(make([]uverbs.WC, 1)))(t); n != 0 {
			t.Error("a completion too many")
		}
	}
	t.Logf("%d messages, each queue resized %d times", messages, resizes)
	if resizes < 20 {
		t.Errorf("only %d resizes while there was traffic", resizes)
	}
}

// postAll sends numbered messages, each as soon as there is room.
func (l *loop) postAll(messages uint64, room []chan struct{}) error {
	for id := range messages {
		for _, r := range room {
			select {
			case <-r:
			case <-l.ctx.Done():
				return l.ctx.Err()
			}
		}
		_, err := l.a.qp.PostSend(uverbs.SendWR{WRID: id, Opcode: uverbs.OpSendImm, Flags: uverbs.Signaled, Imm: uint32(id)})
		if err != nil {
			return err
		}
	}
	return nil
}

// pollAll polls the completions of that many messages, and checks that each is the next in order.
func (l *loop) pollAll(e end, messages uint64, is func(next uint64, wc *uverbs.WC) bool) error {
	var wcs [5]uverbs.WC
	for next := uint64(0); next < messages; {
		n, err := e.cq.PollWait(l.ctx, wcs[:])
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			if err := wcs[i].Err(); err != nil {
				return err
			}
			if !is(next, &wcs[i]) {
				return fmt.Errorf("%v: a completion is lost, or came twice: %+v, want %d", e.cq, wcs[i], next)
			}
			next++
		}
	}
	return nil
}
