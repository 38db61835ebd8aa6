package providertest

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// datagram returns a signaled SEND of n bytes from offset 0 to the QP itself.
func (r *Rig) datagram(id uint64, n int) uverbs.SendWR {
	return uverbs.SendWR{WRID: id, Opcode: uverbs.OpSend, Flags: uverbs.Signaled, SGL: []uverbs.SGE{r.sge(0, n)},
		AH: r.AH, QPN: r.QPN, QKey: r.QKey}
}

// hear posts a receive into memory at offset off.
func (r *Rig) hear(t *testing.T, id uint64, off int) {
	t.Helper()
	r.recv(t, uverbs.RecvWR{WRID: id, SGL: []uverbs.SGE{r.sge(off-uverbs.GRHLen, uverbs.GRHLen+r.MTU)}})
}

// heard checks the completions of a send and of the receive of n bytes.
func (r *Rig) heard(t *testing.T, send, recv uint64, n int, imm uint32) {
	t.Helper()
	for _, wc := range r.done(t, 2) {
		switch {
		case wc.Opcode == uverbs.WCSend && wc.WRID == send:
		case wc.Opcode == uverbs.WCRecv && wc.WRID == recv && int(wc.ByteLen) == uverbs.GRHLen+n && wc.SrcQP == r.QPN &&
			(wc.Flags&uverbs.WCGRH == 0) == r.NoGRH && wc.Imm == imm && (wc.Flags&uverbs.WCWithImm != 0) == (imm != 0):
		default:
			t.Errorf("completion %+v", wc)
		}
	}
}

func udSendRecv(t *testing.T, r *Rig) {
	copy(r.Mem, "a datagram from two places")
	for lap := range uint64(50) { // around the rings
		r.hear(t, lap, 10000)
		wr := r.datagram(1000+lap, 26)
		wr.SGL = []uverbs.SGE{r.sge(0, 5), r.sge(5, 21)}
		r.send(t, wr)
		r.heard(t, 1000+lap, lap, 26, 0)
		r.want(t, 10000, "a datagram from two places")
		clear(r.Mem[10000:10100])
	}
	r.hear(t, 1, 10000)
	r.send(t, uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSendImm, Flags: uverbs.Signaled, Imm: 0x01020304,
		Inline: []byte("inline"), AH: r.AH, QPN: r.QPN, QKey: r.QKey})
	r.heard(t, 2, 1, 6, 0x01020304)
	r.want(t, 10000, "inline\x00")
	r.hear(t, 1, 10000)
	r.send(t, r.datagram(2, r.MTU))
	r.heard(t, 2, 1, r.MTU, 0)
}

func udBatch(t *testing.T, r *Rig) {
	copy(r.Mem, "batch")
	for lap := range uint64(20) {
		r.hear(t, 1, 10000)
		r.hear(t, 2, 20000)
		q := r.QP
		q.Begin()
		q.Op(uverbs.OpSend, 0, 0, 0, 0, 0)
		r.udAddr(r.AH, r.QPN, r.QKey)
		q.SGE(r.sge(0, 2))
		q.SGE(r.sge(2, 3))
		q.Op(uverbs.OpSendImm, uverbs.Signaled, lap, 0, 0, 5)
		q.Inline([]byte("inline"))
		r.udAddr(r.AH, r.QPN, r.QKey)
		if err := q.Submit(); err != nil {
			t.Fatal(err)
		}
		for _, wc := range r.done(t, 3) {
			if wc.Opcode == uverbs.WCSend && wc.WRID != lap || wc.WRID == 2 && wc.Opcode == uverbs.WCRecv && wc.Imm != 5 {
				t.Errorf("completion %+v", wc)
			}
		}
		r.want(t, 10000, "batch")
		r.want(t, 20000, "inline")
		clear(r.Mem[10000:20100])
	}
}

