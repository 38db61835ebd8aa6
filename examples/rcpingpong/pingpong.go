package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"

	"github.com/goverbs/goverbs/uverbs"
)

// Work request IDs, and the bits of pingpong.pending.
const (
	recvID = 1
	sendID = 2
)

// A pingpong is one end of the game: a queue pair, its completion queue and the
// memory of the messages. It belongs to one goroutine.
type pingpong struct {
	opt   *options
	dev   *uverbs.Context
	port  *uverbs.PortAttr
	cq    *uverbs.CQ
	qp    *uverbs.QP
	local address
	gid   uint8 // index of local.gid

	send    []byte          // the message that is sent
	sendSGE uverbs.SGE      // where it lies
	recvs   []uverbs.RecvWR // rxDepth receives of the same buffer
	verify  *verifier       // nil without -c

	posted  int // receives that no message has taken yet
	pending int // which of recvID and sendID the next send waits for
	sent    int
	got     int
}

// newPingpong makes a queue pair that takes messages as soon as it is
// connected: in state INIT, with its receives posted.
func newPingpong(dev *uverbs.Context, opt *options) (*pingpong, error) {
	port, err := dev.QueryPort(opt.ibPort)
	if err != nil {
		return nil, err
	}
	if port.LinkLayer != uverbs.LinkEthernet && port.LID == 0 {
		return nil, fmt.Errorf("port %d of %s has no LID: the subnet manager has not configured it yet", opt.ibPort, dev.Name())
	}
	p := &pingpong{opt: opt, dev: dev, port: port}
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, err
	}
	if err := p.allocBuffers(pd); err != nil {
		return nil, err
	}
	p.cq, err = dev.CreateCQ(uverbs.CQConfig{Entries: opt.rxDepth + 1, NoEvents: !opt.events, SingleGoroutine: true})
	if err != nil {
		return nil, err
	}
	p.qp, err = pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: p.cq, MaxSendWR: 1, MaxRecvWR: opt.rxDepth, SingleGoroutine: true})
	if err != nil {
		return nil, err
	}
	p.local = address{lid: port.LID, qpn: p.qp.QPN(), psn: rand.Uint32N(1 << 24)}
	err = p.qp.Modify(uverbs.QPAttr{State: uverbs.StateInit, Port: uint8(opt.ibPort)},
		uverbs.MaskState|uverbs.MaskPKeyIndex|uverbs.MaskPort|uverbs.MaskAccess)
	if err != nil {
		return nil, err
	}
	return p, p.postReceives()
}

// allocBuffers makes the memory of the messages. As in the C program, a message
// is received into the buffer that the next one is sent from. Only to verify
// them takes two buffers: what is compared must not have been there before.
func (p *pingpong) allocBuffers(pd *uverbs.PD) error {
	size, total := p.opt.size, p.opt.size
	if p.opt.check {
		total = 2 * size
	}
	mr, err := pd.Alloc(total, uverbs.LocalWrite)
	if err != nil {
		return err
	}
	buf := mr.Bytes()
	p.send, p.sendSGE = buf[:size], mr.SGE(0, size)
	fill(p.send, p.opt.check)
	if p.opt.check {
		p.verify = newVerifier(buf[size:])
	}
	recv := mr.SGE(total-size, size)
	p.recvs = slices.Repeat([]uverbs.RecvWR{{WRID: recvID, SGL: []uverbs.SGE{recv}}}, p.opt.rxDepth)
	return nil
}

// useGID settles the local GID: the one of -g, on RoCE the one that reaches
// peer, else none.
func (p *pingpong) useGID(peer netip.Addr) error {
	var entry *uverbs.GIDEntry
	var err error
	switch {
	case p.opt.gidIndex >= 0:
		entry, err = p.gidAt(p.opt.gidIndex)
	case p.port.LinkLayer == uverbs.LinkEthernet:
		if entry, err = p.dev.SelectGID(p.opt.ibPort, peer); err == nil {
			fmt.Fprintf(os.Stderr, "rcpingpong: using GID %d of %s (%v, %s) to reach %v\n",
				entry.Index, p.dev.Name(), entry.Type, entry.Netdev, peer)
		}
	}
	if err != nil || entry == nil {
		return err
	}
	p.local.gid, p.gid = entry.GID, uint8(entry.Index)
	return nil
}

func (p *pingpong) gidAt(index int) (*uverbs.GIDEntry, error) {
	entries, err := p.dev.GIDs(p.opt.ibPort)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(entries, func(e uverbs.GIDEntry) bool { return e.Index == index })
	if i < 0 {
		return nil, fmt.Errorf("port %d of %s has no GID at index %d: leave -g out, or see the table by `devinfo -v`", p.opt.ibPort, p.dev.Name(), index)
	}
	return &entries[i], nil
}

