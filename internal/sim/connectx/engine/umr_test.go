package engine_test

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// A umr is an update of a memory key under construction.
type umr struct {
	key     uint32
	flags   []prm.Field
	mask    uint64
	ctx     map[prm.Field]uint64
	list    []byte // inline
	pointed *region
	words   int // octowords of the list; 0 means the inline list's
	offset  uint64
}

func (u umr) wqe() wqe {
	s := make([]byte, 48+64)
	for _, f := range u.flags {
		f.Set(s, 1)
	}
	list := u.list
	for len(list)%64 != 0 {
		list = append(list, 0)
	}
	n := len(list) / 16
	if u.words > 0 {
		n = u.words
	}
	prm.UMROctowords.Set(s, uint64(n))
	prm.UMRMask.Set(s, u.mask)
	prm.UMROffset.Set(s, u.offset)
	for f, v := range u.ctx {
		f.Set(s[48:], v)
	}
	w := wqe{op: prm.OpcodeUMR, imm: u.key, segments: append(s, list...)}
	if u.pointed != nil {
		w = w.data(u.pointed, 0, n*16)
	}
	return w
}

const (
	bindMask = prm.UMRMaskLen | prm.UMRMaskStart | prm.UMRMaskKey | prm.UMRMaskFree |
		prm.UMRMaskLocalWrite | prm.UMRMaskRemoteRead | prm.UMRMaskRemoteWrite | prm.UMRMaskAtomic
	type2 = prm.UMRMaskQPN
)

// bind returns the request with which libmlx5 binds a memory window.
func bind(k *engine.MKey, r *region, off, n int, rights engine.Rights, qpn uint32) umr {
	u := umr{key: k.Key(), mask: bindMask, flags: []prm.Field{prm.UMROffsetEnable, prm.UMRInline},
		ctx: map[prm.Field]uint64{
			prm.MKCMKey70: uint64(k.Variant), prm.MKCQPN: uint64(qpn), prm.MKCStartAddr: r.addr + uint64(off),
			prm.MKCLen: uint64(n)}}
	for f, right := range map[prm.Field]engine.Rights{prm.MKCLW: engine.LocalWrite, prm.MKCRR: engine.RemoteRead,
		prm.MKCRW: engine.RemoteWrite, prm.MKCA: engine.RemoteAtomic} {
		if rights&right != 0 {
			u.ctx[f] = 1
		}
	}
	u.list = wqe{}.seg(uint32(n), r.Key(), r.addr+uint64(off)).segments
	if qpn != engine.AnyQPN {
		u.mask |= type2
		u.flags = append(u.flags, prm.UMRCheckNotFree)
	}
	return u
}

// unbind returns the request with which it unbinds one.
func unbind(k *engine.MKey, qpn uint32) umr {
	u := umr{key: k.Key(), mask: prm.UMRMaskFree | prm.UMRMaskKey, flags: []prm.Field{prm.UMROffsetEnable, prm.UMRInline},
		ctx: map[prm.Field]uint64{prm.MKCMKey70: uint64(k.Variant), prm.MKCQPN: engine.AnyQPN, prm.MKCFree: 1}}
	if qpn != engine.AnyQPN {
		u.mask |= type2
		u.flags = append(u.flags, prm.UMRCheckQPN)
	}
	return u
}

func (h *host) window(kind int) *engine.MKey {
	return must(h.CreateMKey(engine.MKeyAttr{Mode: engine.KLM, Rights: engine.LocalRead, Free: true, UMR: true,
		RemoteInval: kind == 2,
		QPN:         engine.AnyQPN, PD: h.pd, Octowords: 4, Variant: 1}))
}