// udBad returns requests that a UD QP refuses.
func (r *Rig) udBad() map[string]struct {
	wr   uverbs.SendWR
	want error
} {
	change := func(f func(*uverbs.SendWR)) uverbs.SendWR {
		wr := r.datagram(7, 8)
		f(&wr)
		return wr
	}
	return map[string]struct {
		wr   uverbs.SendWR
		want error
	}{
		"no AH":     {change(func(w *uverbs.SendWR) { w.AH = nil }), uverbs.ErrNoAH},
		"WRITE":     {change(func(w *uverbs.SendWR) { w.Opcode = uverbs.OpWrite }), uverbs.ErrQPType},
		"WRITE_IMM": {change(func(w *uverbs.SendWR) { w.Opcode = uverbs.OpWriteImm }), uverbs.ErrQPType},
		"READ":      {change(func(w *uverbs.SendWR) { w.Opcode = uverbs.OpRead }), uverbs.ErrQPType},
		"longer than the MTU": {change(func(w *uverbs.SendWR) { w.SGL = []uverbs.SGE{r.sge(0, r.MTU), r.sge(0, 1)} }),
			uverbs.ErrTooLong},
		"range": {change(func(w *uverbs.SendWR) { w.SGL = []uverbs.SGE{{Length: ^uint32(0)}} }),
			uverbs.ErrRange},
	}
}

func udBadRequest(t *testing.T, r *Rig) {
	good := r.datagram(1, 8)
	for name, c := range r.udBad() {
		r.hear(t, 2, 10000)
		if n, err := r.QP.PostSend([]uverbs.SendWR{good, c.wr, good}); n != 1 || !errors.Is(err, c.want) {
			t.Errorf("%s: PostSend: %d, %v; want 1, %v", name, n, err, c.want)
		}
		r.heard(t, 1, 2, 8, 0)
	}
}

func udBatchDropped(t *testing.T, r *Rig) {
	q := r.QP
	add := func(wr *uverbs.SendWR) {
		q.Op(wr.Opcode, wr.Flags, wr.WRID, 0, 0, 0)
		if wr.AH != nil {
			r.udAddr(wr.AH, wr.QPN, wr.QKey)
		}
		for _, s := range wr.SGL {
			q.SGE(s)
		}
	}
	good := r.datagram(1, 8)
	for name, c := range r.udBad() {
		for _, last := range []bool{false, true} {
			q.Begin()
			add(&good)
			add(&c.wr)
			if !last {
				add(&good)
			}
			if err := q.Submit(); !errors.Is(err, c.want) {
				t.Errorf("%s: Submit: %v, want %v", name, err, c.want)
			}
		}
	}
	q.Begin()
	r.udAddr(r.AH, r.QPN, r.QKey)
	if err := q.Submit(); !errors.Is(err, uverbs.ErrMalformed) {
		t.Errorf("an address for no operation: %v", err)
	}
	r.hear(t, 2, 10000)
	r.send(t, r.datagram(3, 8))
	r.heard(t, 3, 2, 8, 0)
}

// udReset checks that RESET empties the queues, and that the QP sends and receives afterwards.
func udReset(t *testing.T, r *Rig) {
	if r.refusesReset(t) {
		return
	}
	for range 3 {
		r.hear(t, 1, 10000)
		r.QP.Begin()
		r.QP.Op(uverbs.OpSend, 0, 1, 0, 0, 0)
		r.QP.Abort()
		check(t, r.QP.Reset())
		r.hear(t, 2, 10000)
		r.send(t, r.datagram(3, 8))
		r.heard(t, 3, 2, 8, 0)
	}
}

func udNothingAllocated(t *testing.T, r *Rig) {
	wrs := []uverbs.SendWR{r.datagram(1, 8),
		{WRID: 2, Opcode: uverbs.OpSend, Inline: []byte("x"), AH: r.AH, QPN: r.QPN, QKey: r.QKey}}
	recvs := []uverbs.RecvWR{{WRID: 3, SGL: []uverbs.SGE{r.sge(10000, 200)}},
		{WRID: 4, SGL: []uverbs.SGE{r.sge(10200, 200)}}}
	wcs := make([]uverbs.WC, 2)
	n := testing.AllocsPerRun(20, func() {
		r.recv(t, recvs...)
		r.send(t, wrs...)
		for got := 0; got < 3; {
			got += r.take(t, wcs)
		}
		r.recv(t, recvs[:1]...)
		r.QP.Begin()
		r.QP.Op(uverbs.OpSend, uverbs.Signaled, 4, 0, 0, 0)
		r.udAddr(r.AH, r.QPN, r.QKey)
		r.QP.SGE(wrs[0].SGL[0])
		if err := r.QP.Submit(); err != nil {
			t.Fatal(err)
		}
		for got := 0; got < 2; {
			got += r.take(t, wcs)
		}
	})
	if n != 0 && r.Work == nil { // Work may allocate
		t.Errorf("%v allocations", n)
	}
}
