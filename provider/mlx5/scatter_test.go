package mlx5

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// carriers returns how many entries of all CQs carry a message.
func (s *soft) carriers() (n int) {
	for _, q := range s.CQs {
		for i := range 1 << q.Log {
			b, err := s.adapter.View(q.Entries+uint64((i+1)*q.Size-1), 1)
			check(s.t, err)
			if b[0]>>4 != 0xf && b[0]&formatMask != 0 {
				n++
			}
		}
	}
	return n
}

// shortKits calls f with kits whose completions carry up to 32 and 64 bytes.
func shortKits(t *testing.T, f func(t *testing.T, k kit, most int)) {
	for size, most := range map[int]int{64: 32, 128: 64} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			k := standard()
			k.set.cqeSize = size
			k.resp = func(r *uapi.Mlx5IbAllocUcontextResp) {
				r.CompMask |= uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY
				r.DumpFillMkey = engine.NullMKey
			}
			f(t, k, most)
		})
	}
}

// TestShortMessages checks that messages of every size arrive in memory of all kinds, through a QP's receives and
// through an SRQ. Short ones arrive in their completions, unless the environment or the QP's options disable that.
func TestShortMessages(t *testing.T) {
	shortKits(t, func(t *testing.T, k kit, most int) {
		for _, c := range []struct {
			srq, off, whole bool
			option          ScatterToCQE
		}{{}, {srq: true}, {off: true}, {whole: true}, {srq: true, whole: true}, {option: ScatterDisabled},
			{option: ScatterAllowed}} {
			k.set.scatter = !c.off && c.option != ScatterAllowed // which overrides the environment
			d := newDesk(t, k)
			cfg := uverbs.QPConfig{SendCQ: good(d.c.CreateCQ(uverbs.CQConfig{Entries: 3}))(t), MaxRecvSGE: 4,
				Options: &QPOptions{ScatterToCQE: c.option}}
			c.off = c.off || c.option == ScatterDisabled
			if c.srq {
				cfg.SRQ = good(d.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 2, MaxSGE: 4}))(t)
			}
			q := d.loop(t, cfg)
			null := good(d.pd.AllocNullMR())(t)
			shifted := good(d.pd.RegMRIOVA(d.mr.Bytes()[0x2000:0x3000], 0x7000, uverbs.LocalWrite))(t)
			for n := range 80 {
				mem := d.mr.Bytes()
				for i := range n {
					mem[i] = byte(n + i + 1)
				}
				clear(mem[0x2000:])
				wr := uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{d.mr.SGE(0x4000, 5), null.SGE(0, 3), shifted.SGE(0x10, 9),
					d.mr.SGE(0x5000, 200)}}
				if c.whole { // in one SGE
					wr.SGL = []uverbs.SGE{d.mr.SGE(0x4000, 100)}
				}
				post := q.PostRecv
				if c.srq {
					post = cfg.SRQ.PostRecv
				}
				_, err := post(wr)
				check(t, err)
				_, err = q.PostSend(uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSendImm, Imm: 77, Flags: uverbs.Signaled,
					SGL: []uverbs.SGE{d.mr.SGE(0, n)}})
				check(t, err)
				if carries := d.s.carriers() > 0; carries != (n > 0 && n <= most && !c.off) {
					t.Fatalf("%+v: %d bytes come in a completion: %v", c, n, carries)
				}
				for range 2 {
					wc := one(t, cfg.SendCQ)
					if wc.Err() != nil || wc.WRID == 1 && (wc.ByteLen != uint32(n) || wc.Imm != 77 || wc.Opcode != uverbs.WCRecv ||
						wc.Flags != uverbs.WCWithImm || wc.SrcQP != 0 && wc.SrcQP != q.QPN()) {
						t.Fatalf("%+v: %d bytes: %+v", c, n, wc)
					}
				}
				if want := append(bytes.Clone(mem[:n]), make([]byte, 100)...); c.whole &&
					!bytes.Equal(mem[0x4000:][:len(want)], want) {
					t.Fatalf("%+v: %d bytes arrived as %x, want %x", c, n, mem[0x4000:][:len(want)], want)
				} else if c.whole {
					d.s.vacate()
					continue
				}
				got := bytes.Join([][]byte{mem[0x4000:0x4005], mem[:min(n, 8)][min(n, 5):], mem[0x2010:0x2019], mem[0x5000:0x5050]},
					nil)
				if want := append(bytes.Clone(mem[:n]), make([]byte, 200)...)[:len(got)]; !bytes.Equal(got, want) {
					t.Fatalf("%+v: %d bytes arrived as %x, want %x", c, n, got, want)
				}
				d.s.vacate()
			}
		}
	})
}