// TestWindows binds, uses and invalidates memory windows of both types, locally
// and remotely, and checks that other accesses are refused.
func TestWindows(t *testing.T) {
	for kind := 1; kind <= 2; kind++ {
		run(t, 2, engine.Config{CQEVersion: 1}, func(w *world) {
			p := newPair(w, engine.QPAttr{})
			mw := p.b.h.window(kind)
			qpn := uint32(engine.AnyQPN)
			if kind == 2 {
				qpn = p.b.number
			}
			through := func(op uint8, off, n int) wqe {
				x := wqe{op: op}.words(p.bm.addr+uint64(off), uint64(mw.Key())<<32)
				return x.data(p.am, 0, n)
			}
			w.do(func() {
				p.b.post(bind(mw, p.bm, 100, 1000, engine.RemoteWrite|engine.RemoteRead, qpn).wqe())
			})
			p.b.scq.expect("bind", sent)
			p.am.put(0, pattern(1000, 3))
			w.do(func() { p.a.post(through(prm.OpcodeWrite, 100, 1000), through(prm.OpcodeRead, 600, 500)) })
			p.a.scq.expect("through the window", sent, sent)
			if !bytes.Equal(p.bm.get(100, 1000), pattern(1000, 3)) {
				w.t.Error("other bytes arrived")
			}
			if kind == 2 {
				w.do(func() {
					p.b.recv(p.bm, 0, 8)
					p.a.post(wqe{op: prm.OpcodeSendInval, imm: mw.Key()}.data(p.am, 0, 8))
				})
				p.a.scq.expect("SEND with invalidate", sent)
				p.b.rcq.expect("SEND with invalidate", cqe{op: prm.CQERespSendInv, imm: mw.Key(), bytes: 8})
				if !mw.Free {
					w.t.Error("the window is not invalid")
				}
				w.do(func() { p.b.post(bind(mw, p.bm, 0, 100, engine.RemoteRead, qpn).wqe()) })
				p.b.scq.expect("bound again", sent)
			}
			w.do(func() { p.b.post(unbind(mw, qpn).wqe()) })
			p.b.scq.expect("unbind", sent)
			w.do(func() { p.a.post(through(prm.OpcodeRead, 0, 8)) })
			p.a.scq.expect("after the window", sendError(transport.RemoteAccess))
		})
	}
}

// TestUnusedPieces checks that entries of an inline list that the length does not need are ignored: the kernel leaves
// there what the ring had before. They do not become accessible with a later length.
func TestUnusedPieces(t *testing.T) {
	run(t, 1, engine.Config{CQEVersion: 1}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		mw := p.a.h.window(1)
		w.do(func() {
			u := bind(mw, p.am, 0, 100, engine.RemoteRead, engine.AnyQPN)
			for range 3 {
				u.list = append(u.list, bytes.Repeat([]byte{0x5a}, 16)...)
			}
			p.a.post(u.wqe())
		})
		p.a.scq.expect("a list with old entries behind it", sent)
		read := func(n int) wqe {
			return wqe{op: prm.OpcodeRead}.words(p.am.addr, uint64(mw.Key())<<32).data(p.bm, 0, n)
		}
		w.do(func() { p.b.post(read(100)) })
		p.b.scq.expect("the window", sent)
		w.do(func() {
			longer := umr{key: mw.Key(), mask: prm.UMRMaskLen, flags: []prm.Field{prm.UMRInline},
				ctx: map[prm.Field]uint64{prm.MKCLen: 5000}}
			p.a.post(longer.wqe())
			p.b.post(read(200))
		})
		p.b.scq.expect("a longer window without more memory", sendError(transport.RemoteAccess))
	})
}

// TestBindErrors checks binds that are refused.
func TestBindErrors(t *testing.T) {
	tests := map[string]func(p *pair) umr{
		"beyond the memory": func(p *pair) umr {
			return bind(p.a.h.window(1), p.am, 1<<16-50, 100, engine.RemoteRead, engine.AnyQPN)
		},
		"writing what may not be written": func(p *pair) umr {
			return bind(p.a.h.window(1), p.a.h.register(100, engine.LocalRead), 0, 100, engine.RemoteWrite, engine.AnyQPN)
		},
		"a window of another PD": func(p *pair) umr {
			h, own := p.a.h, p.a.h.pd
			h.pd = must(h.CreatePD())
			mw := h.window(1)
			h.pd = own
			return bind(mw, p.am, 0, 100, engine.RemoteRead, engine.AnyQPN)
		},
		"a key that cannot be updated": func(p *pair) umr {
			return bind(p.am.MKey, p.am, 0, 100, engine.RemoteRead,
				engine.AnyQPN)
		},
		"a window that is bound": func(p *pair) umr {
			mw := p.a.h.window(2)
			mw.Free = false
			return bind(mw, p.am, 0, 100, engine.RemoteRead, p.a.number)
		},
		"another queue pair's window": func(p *pair) umr {
			mw := p.a.h.window(2)
			mw.Free, mw.QPN = false, 0x999
			return unbind(mw, p.a.number)
		},
		"a list beyond its room": func(p *pair) umr {
			u := bind(p.a.h.window(1), p.am, 0, 100, engine.RemoteRead, engine.AnyQPN)
			u.offset = 1
			return u
		},
		"a free key": func(p *pair) umr {
			mw := p.a.h.window(1)
			return umr{key: mw.Key(), flags: []prm.Field{prm.UMRInline, prm.UMRCheckFree}}
		},
	}
	for name, make := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, 1, engine.Config{}, func(w *world) {
				p := newPair(w, engine.QPAttr{})
				w.do(func() { p.a.post(make(p).wqe(), wqe{op: prm.OpcodeNOP}) })
				p.a.scq.expect(name, sendError(transport.BindError), flushed)
			})
		})
	}
}

