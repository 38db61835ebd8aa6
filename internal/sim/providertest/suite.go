package providertest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

func sendRecv(t *testing.T, r *Rig) {
	copy(r.Mem, "gathered from three places")
	r.recv(t, uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{r.sge(1000, 5), r.sge(2000, 100)}})
	r.send(t, uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend, Flags: uverbs.Signaled | uverbs.Solicited,
		SGL: []uverbs.SGE{r.sge(0, 9), r.sge(9, 0), r.sge(9, 17)}})
	for _, wc := range r.done(t, 2) {
		switch {
		case wc.WRID == 1 && wc.Opcode == uverbs.WCRecv && wc.ByteLen == 26 && wc.Flags&uverbs.WCWithImm == 0:
		case wc.WRID == 2 && wc.Opcode == uverbs.WCSend:
		default:
			t.Errorf("completion %+v", wc)
		}
	}
	r.want(t, 1000, "gathe")
	r.want(t, 2000, "red from three places\x00")
}

func immediate(t *testing.T, r *Rig) {
	const imm = 0x01020304
	copy(r.Mem, "immediate")
	r.recv(t, uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{r.sge(1000, 100)}}, uverbs.RecvWR{WRID: 2})
	write := r.write(0, 0, 2000, 9)
	write.Opcode, write.Flags, write.Imm = uverbs.OpWriteImm, 0, imm+1
	r.send(t, uverbs.SendWR{Opcode: uverbs.OpSendImm, Imm: imm, SGL: []uverbs.SGE{r.sge(0, 9)}}, write)
	wcs := r.done(t, 2)
	for i, op := range []uverbs.WCOpcode{uverbs.WCRecv, uverbs.WCRecvRDMAImm} {
		wc := wcs[i]
		if wc.WRID != uint64(i+1) || wc.Opcode != op || wc.Imm != imm+uint32(i) || wc.Flags&uverbs.WCWithImm == 0 ||
			wc.ByteLen != 9 {
			t.Errorf("completion %+v", wc)
		}
	}
	r.want(t, 1000, "immediate")
	r.want(t, 2000, "immediate")
}

func writeAndRead(t *testing.T, r *Rig) {
	big := strings.Repeat("sixteen bytes ..", 1024)
	copy(r.Mem, big)
	r.send(t, r.write(1, 0, 20000, len(big)))
	if wc := r.done(t, 1)[0]; wc.WRID != 1 || wc.Opcode != uverbs.WCWrite {
		t.Errorf("completion %+v", wc)
	}
	r.want(t, 20000, big)
	read := r.write(2, 0, 20000, 0)
	read.Opcode, read.SGL = uverbs.OpRead, []uverbs.SGE{r.sge(40000, 100), r.sge(41000, len(big)-100)}
	fenced := r.write(3, 41000, 60000, 16)
	fenced.Flags |= uverbs.Fence
	r.send(t, read, fenced)
	if wc := r.done(t, 2)[0]; wc.WRID != 2 || wc.Opcode != uverbs.WCRead || wc.ByteLen != uint32(len(big)) {
		t.Errorf("completion %+v", wc)
	}
	r.want(t, 40000, big[:100])
	r.want(t, 41000, big[100:])
	r.want(t, 60000, big[100:116]) // the fence waited for the READ
}

func inline(t *testing.T, r *Rig) {
	data := []byte("inline data that is taken by the post itself")
	for n := range len(data) + 1 {
		clear(r.Mem[:100])
		buf := slices.Clone(data[:n])
		wr := r.write(uint64(n), 0, 10, 0)
		wr.SGL, wr.Inline = nil, buf
		r.send(t, wr)
		clear(buf)
		r.done(t, 1)
		r.want(t, 10, string(data[:n])+"\x00")
	}
}

func unsignaled(t *testing.T, r *Rig) {
	for lap := range 3 * r.Cap.MaxSendWR {
		var wrs []uverbs.SendWR
		for i := range 5 {
			wr := r.write(uint64(lap), 0, 100, 8)
			if i < 4 {
				wr.Flags = 0
			}
			wrs = append(wrs, wr)
		}
		r.send(t, wrs...)
		if wc := r.done(t, 1)[0]; wc.WRID != uint64(lap) {
			t.Fatalf("completion %+v, want %d", wc, lap)
		}
	}
}

func batch(t *testing.T, r *Rig) {
	copy(r.Mem, "batch of several")
	r.recv(t, uverbs.RecvWR{WRID: 10, SGL: []uverbs.SGE{r.sge(1000, 64)}})
	q := r.QP
	q.Begin()
	q.Op(uverbs.OpWrite, 0, 1, r.Addr+2000, r.RKey, 0)
	q.SGE(r.sge(0, 5))
	q.SGE(r.sge(5, 11))
	q.Op(uverbs.OpWrite, uverbs.Signaled, 2, r.Addr+3000, r.RKey, 0)
	q.Inline([]byte("inline"))
	q.Op(uverbs.OpRead, uverbs.Signaled, 3, r.Addr, r.RKey, 0)
	q.SGE(r.sge(4000, 16))
	q.Op(uverbs.OpSendImm, 0, 4, 0, 0, 77)
	q.SGE(r.sge(0, 16))
	q.Op(uverbs.OpWrite, uverbs.Signaled, 5, r.Addr, r.RKey, 0) // no data
	if err := q.Submit(); err != nil {
		t.Fatal(err)
	}
	var sends []uint64
	for _, wc := range r.done(t, 4) {
		if wc.Opcode == uverbs.WCRecv {
			if wc.WRID != 10 || wc.Imm != 77 || wc.ByteLen != 16 {
				t.Errorf("completion %+v", wc)
			}
			continue
		}
		sends = append(sends, wc.WRID)
	}
	if !slices.Equal(sends, []uint64{2, 3, 5}) {
		t.Errorf("sends %v completed, want 2, 3, 5", sends)
	}
	for _, off := range []int{1000, 2000, 4000} {
		r.want(t, off, "batch of several")
	}
	r.want(t, 3000, "inline\x00")
}