// vacate marks the polled entries as carrying no message.
func (s *soft) vacate() {
	for _, q := range s.CQs {
		for i := range 1 << q.Log {
			b, err := s.adapter.View(q.Entries+uint64((i+1)*q.Size-1), 1)
			check(s.t, err)
			b[0] &^= formatMask
		}
	}
}

// TestShortAnswers checks that the results of short READs and atomics arrive in completions if all requests are
// signaled or the QP's options allow it, at every place of the ring.
func TestShortAnswers(t *testing.T) {
	shortKits(t, func(t *testing.T, k kit, most int) {
		for _, c := range []struct {
			all, carries bool
			option       ScatterToCQE
		}{{all: true, carries: true}, {}, {carries: true, option: ScatterAllowed}, {all: true, option: ScatterDisabled}} {
			d := newDesk(t, k)
			x := &trial{T: t, d: d, seen: map[string]map[int]bool{}}
			cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 31}))(t)
			x.q = d.loop(t, uverbs.QPConfig{SendCQ: cq, MaxSendSGE: 4, SignalAll: c.all,
				Options: &QPOptions{ScatterToCQE: c.option}})
			for range ringBlocks {
				for _, s := range []shape{{0, 0, 0}, {0, 1, 1}, {0, 1, 32}, {0, 4, 8}, {0, 4, 16}, {0, 3, 30}} {
					x.one(uverbs.OpRead, s, false)
					if carries := d.s.carriers() > 0; carries != (c.carries && s.n > 0 && s.length() <= most) {
						t.Fatalf("%+v comes in a completion: %v", s, carries)
					}
					d.s.vacate()
				}
				x.old(uverbs.OpCompareSwap)
				x.old(uverbs.OpFetchAdd)
				d.s.vacate()
			}
			for name, places := range x.seen {
				if len(places) < ringBlocks/4 {
					t.Errorf("%s was posted at %d places", name, len(places))
				}
			}
			d.s.quiet()
		}
	})
}

// old posts an atomic and checks its result.
func (x *trial) old(op uverbs.Opcode) {
	x.Helper()
	clear(x.d.mr.Bytes()[:8])
	x.d.mr.Bytes()[wordArea+7] = byte(x.cur)
	want := bytes.Clone(x.d.mr.Bytes()[wordArea:][:8])
	_, err := x.q.PostSend(uverbs.SendWR{WRID: 3, Opcode: op, Flags: uverbs.Signaled, RemoteAddr: x.d.mr.Addr() + wordArea,
		RKey: x.d.mr.RKey(), SGL: []uverbs.SGE{x.d.mr.SGE(0, 8)}, CompareAdd: 1})
	check(x.T, err)
	x.cur++
	if wc := one(x.T, x.q.SendCQ()); wc.Err() != nil || wc.ByteLen != 8 {
		x.Fatalf("%v: %+v", op, wc)
	}
	if got := x.d.mr.Bytes()[:8]; !bytes.Equal(got, want) {
		x.Fatalf("%v brings %x, want %x", op, got, want)
	}
}

