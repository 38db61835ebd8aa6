package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/goverbs/goverbs/bench/kit"
	"github.com/goverbs/goverbs/uverbs"
)

const (
	qkey  = 0x1234
	dcKey = 0xffeeddcc
)

// A kind is a kind of request. Its QP sends to a QP of the same context.
type kind struct {
	name, suffix string // of its figures, around how the requests are posted
	qp           *uverbs.QP
	wrs          []uverbs.SendWR        // a round
	differ       [][]uverbs.SendWR      // the same one by one, if they are not all equal
	batch        func() error           // posts a list of such requests as a batch, if not nil
	before       func(*typeBench) error // is called before each round, if not nil
}

// A typeBench measures requests of other types of QPs, and other requests of RC QPs.
type typeBench struct {
	*bench
	kinds []*kind
}

// newTypeBench returns a bench for requests of a DCI, or for those of all other kinds.
func newTypeBench(ctx *uverbs.Context, single, dc bool) (*typeBench, error) {
	shared, err := newShared(ctx, single,
		uverbs.LocalWrite|uverbs.RemoteWrite|uverbs.RemoteAtomic|uverbs.MWBindAccess)
	if err != nil {
		return nil, err
	}
	b := &typeBench{bench: shared}
	if dc {
		return b, b.addDC()
	}
	for _, add := range []func() error{b.addUD, b.addXRC, b.addRC} {
		if err := add(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// repeated returns the requests of a round, which are all wr.
func repeated(wr uverbs.SendWR) []uverbs.SendWR {
	return slices.Repeat([]uverbs.SendWR{wr}, each)
}

// sized adds a kind of request with an SGE, and one with inline data.
func (b *typeBench) sized(name string, qp *uverbs.QP, wr uverbs.SendWR, batch, batchInline func() error) {
	wr.WRID, wr.Flags = 1, uverbs.Signaled
	inline := wr
	wr.SGL, inline.Inline = []uverbs.SGE{b.sge}, b.data
	b.kinds = append(b.kinds, &kind{name: name, qp: qp, wrs: repeated(wr), batch: batch},
		&kind{name: name, suffix: "inline", qp: qp, wrs: repeated(inline), batch: batchInline})
}

// ways are how requests are posted, with the part of a figure's name.
var ways = []struct {
	name string
	post func(*kind) error
}{{"", (*kind).ones}, {"list32", (*kind).lists}, {"builder32", (*kind).batches}}

func (k *kind) ones() error {
	q, one := k.qp, k.wrs[:1]
	for _, wrs := range k.differ {
		if _, err := q.PostSend(wrs...); err != nil {
			return err
		}
	}
	for range each - len(k.differ) {
		if _, err := q.PostSend(one...); err != nil {
			return err
		}
	}
	return nil
}

func (k *kind) lists() error {
	for i := 0; i < each; i += list {
		if _, err := k.qp.PostSend(k.wrs[i:][:list]...); err != nil {
			return err
		}
	}
	return nil
}

func (k *kind) batches() error {
	for i := 0; i < each; i += list {
		if err := k.batch(); err != nil {
			return err
		}
	}
	return nil
}

// measure runs the rounds and prints the smallest figure of each kind.
func (b *typeBench) measure(rounds int) error {
	f := newFigures()
	for range rounds {
		for _, way := range ways {
			for _, k := range b.kinds {
				if way.name == "builder32" && k.batch == nil {
					continue
				}
				name := k.name + way.name + k.suffix
				took, err := b.round(k, way.post)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				f.note(name, took)
			}
		}
	}
	return f.print(f.names)
}

// round measures one round, and polls its completions.
func (b *typeBench) round(k *kind, post func(*kind) error) (time.Duration, error) {
	if k.before != nil {
		if err := k.before(b); err != nil {
			return 0, err
		}
	}
	began := time.Now()
	err := post(k)
	took := time.Since(began)
	if err != nil {
		return 0, err
	}
	if err := b.waitIdle(); err != nil {
		return 0, err
	}
	_, err = b.poll(list)
	return took, err
}

// address returns an AH for a QP of the same context, for requests of q.
func (b *typeBench) address(q, to *uverbs.QP) (*uverbs.AH, error) {
	self, err := to.Endpoint()
	if err != nil {
		return nil, err
	}
	attr, err := q.AHAttr(self)
	if err != nil {
		return nil, err
	}
	return b.pd.CreateAH(attr)
}

// addUD adds SENDs of a UD QP to itself. It has no receives, so that the device drops the datagrams.
func (b *typeBench) addUD() error {
	qp, err := b.pd.CreateQP(uverbs.QPConfig{Type: uverbs.UD, SendCQ: b.cq, MaxSendWR: 2 * each, MaxRecvWR: 1,
		MaxInline: size, QKey: qkey, SingleGoroutine: b.single})
	if err != nil {
		return err
	}
	if err := qp.Ready(); err != nil {
		return err
	}
	ah, err := b.address(qp, qp)
	if err != nil {
		return err
	}
	n := qp.QPN()
	b.sized("ud", qp, uverbs.SendWR{Opcode: uverbs.OpSend, AH: ah, QPN: n, QKey: qkey},
		func() error {
			s := qp.StartSend()
			for range list {
				s.SendSGE(1, uverbs.Signaled, b.sge)
				s.UDAddr(ah, n, qkey)
			}
			return s.Submit()
		},
		func() error {
			s := qp.StartSend()
			for range list {
				s.SendInline(1, uverbs.Signaled, b.data)
				s.UDAddr(ah, n, qkey)
			}
			return s.Submit()
		})
	return nil
}

// addXRC adds WRITEs of an XRC initiator.
func (b *typeBench) addXRC() error {
	x, err := b.ctx.OpenXRCD(nil, 0)
	if err != nil {
		return err
	}
	srq, err := b.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 16, XRCD: x, CQ: b.cq})
	if err != nil {
		return err
	}
	target, err := x.CreateQP(uverbs.QPConfig{Access: uverbs.RemoteWrite})
	if err != nil {
		return err
	}
	qp, err := b.pd.CreateQP(uverbs.QPConfig{Type: uverbs.XRCSend, SendCQ: b.cq, MaxSendWR: 2 * each, MaxInline: size,
		SingleGoroutine: b.single})
	if err != nil {
		return err
	}
	for _, q := range [][2]*uverbs.QP{{qp, target}, {target, qp}} {
		peer, err := q[1].Endpoint()
		if err != nil {
			return err
		}
		if err := q[0].Connect(peer); err != nil {
			return err
		}
	}
	n := srq.SRQN()
	b.sized("xrc", qp, uverbs.SendWR{Opcode: uverbs.OpWrite, RemoteAddr: b.addr, RKey: b.rkey, RemoteSRQN: n},
		func() error {
			s := qp.StartSend()
			for range list {
				s.WriteSGE(1, uverbs.Signaled, b.addr, b.rkey, b.sge)
				s.RemoteSRQ(n)
			}
			return s.Submit()
		},
		func() error {
			s := qp.StartSend()
			for range list {
				s.WriteInline(1, uverbs.Signaled, b.addr, b.rkey, b.data)
				s.RemoteSRQ(n)
			}
			return s.Submit()
		})
	return nil
}

// addRC adds FETCH_ADD, and BIND_MW before the requests that invalidate what it binds: LOCAL_INV and SEND_INV.
func (b *typeBench) addRC() error {
	recvs, err := b.ctx.CreateCQ(uverbs.CQConfig{Entries: each, NoEvents: true})
	if err != nil {
		return err
	}
	qp, err := kit.CreateLoop(b.pd, uverbs.QPConfig{Type: uverbs.RC, SendCQ: b.cq, RecvCQ: recvs, MaxSendWR: 2 * each,
		MaxRecvWR: each, Access: uverbs.RemoteWrite | uverbs.RemoteAtomic, SingleGoroutine: b.single})
	if err != nil {
		return err
	}
	add := uverbs.SendWR{WRID: 1, Opcode: uverbs.OpFetchAdd, Flags: uverbs.Signaled, SGL: []uverbs.SGE{b.mr.SGE(0, 8)},
		RemoteAddr: b.addr, RKey: b.rkey, CompareAdd: 1}
	bind := repeated(uverbs.SendWR{WRID: 1, Opcode: uverbs.OpBindMW, Flags: uverbs.Signaled})
	local := repeated(uverbs.SendWR{WRID: 1, Opcode: uverbs.OpLocalInv, Flags: uverbs.Signaled})
	send := repeated(uverbs.SendWR{WRID: 1, Opcode: uverbs.OpSendInv, Flags: uverbs.Signaled, SGL: []uverbs.SGE{b.sge}})
	for i := range each {
		mw, err := b.pd.AllocMW(uverbs.MWType2)
		if err != nil {
			return err
		}
		bind[i].Bind = &uverbs.MWBind{MW: mw, RKey: mw.RKey(), MWRange: uverbs.MWRange{MR: b.mr, Len: 4096,
			Access: uverbs.RemoteWrite}}
		local[i].InvalidateRKey, send[i].InvalidateRKey = mw.RKey(), mw.RKey()
	}
	ones := func(wrs []uverbs.SendWR) [][]uverbs.SendWR { return slices.Collect(slices.Chunk(wrs, 1)) }
	binds := &kind{name: "bind", qp: qp, wrs: bind, differ: ones(bind)}
	b.kinds = append(b.kinds, &kind{name: "atomic", qp: qp, wrs: repeated(add)},
		binds, &kind{name: "localinv", qp: qp, wrs: local, differ: ones(local)},
		binds, &kind{name: "sendinv", qp: qp, wrs: send, differ: ones(send), before: func(b *typeBench) error {
			return b.receives(qp, recvs)
		}})
	return nil
}

// receives posts the receives of a round of SENDs, and polls the completions of those of the round before.
func (b *typeBench) receives(qp *uverbs.QP, cq *uverbs.CQ) error {
	wcs := make([]uverbs.WC, each)
	n, err := cq.Poll(wcs)
	if err != nil {
		return err
	}
	for _, wc := range wcs[:n] {
		if err := wc.Err(); err != nil {
			return err
		}
	}
	for range each {
		if _, err := qp.PostRecv(uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{b.mr.SGE(8192, size)}}); err != nil {
			return err
		}
	}
	return nil
}