func batchDropped(t *testing.T, r *Rig) {
	q := r.QP
	add := func(id uint64, n int) {
		q.Op(uverbs.OpWrite, uverbs.Signaled, id, r.Addr+2000, r.RKey, 0)
		for range n {
			q.SGE(r.sge(0, 1))
		}
	}
	q.Begin()
	add(1, 1)
	q.Abort()
	for name, c := range map[string]struct {
		spoil func()
		want  error
	}{
		"opcode": {func() { q.Op(13, 0, 0, 0, 0, 0) }, uverbs.ErrOpcode},
		"flag":   {func() { q.Op(uverbs.OpSend, 1<<7, 0, 0, 0, 0) }, uverbs.ErrOpcode},
		"inline READ": {func() { q.Op(uverbs.OpRead, 0, 0, 0, 0, 0); q.Inline([]byte{1}) },
			uverbs.ErrOpcode}, // on RC ErrMalformed, on UC ErrQPType
		"inline + SGE":  {func() { q.Inline([]byte{1}) }, uverbs.ErrMalformed},
		"SGEs":          {func() { add(3, r.Cap.MaxSendSGE+1) }, uverbs.ErrTooManySGEs},
		"inline length": {func() { add(3, 0); q.Inline(make([]byte, r.Cap.MaxInline+1)) }, uverbs.ErrInlineTooLong},
		"range":         {func() { q.SGE(uverbs.SGE{Length: ^uint32(0)}) }, uverbs.ErrRange},
		"room": {func() {
			for range r.Cap.MaxSendWR {
				add(3, 1)
			}
		}, uverbs.ErrQueueFull},
	} {
		q.Begin()
		add(2, 1)
		c.spoil()
		add(4, 1)
		if err := q.Submit(); !errors.Is(err, c.want) {
			t.Errorf("%s: Submit: %v, want %v", name, err, c.want)
		}
	}
	r.send(t, r.write(9, 0, 100, 1))
	if wc := r.done(t, 1)[0]; wc.WRID != 9 {
		t.Errorf("completion %+v of a batch that was dropped", wc)
	}
}

func badRequest(t *testing.T, r *Rig) {
	good := r.write(1, 0, 100, 1)
	for name, c := range map[string]struct {
		wr   uverbs.SendWR
		want error
	}{
		"opcode":       {uverbs.SendWR{Opcode: 13}, uverbs.ErrOpcode},
		"flag":         {uverbs.SendWR{Opcode: uverbs.OpSend, Flags: 1 << 7}, uverbs.ErrOpcode},
		"inline READ":  {uverbs.SendWR{Opcode: uverbs.OpRead, Inline: []byte{1}}, uverbs.ErrOpcode},
		"inline + SGL": {uverbs.SendWR{Opcode: uverbs.OpSend, Inline: []byte{1}, SGL: good.SGL}, uverbs.ErrMalformed},
		"SGEs": {uverbs.SendWR{Opcode: uverbs.OpSend, SGL: make([]uverbs.SGE, r.Cap.MaxSendSGE+1)},
			uverbs.ErrTooManySGEs},
		"inline length": {uverbs.SendWR{Opcode: uverbs.OpSend, Inline: make([]byte, r.Cap.MaxInline+1)},
			uverbs.ErrInlineTooLong},
		"range": {uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{{Length: ^uint32(0)}}}, uverbs.ErrRange},
		"sum": {uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{{Length: 1 << 31}, {Length: 1}}},
			uverbs.ErrRange},
	} {
		if n, err := r.QP.PostSend([]uverbs.SendWR{good, good, c.wr, good}); n != 2 || !errors.Is(err, c.want) {
			t.Errorf("%s: PostSend: %d, %v; want 2, %v", name, n, err, c.want)
		}
		r.done(t, 2)
	}
	for name, c := range map[string]struct {
		wr   uverbs.RecvWR
		want error
	}{
		"SGEs":  {uverbs.RecvWR{SGL: make([]uverbs.SGE, r.Cap.MaxRecvSGE+1)}, uverbs.ErrTooManySGEs},
		"range": {uverbs.RecvWR{SGL: []uverbs.SGE{{Length: ^uint32(0)}}}, uverbs.ErrRange},
	} {
		if n, err := r.QP.PostRecv([]uverbs.RecvWR{{}, c.wr, {}}); n != 1 || !errors.Is(err, c.want) {
			t.Errorf("%s: PostRecv: %d, %v; want 1, %v", name, n, err, c.want)
		}
	}
}
