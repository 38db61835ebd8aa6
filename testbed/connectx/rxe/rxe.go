// Package rxe tests internal/sim/connectx/transport with the kernel's soft-RoCE in a
// guest. A Peer runs in the guest, and the tests control its queue pairs by
// remote procedure calls.
package rxe

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// Noise fills b with bytes derived from a seed.
func Noise(seed uint64, b []byte) {
	src := rand.NewPCG(seed, 0)
	for i := 0; i < len(b); i += 8 {
		v := src.Uint64()
		for j := i; j < min(i+8, len(b)); j++ {
			b[j] = byte(v)
			v >>= 8
		}
	}
}

// A Peer has the guest's device. Its methods are called by net/rpc.
type Peer struct {
	dev *uverbs.Context
	pd  *uverbs.PD
	mr  *uverbs.MR
	cq  *uverbs.CQ
	qp  *uverbs.QP
	gid *uverbs.GIDEntry
	ah  *uverbs.AH
	opt Options
}

// None means no argument, or no result.
type None struct{}

// Options are the options of a queue pair.
type Options struct {
	Type     uverbs.QPType
	Peer     string // the IP address of the other end
	Memory   int
	MTU      uverbs.MTU
	PSN      uint32
	Retries  uint8
	RNRs     uint8
	Timeout  uint8
	RNRTimer uint8
	Depth    uint8 // of READs and atomics, in both directions
	QKey     uint32
}

// Opened is what the other end needs to know.
type Opened struct {
	QPN  uint32
	GID  uverbs.GID
	Addr uint64
	RKey uint32
}

const rights = uverbs.LocalWrite | uverbs.RemoteWrite | uverbs.RemoteRead | uverbs.RemoteAtomic | uverbs.MWBindAccess

// Open creates a queue pair and its memory, replacing the previous one.
func (p *Peer) Open(o Options, out *Opened) (err error) {
	if err := p.Close(None{}, nil); err != nil {
		return err
	}
	p.opt = o
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close(None{}, nil))
		}
	}()
	addr, err := netip.ParseAddr(o.Peer)
	if err != nil {
		return err
	}
	if p.dev, err = uverbs.Open("rxe0"); err != nil {
		return err
	}
	if p.gid, err = p.dev.SelectGID(1, addr); err != nil {
		return err
	}
	if p.pd, err = p.dev.AllocPD(); err != nil {
		return err
	}
	if p.mr, err = p.pd.Alloc(o.Memory, rights); err != nil {
		return err
	}
	if p.cq, err = p.dev.CreateCQ(uverbs.CQConfig{Entries: 2000}); err != nil {
		return err
	}
	p.qp, err = p.pd.CreateQP(uverbs.QPConfig{
		Type: o.Type, SendCQ: p.cq, MaxSendWR: 500, MaxRecvWR: 500, GID: p.gid, QKey: o.QKey,
		SignalAll: true, Access: rights,
	})
	if err != nil {
		return err
	}
	if err := p.qp.Init(); err != nil {
		return err
	}
	*out = Opened{QPN: p.qp.QPN(), GID: p.gid.GID, Addr: p.mr.Addr(), RKey: p.mr.RKey()}
	return nil
}

// Remote is the other end.
type Remote struct {
	QPN uint32
	GID uverbs.GID
	PSN uint32
}

// Connect changes the state of the queue pair to RTS.
func (p *Peer) Connect(r Remote, _ *None) (err error) {
	av := uverbs.AHAttr{Port: 1, IsGlobal: true, DGID: r.GID, SGIDIndex: uint8(p.gid.Index), HopLimit: 64}
	if p.opt.Type == uverbs.UD {
		if p.ah, err = p.pd.CreateAH(av); err != nil {
			return err
		}
		return p.qp.Ready()
	}
	o := p.opt
	a := uverbs.QPAttr{State: uverbs.StateRTR, AV: av, PathMTU: o.MTU, DestQPN: r.QPN, RQPSN: r.PSN,
		MaxDestRdAtomic: o.Depth, MinRNRTimer: o.RNRTimer}
	m := uverbs.MaskState | uverbs.MaskAV | uverbs.MaskPathMTU | uverbs.MaskDestQPN | uverbs.MaskRQPSN
	if o.Type == uverbs.RC {
		m |= uverbs.MaskMaxDestRdAtomic | uverbs.MaskMinRNRTimer
	}
	if err := p.qp.Modify(a, m); err != nil {
		return err
	}
	a = uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: o.PSN, Timeout: o.Timeout, RetryCount: o.Retries,
		RNRRetryCount: o.RNRs,
		MaxRdAtomic:   o.Depth}
	m = uverbs.MaskState | uverbs.MaskSQPSN
	if o.Type == uverbs.RC {
		m |= uverbs.MaskTimeout | uverbs.MaskRetryCount | uverbs.MaskRNRRetryCount | uverbs.MaskMaxRdAtomic
	}
	return p.qp.Modify(a, m)
}

// A Work is a request. Memory is an offset and a length in the peer's memory.
type Work struct {
	Receive   bool
	Op        uverbs.Opcode
	Flags     uverbs.SendFlags
	Off, Len  int
	Imm       uint32
	Addr      uint64
	RKey      uint32
	Add, Swap uint64
	QPN, QKey uint32
}

// Post posts requests.
func (p *Peer) Post(works []Work, _ *None) error {
	for _, w := range works {
		sgl := []uverbs.SGE{p.mr.SGE(w.Off, w.Len)}
		if w.Len == 0 {
			sgl = nil
		}
		var err error
		if w.Receive {
			_, err = p.qp.PostRecv(uverbs.RecvWR{SGL: sgl})
		} else {
			_, err = p.qp.PostSend(uverbs.SendWR{
				Opcode: w.Op, Flags: w.Flags, SGL: sgl, Imm: w.Imm, InvalidateRKey: w.Imm, RemoteAddr: w.Addr, RKey: w.RKey,
				CompareAdd: w.Add, Swap: w.Swap, AH: p.ah, QPN: w.QPN, QKey: w.QKey,
			})
		}
		if err != nil {
			return fmt.Errorf("%+v: %w", w, err)
		}
	}
	return nil
}

// Poll waits for n completions.
func (p *Peer) Poll(n int, out *[]uverbs.WC) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	wcs := make([]uverbs.WC, n)
	for len(*out) < n {
		k, err := p.cq.PollWait(ctx, wcs[:n-len(*out)])
		if err != nil {
			return fmt.Errorf("%d of %d completions: %w", len(*out), n, err)
		}
		*out = append(*out, wcs[:k]...)
	}
	return nil
}

// A Range is a part of the memory.
type Range struct {
	Off, Len int
	Seed     uint64
}

// Fill fills memory with noise.
func (p *Peer) Fill(r Range, _ *None) error {
	Noise(r.Seed, p.mr.Bytes()[r.Off:r.Off+r.Len])
	return nil
}

// Sum returns the checksum of memory.
func (p *Peer) Sum(r Range, out *uint32) error {
	*out = crc32.ChecksumIEEE(p.mr.Bytes()[r.Off : r.Off+r.Len])
	return nil
}

// Read returns the bytes of memory.
func (p *Peer) Read(r Range, out *[]byte) error {
	*out = append(*out, p.mr.Bytes()[r.Off:r.Off+r.Len]...)
	return nil
}

// Close closes the queue pair and everything that belongs to it.
func (p *Peer) Close(_ None, _ *None) error {
	if p.dev == nil {
		return nil
	}
	err := p.dev.Close()
	*p = Peer{}
	return err
}