// TestShortMessageNowhere checks that a short message for memory that was deregistered or must not be written fails the
// receive, as it does if the device writes the message.
func TestShortMessageNowhere(t *testing.T) {
	d := newDesk(t, standard())
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
	q := d.loop(t, uverbs.QPConfig{SendCQ: cq, MaxRecvSGE: 2})
	deliver := func(sgl []uverbs.SGE, meanwhile func()) (status uverbs.WCStatus) {
		_, err := q.PostRecv(uverbs.RecvWR{WRID: 1, SGL: sgl})
		check(t, err)
		_, err = q.PostSend(uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
			SGL: []uverbs.SGE{d.mr.SGE(0, 20)}})
		check(t, err)
		meanwhile()
		for range 2 {
			if wc := one(t, cq); wc.WRID == 1 {
				status = wc.Status
			}
		}
		return status
	}
	nothing := func() {}
	copy(d.mr.Bytes(), "twenty bytes of text")

	gone := good(d.pd.Alloc(100, uverbs.LocalWrite))(t)
	if s := deliver([]uverbs.SGE{gone.SGE(0, 100)}, func() { check(t, gone.Close()) }); s != uverbs.WCLocProtErr {
		t.Errorf("a closed MR: %v", s)
	}
	constant := good(d.pd.Alloc(100, 0))(t)
	if s := deliver([]uverbs.SGE{constant.SGE(0, 100)}, nothing); s != uverbs.WCLocProtErr ||
		!bytes.Equal(constant.Bytes(), make([]byte, 100)) {
		t.Errorf("an MR without LocalWrite: %v, %q", s, constant.Bytes())
	}
	outside := d.mr.SGE(0x1000, 10)
	outside.Addr += 1 << 16
	if s := deliver([]uverbs.SGE{d.mr.SGE(0x1000, 10), outside}, nothing); s != uverbs.WCLocProtErr {
		t.Errorf("a range outside: %v", s)
	}
	heap := make([]byte, 8192)
	mr := good(d.pd.RegMR(heap[:4096], uverbs.LocalWrite))(t)
	if s := deliver([]uverbs.SGE{mr.SGE(9, 100)}, nothing); s != uverbs.WCSuccess ||
		string(heap[9:29]) != "twenty bytes of text" {
		t.Errorf("bytes of the heap: %v, %q", s, heap[9:29])
	}
	if s := deliver([]uverbs.SGE{mr.SGE(9, 100)}, func() { check(t, mr.Close()) }); s != uverbs.WCLocProtErr {
		t.Errorf("bytes of the heap that are let go: %v", s)
	}
	if n := q.RecvsOutstanding(); n != 0 {
		t.Errorf("%d receives are outstanding", n)
	}
}

// TestShortMessageForeign checks that queue pairs that were created while there was memory that only the device can
// write leave short messages to the device.
func TestShortMessageForeign(t *testing.T) {
	d := newDesk(t, standard())
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
	asked := func() bool {
		q := d.loop(t, uverbs.QPConfig{SendCQ: cq})
		defer func() { check(t, q.Close()) }()
		_, err := q.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{d.mr.SGE(0, 8)}})
		check(t, err)
		_, err = q.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, SGL: []uverbs.SGE{d.mr.SGE(0, 8)}})
		check(t, err)
		n := d.s.carriers()
		poll(t, cq, 0, 0)
		d.s.vacate()
		return n > 0
	}
	if !asked() {
		t.Error("the first queue pair does not have short messages in completions")
	}
	extension := driver.ExtensionConfig{Kind: "key", Memory: true,
		Create:  func(driver.Extension) (uint32, error) { return 1, nil },
		Destroy: func() error { return nil }}
	for name, open := range map[string]func() io.Closer{
		"imported memory": func() io.Closer { return good(d.pd.ImportMR(d.mr.Handle()))(t) },
		"a key of DevX":   func() io.Closer { return good(driver.Extend(d.c, "create", extension))(t) },
	} {
		m := open()
		if asked() {
			t.Errorf("a queue pair beside %s has short messages in completions", name)
		}
		check(t, m.Close())
		if !asked() {
			t.Errorf("a queue pair after %s does not have short messages in completions", name)
		}
	}
	extension.Create = func(driver.Extension) (uint32, error) { return 0, unix.EINVAL }
	if _, err := driver.Extend(d.c, "create", extension); err == nil || !asked() {
		t.Errorf("after a key that was not created (%v), no short messages are in completions", err)
	}
}