// connect takes the queue pair from INIT to RTS, with the attributes that the
// C program uses.
func (p *pingpong) connect(remote address) error {
	global := !remote.gid.IsZero()
	if !global && p.port.LinkLayer == uverbs.LinkEthernet {
		return errors.New("the peer sent no GID, which RoCE needs: start ibv_rc_pingpong with -g and the index of its RoCE v2 GID")
	}
	av := uverbs.AHAttr{DLID: remote.lid, SL: p.opt.sl, Port: uint8(p.opt.ibPort)}
	if global {
		av.IsGlobal, av.DGID, av.SGIDIndex, av.HopLimit = true, remote.gid, p.gid, 1
	}
	err := p.qp.Modify(uverbs.QPAttr{State: uverbs.StateRTR, PathMTU: p.opt.mtu, DestQPN: remote.qpn, RQPSN: remote.psn,
		MaxDestRdAtomic: 1, MinRNRTimer: 12, AV: av},
		uverbs.MaskState|uverbs.MaskAV|uverbs.MaskPathMTU|uverbs.MaskDestQPN|uverbs.MaskRQPSN|
			uverbs.MaskMaxDestRdAtomic|uverbs.MaskMinRNRTimer)
	if err != nil {
		return err
	}
	return p.qp.Modify(uverbs.QPAttr{State: uverbs.StateRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, SQPSN: p.local.psn, MaxRdAtomic: 1},
		uverbs.MaskState|uverbs.MaskTimeout|uverbs.MaskRetryCnt|uverbs.MaskRNRRetry|uverbs.MaskSQPSN|uverbs.MaskMaxRdAtomic)
}

// play exchanges the messages. The client opens; from then on each end sends
// when it has received, and its own last message is gone.
func (p *pingpong) play(ctx context.Context) error {
	p.pending = recvID
	if !p.opt.server() {
		if err := p.postSend(); err != nil {
			return err
		}
	}
	var wcs [2]uverbs.WC
	for p.sent < p.opt.iters || p.got < p.opt.iters {
		n, err := p.completions(ctx, wcs[:])
		if err != nil {
			return err
		}
		for i := range wcs[:n] {
			if err := p.completed(&wcs[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// completions waits for completions: asleep with -e, busy without.
func (p *pingpong) completions(ctx context.Context, wcs []uverbs.WC) (int, error) {
	if p.opt.events {
		return p.cq.PollWait(ctx, wcs)
	}
	const glance = 1 << 12 // empty polls between two looks at the context
	for {
		for range glance {
			if n, err := p.cq.Poll(wcs); n > 0 || err != nil {
				return n, err
			}
		}
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
	}
}

func (p *pingpong) completed(wc *uverbs.WC) error {
	if err := wc.Err(); err != nil {
		if errors.Is(err, uverbs.WCRemInvReqErr) {
			err = fmt.Errorf("%w; give both ends the same -m and -s", err)
		}
		return fmt.Errorf("message %d: %w", p.got, err)
	}
	switch wc.WRID {
	case sendID:
		p.sent++
	case recvID:
		if err := p.received(int(wc.ByteLen)); err != nil {
			return err
		}
	default:
		return fmt.Errorf("completion of an unknown work request: %d", wc.WRID)
	}
	p.pending &^= int(wc.WRID)
	if p.pending != 0 || p.sent == p.opt.iters {
		return nil
	}
	return p.postSend()
}

func (p *pingpong) received(n int) error {
	if n != p.opt.size {
		return fmt.Errorf("message %d has %d bytes, not %d: give both ends the same -s", p.got, n, p.opt.size)
	}
	if p.verify != nil {
		if err := p.verify.message(); err != nil {
			return fmt.Errorf("message %d: %w", p.got, err)
		}
	}
	p.got++
	p.posted--
	if p.posted > 1 {
		return nil
	}
	return p.postReceives()
}

// postReceives fills the receive queue.
func (p *pingpong) postReceives() error {
	n, err := p.qp.PostRecv(p.recvs[:p.opt.rxDepth-p.posted]...)
	p.posted += n
	if err != nil {
		return fmt.Errorf("posting receive %d: %w", p.posted, err)
	}
	return nil
}

// postSend posts the message: inline when the queue takes it, so that the
// device need not fetch it.
func (p *pingpong) postSend() error {
	inline := p.opt.size <= p.qp.Cap().MaxInline
	p.pending = recvID | sendID
	if p.opt.newSend {
		b := p.qp.StartSend()
		b.Send(sendID, uverbs.Signaled)
		if inline {
			b.Inline(p.send)
		} else {
			b.SGE(p.sendSGE)
		}
		return b.Submit()
	}
	wr := uverbs.SendWR{WRID: sendID, Opcode: uverbs.OpSend, Flags: uverbs.Signaled}
	if inline {
		wr.Inline = p.send
	} else {
		wr.SGL = []uverbs.SGE{p.sendSGE}
	}
	_, err := p.qp.PostSend(wr)
	return err
}
