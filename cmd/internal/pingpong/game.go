package pingpong

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// These are the bits of game.pending.
const (
	pendingRecv = 1 << iota
	pendingSend
)

// A game exchanges the messages on one end. It must not be used concurrently.
type game struct {
	*Queues
	opt     *Options
	send    func(qp int) error
	index   map[uint32]int  // QP number to index in QPs
	pending []int           // for each QP, the completions that its next send waits for
	free    []uverbs.RecvWR // receives that are not posted
	sent    int
	got     int
}

func newGame(opt *Options, q *Queues, send func(int) error) *game {
	g := &game{Queues: q, opt: opt, send: send, index: map[uint32]int{}, pending: make([]int, len(q.QPs)),
		free: q.Memory.receives(opt.RxDepth)}
	for i, qp := range q.QPs {
		g.index[qp.QPN()] = i
	}
	return g
}

// idleTimeout limits the time between two completions. The C programs have no
// limit.
const idleTimeout = 10 * time.Second

var errIdle = fmt.Errorf("no message for %v: either the peer has ended (see its output for the reason), "+
	"or a message was lost, which UC and UD do not retransmit", idleTimeout)

// play exchanges the messages. The client sends first. After that, each QP sends
// when it has received a message and its previous send has completed.
func (g *game) play(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(idleTimeout, func() { cancel(errIdle) })
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
		watchdog.Reset(idleTimeout)
		for i := range wcs[:n] {
			if err := g.completed(&wcs[i]); err != nil {
				return err
			}
			// Later completions may fail, because the peer closes its QPs.
			if g.sent >= g.opt.Iters && g.got >= g.opt.Iters {
				return nil
			}
		}
	}
}

// completions waits for completions: sleeping with -e, polling without.
func (g *game) completions(ctx context.Context, wcs []uverbs.WC) (int, error) {
	if g.opt.Events {
		return g.CQ.PollWait(ctx, wcs)
	}
	const polls = 1 << 12 // between two checks of the context
	for {
		for range polls {
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
			err = fmt.Errorf("%w; use the same -m and -s at both ends", err)
		}
		return fmt.Errorf("message %d: %w", g.got, err)
	}
	qp, found := g.index[wc.QPNum]
	if !found {
		return fmt.Errorf("completion of an unknown queue pair: %06x", wc.QPNum)
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
		return fmt.Errorf("message %d has %d bytes, not %d: use the same -s at both ends", g.got, n, g.opt.Size)
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
