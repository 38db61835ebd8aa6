package pingpong

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// The bits of game.pending.
const (
	pendingRecv = 1 << iota
	pendingSend
)

// A game is one end of the game. It belongs to one goroutine.
type game struct {
	*Queues
	opt     *Options
	send    func(qp int) error
	index   map[uint32]int  // of a QP by its number
	pending []int           // per QP: what its next send waits for
	free    []uverbs.RecvWR // receives that are not posted
	sent    int
	got     int
}

func newGame(opt *Options, q *Queues, send func(int) error) *game {
	g := &game{Queues: q, opt: opt, send: send, index: map[uint32]int{}, pending: make([]int, len(q.QPs)), free: q.Memory.receives(opt.RxDepth)}
	for i, qp := range q.QPs {
		g.index[qp.QPN()] = i
	}
	return g
}

// silence is how long nothing may come: C programs would wait for ever.
const silence = 10 * time.Second

var errSilence = fmt.Errorf("nothing has come for %v: the peer has ended, and its output says why, or a message is lost, which UC and UD do not send again", silence)

// play exchanges the messages. The client opens; from then on each queue pair
// sends when it has received, and its own last message is gone.
func (g *game) play(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(silence, func() { cancel(errSilence) })
	defer watchdog.Stop()
	for i := range g.QPs {
		g.pending[i] = pendingRecv
		if !g.opt.server() {
			if err := g.serve(i); err != nil {
				return err
			}
		}
	}
	wcs := make([]uverbs.WC, 2*len(g.QPs))
	for {
		n, err := g.completions(ctx, wcs)
		if err != nil {
			return err
		}
		watchdog.Reset(silence)
		for i := range wcs[:n] {
			if err := g.completed(&wcs[i]); err != nil {
				return err
			}
			// What completes after that may fail, as the peer is leaving.
			if g.sent >= g.opt.Iters && g.got >= g.opt.Iters {
				return nil
			}
		}
	}
}

// completions waits for completions: asleep with -e, busy without.
func (g *game) completions(ctx context.Context, wcs []uverbs.WC) (int, error) {
	if g.opt.Events {
		return g.CQ.PollWait(ctx, wcs)
	}
	const glance = 1 << 12 // empty polls between two looks at the context
	for {
		for range glance {
			if n, err := g.CQ.Poll(wcs); n > 0 || err != nil {
				return n, err
			}
		}
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
	}
}

func (g *game) completed(wc *uverbs.WC) error {
	if err := wc.Err(); err != nil {
		if errors.Is(err, uverbs.WCRemInvReqErr) || errors.Is(err, uverbs.WCLocLenErr) {
			err = fmt.Errorf("%w; give both ends the same -m and -s", err)
		}
		return fmt.Errorf("message %d: %w", g.got, err)
	}
	qp, found := g.index[wc.QPNum]
	if !found {
		return fmt.Errorf("completion of a queue pair that is not ours: %06x", wc.QPNum)
	}
	if wc.Opcode == uverbs.WCRecv {
		if err := g.received(wc); err != nil {
			return err
		}
		g.pending[qp] &^= pendingRecv
	} else {
		g.sent++
		g.pending[qp] &^= pendingSend
	}
	if g.pending[qp] != 0 || g.sent >= g.opt.Iters {
		return nil
	}
	return g.serve(qp)
}

// serve sends the message on a queue pair.
func (g *game) serve(qp int) error {
	g.pending[qp] = pendingRecv | pendingSend
	if err := g.send(qp); err != nil {
		return fmt.Errorf("posting send %d: %w", g.sent, err)
	}
	return nil
}

func (g *game) received(wc *uverbs.WC) error {
	if n := int(wc.ByteLen) - g.Memory.layout.Header; n != g.opt.Size {
		return fmt.Errorf("message %d has %d bytes, not %d: give both ends the same -s", g.got, n, g.opt.Size)
	}
	if err := g.Memory.check(wc.WRID); err != nil {
		return fmt.Errorf("message %d: %w", g.got, err)
	}
	g.got++
	g.free = append(g.free, g.Memory.recvs[wc.WRID])
	if g.opt.RxDepth-len(g.free) > len(g.QPs) {
		return nil
	}
	return g.postReceives()
}

// postReceives fills the receive queue.
func (g *game) postReceives() error {
	n, err := g.PostRecv(g.free...)
	g.free = append(g.free[:0], g.free[n:]...)
	if err != nil {
		return fmt.Errorf("posting receive %d: %w", g.opt.RxDepth-len(g.free), err)
	}
	return nil
}