// TestUpdate fills a key with pages from the driver's queue pair, moves it to
// another protection domain, removes pages, and revokes it.
func TestUpdate(t *testing.T) {
	run(t, 1, engine.Config{CQEVersion: 1}, func(w *world) {
		h := w.hosts[0]
		p := newPair(w, engine.QPAttr{})
		var u *qp
		var k *engine.MKey
		var list *region
		var pages []uint64
		w.do(func() {
			u = h.newQP(engine.QPAttr{Service: engine.ServiceUMR, Source: engine.FromNone})
			u.up(engine.QPAttr{})
			k = must(h.CreateMKey(engine.MKeyAttr{Mode: engine.MTT, Free: true, UMR: true, QPN: engine.AnyQPN, PD: h.pd,
				Octowords: 64, Variant: 9}))
			list = h.register(1024, allRights)
			for i := range 8 {
				pages = append(pages, h.alloc(4096))
				list.put(8*i, be.AppendUint64(nil, pages[i]|3))
			}
			p.am.put(0, pattern(5000, 1))
			u.post(umr{key: k.Key(), flags: []prm.Field{prm.UMRCheckNotFree, prm.UMROffsetEnable}, words: 4, pointed: list,
				mask: prm.UMRMaskLen | prm.UMRMaskStart | prm.UMRMaskPageSize | prm.UMRMaskPD | prm.UMRMaskFree | prm.UMRMaskKey |
					prm.UMRMaskQPN |
					prm.UMRMaskLocalRead | prm.UMRMaskLocalWrite | prm.UMRMaskRemoteWrite,
				ctx: map[prm.Field]uint64{prm.MKCMKey70: 10, prm.MKCQPN: engine.AnyQPN, prm.MKCPD: uint64(h.pd),
					prm.MKCLogPageSize: 12, prm.MKCLR: 1, prm.MKCLW: 1, prm.MKCRW: 1,
					prm.MKCStartAddr: 0x10000, prm.MKCLen: 8 * 4096}}.wqe())
		})
		u.scq.expect("enabled", sent)
		at := func(off uint64) wqe { return wqe{op: prm.OpcodeWrite}.words(0x10000+off, uint64(k.Key())<<32) }
		w.do(func() { p.a.post(at(4000).data(p.am, 0, 5000)) })
		p.a.scq.expect("through the pages", sent)
		if got := h.bytes(pages[1], 4096); !bytes.Equal(got, pattern(5000, 1)[96:96+4096]) {
			w.t.Error("other bytes arrived")
		}
		w.do(func() {
			list.put(0, make([]byte, 16)) // pages 2 and 3 are removed
			u.post(umr{key: k.Key(), flags: []prm.Field{prm.UMRCheckFree, prm.UMROffsetEnable}, offset: 1, words: 1,
				pointed: list}.wqe())
			p.a.post(at(0).data(p.am, 0, 2*4096))
		})
		u.scq.expect("removed", sent)
		p.a.scq.expect("the others", sent)
		w.do(func() { p.a.post(at(2*4096).data(p.am, 0, 1)) })
		p.a.scq.expect("a removed page", sendError(transport.RemoteAccess))
		w.do(func() {
			pd := must(h.CreatePD())
			u.post(umr{key: k.Key(), flags: []prm.Field{prm.UMRInline}, mask: prm.UMRMaskFree | prm.UMRMaskPD,
				ctx: map[prm.Field]uint64{prm.MKCFree: 1, prm.MKCPD: uint64(pd)}}.wqe())
		})
		u.scq.expect("revoked", sent)
		if !k.Free || k.PD == h.pd {
			w.t.Errorf("the key is free: %t, of PD %d", k.Free, k.PD)
		}
	})
}

// TestLocalInvalidate checks the local invalidate opcode.
func TestLocalInvalidate(t *testing.T) {
	run(t, 1, engine.Config{}, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		mw := p.a.h.window(2)
		mw.Free = false
		w.do(func() { p.a.post(wqe{op: prm.OpcodeLocalInval, imm: mw.Key()}) })
		p.a.scq.expect("invalidate", sent)
		if !mw.Free {
			w.t.Error("the window is not invalid")
		}
		w.do(func() { p.a.post(wqe{op: prm.OpcodeLocalInval, imm: p.am.Key()}) })
		p.a.scq.expect("a key that cannot be", sendError(transport.BindError))
	})
}