// addDC adds WRITEs of a DCI through a DCT.
func (b *typeBench) addDC() error {
	srq, err := b.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 16})
	if err != nil {
		return err
	}
	dct, err := b.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCT, RecvCQ: b.cq, SRQ: srq, DCKey: dcKey,
		Access: uverbs.RemoteWrite})
	if err != nil {
		return err
	}
	if err := dct.Ready(); err != nil {
		return err
	}
	dci, err := b.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCI, SendCQ: b.cq, MaxSendWR: 2 * each, MaxInline: size,
		SingleGoroutine: b.single})
	if err != nil {
		return err
	}
	if err := dci.Ready(); err != nil {
		return err
	}
	ah, err := b.address(dci, dct)
	if err != nil {
		return err
	}
	n := dct.QPN()
	b.sized("dc", dci, uverbs.SendWR{Opcode: uverbs.OpWrite, RemoteAddr: b.addr, RKey: b.rkey, AH: ah, QPN: n,
		DCKey: dcKey},
		func() error {
			s := dci.StartSend()
			for range list {
				s.WriteSGE(1, uverbs.Signaled, b.addr, b.rkey, b.sge)
				s.DCAddr(ah, n, dcKey)
			}
			return s.Submit()
		},
		func() error {
			s := dci.StartSend()
			for range list {
				s.WriteInline(1, uverbs.Signaled, b.addr, b.rkey, b.data)
				s.DCAddr(ah, n, dcKey)
			}
			return s.Submit()
		})
	return nil
}