// TestShortMessageRace closes or reregisters an MR while short messages for it are polled. It checks that each message
// is either written to registered memory or not at all.
func TestShortMessageRace(t *testing.T) {
	d := newDesk(t, standard())
	d.s.broken = engine.RuleKey
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 63}))(t)
	q := d.loop(t, uverbs.QPConfig{SendCQ: cq})
	for range 200 {
		mr := good(d.pd.Alloc(4096, uverbs.LocalWrite))(t)
		for i := range uint64(8) {
			_, err := q.PostRecv(uverbs.RecvWR{WRID: i, SGL: []uverbs.SGE{mr.SGE(int(i)*64, 64)}})
			check(t, err)
			_, err = q.PostSend(uverbs.SendWR{WRID: 100, Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
				SGL: []uverbs.SGE{d.mr.SGE(0, 24)}})
			check(t, err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := mr.Close(); err != nil {
				t.Error(err)
			}
		})
		failed := false
		for range 16 {
			switch wc := one(t, cq); {
			case wc.Status == uverbs.WCLocProtErr && wc.WRID != 100:
				failed = true
			case wc.Err() != nil || wc.WRID != 100 && failed:
				t.Fatalf("%+v, after one that failed: %v", wc, failed)
			}
		}
		wg.Wait()
	}
}

// TestStrangeCarriers checks that entries that carry invalid messages are errors.
func TestStrangeCarriers(t *testing.T) {
	for name, change := range map[string]func(e *block){
		"64 bytes in an entry of 64": func(e *block) { e[7] |= be(carries64) },
		"compressed":                 func(e *block) { e[7] |= be(formatMask) },
		"more than fits":             func(e *block) { e[7] |= be(carries32); e[5] = be(33) },
		"of a WRITE":                 func(e *block) { e[7] = e[7]&^be(opcodeMask) | be(carries32) },
	} {
		b := newBench(t, uverbs.QPConfig{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}, nil)
		p, _, err := b.ctx.CreateCQ(&driver.CQConfig{Entries: 15}, noCQCommand)
		check(t, err)
		q := p.(*cq)
		_, err = b.PostSend([]uverbs.SendWR{{Opcode: uverbs.OpWrite}})
		check(t, err)
		_, err = b.PostRecv([]uverbs.RecvWR{{}})
		check(t, err)
		e := q.at(0)
		e[4], e[7] = be(uint64(b.target.key)<<32), be(benchQPN<<32|cqeSend<<opcodeShift)
		change(e)
		if n, err := q.Poll(make([]uverbs.WC, 1)); n != 0 || !errors.Is(err, uverbs.ErrABI) {
			t.Errorf("%s: %d completions, %v", name, n, err)
		}
		check(t, q.Retire(true))
	}
}

// TestShortMessageAllocates checks that short messages are polled without allocations.
func TestShortMessageAllocates(t *testing.T) {
	d := newDesk(t, standard())
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 255}))(t)
	q := d.loop(t, uverbs.QPConfig{SendCQ: cq})
	const runs = 14
	for range runs + 1 { // AllocsPerRun calls its function once more
		_, err := q.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{d.mr.SGE(0, 24)}})
		check(t, err)
		_, err = q.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{d.mr.SGE(64, 24)}})
		check(t, err)
	}
	if d.s.carriers() != runs+1 {
		t.Fatalf("%d completions carry a message", d.s.carriers())
	}
	wcs := make([]uverbs.WC, 1)
	if n := testing.AllocsPerRun(runs, func() {
		if n, err := cq.Poll(wcs); n != 1 || err != nil || wcs[0].Err() != nil {
			t.Error(n, err, wcs[0])
		}
	}); n != 0 {
		t.Errorf("a short message allocates %v times", n)
	}
}

// TestUnknownScatter checks that CreateQP refuses an unknown value.
func TestUnknownScatter(t *testing.T) {
	d := newDesk(t, standard())
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 1}))(t)
	unknown := &QPOptions{ScatterToCQE: ScatterAllowed + 1}
	_, err := d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1,
		Options: unknown})
	if !errors.Is(err, uverbs.ErrInvalid) || !strings.Contains(err.Error(), "ScatterToCQE: value 3 is unknown") {
		t.Errorf("an unknown value: %v", err)
	}
}
