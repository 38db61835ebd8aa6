package providertest

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// iwarpRead returns a READ of n bytes from offset from to offset to.
func (r *Rig) iwarpRead(id uint64, from, to, n int) uverbs.SendWR {
	wr := r.write(id, to, from, n)
	wr.Opcode = uverbs.OpRead
	return wr
}

func iwarpWriteAndRead(t *testing.T, r *Rig) {
	big := strings.Repeat("sixteen bytes ..", 1024)
	copy(r.Mem, big)
	write := r.write(1, 0, 20000, 100)
	write.SGL = append(write.SGL, r.sge(100, len(big)-100))
	r.send(t, write)
	if wc := r.done(t, 1)[0]; wc.WRID != 1 || wc.Opcode != uverbs.WCWrite {
		t.Errorf("completion %+v", wc)
	}
	fenced := r.write(3, 40000, 60000, 16)
	fenced.Flags |= uverbs.Fence
	r.send(t, r.iwarpRead(2, 20000, 40000, len(big)), fenced)
	if wc := r.done(t, 2)[0]; wc.WRID != 2 || wc.Opcode != uverbs.WCRead || wc.ByteLen != uint32(len(big)) {
		t.Errorf("completion %+v", wc)
	}
	r.want(t, 20000, big)
	r.want(t, 40000, big)
	r.want(t, 60000, big[:16]) // the fence waited for the READ
}

func iwarpBatch(t *testing.T, r *Rig) {
	copy(r.Mem, "batch of several")
	r.recv(t, uverbs.RecvWR{WRID: 10, SGL: []uverbs.SGE{r.sge(1000, 64)}})
	q := r.QP
	q.Begin()
	q.Op(uverbs.OpWrite, 0, 1, r.Addr+2000, r.RKey, 0)
	q.SGE(r.sge(0, 5))
	q.SGE(r.sge(5, 11))
	data := []byte("inline")
	q.OpInline(uverbs.OpWrite, uverbs.Signaled, 2, r.Addr+3000, r.RKey, data)
	clear(data)
	q.OpSGE(uverbs.OpRead, uverbs.Signaled, 3, r.Addr, r.RKey, r.sge(4000, 16))
	q.Op(uverbs.OpSend, 0, 4, 0, 0, 0)
	q.SGE(r.sge(0, 16))
	q.Op(uverbs.OpWrite, uverbs.Signaled, 5, r.Addr, r.RKey, 0) // no data
	if err := q.Submit(); err != nil {
		t.Fatal(err)
	}
	var sends []uint64
	for _, wc := range r.done(t, 4) {
		if wc.Opcode == uverbs.WCRecv {
			if wc.WRID != 10 || wc.ByteLen != 16 {
				t.Errorf("completion %+v", wc)
			}
			continue
		}
		sends = append(sends, wc.WRID)
	}
	// The peer's response to a READ may come after later requests.
	if slices.Sort(sends); !slices.Equal(sends, []uint64{2, 3, 5}) {
		t.Errorf("sends %v completed, want 2, 3, 5", sends)
	}
	for _, off := range []int{1000, 2000, 4000} {
		r.want(t, off, "batch of several")
	}
	r.want(t, 3000, "inline\x00")
}

// iwarpRefused posts what iWARP does not have, in a list and in a batch.
func iwarpRefused(t *testing.T, r *Rig) {
	two := r.iwarpRead(1, 0, 100, 1)
	two.SGL = append(two.SGL, r.sge(200, 1))
	fenced := r.iwarpRead(1, 0, 100, 1)
	fenced.Flags |= uverbs.Fence
	good := r.write(7, 0, 100, 1)
	for name, c := range map[string]struct {
		wr   uverbs.SendWR
		want error
	}{
		"SEND_IMM":        {uverbs.SendWR{Opcode: uverbs.OpSendImm}, uverbs.ErrOpNotSupported},
		"WRITE_IMM":       {uverbs.SendWR{Opcode: uverbs.OpWriteImm}, uverbs.ErrOpNotSupported},
		"atomic":          {uverbs.SendWR{Opcode: uverbs.OpFetchAdd}, uverbs.ErrOpNotSupported},
		"inline SEND_INV": {uverbs.SendWR{Opcode: uverbs.OpSendInv, Inline: []byte{1}}, uverbs.ErrOpNotSupported},
		"READ of 2 SGEs":  {two, uverbs.ErrTooManySGEs},
		"fenced READ":     {fenced, uverbs.ErrOpNotSupported},
	} {
		if n, err := r.QP.PostSend([]uverbs.SendWR{good, c.wr}); n != 1 || !errors.Is(err, c.want) {
			t.Errorf("%s: PostSend: %d, %v; want 1, %v", name, n, err, c.want)
		}
		r.done(t, 1)
		r.QP.Begin()
		r.QP.Op(uverbs.OpWrite, uverbs.Signaled, 8, r.Addr, r.RKey, 0)
		r.QP.Op(c.wr.Opcode, c.wr.Flags, 1, c.wr.RemoteAddr, c.wr.RKey, 0)
		if c.wr.Opcode == uverbs.OpFetchAdd {
			r.QP.Atomic(1, 0)
		}
		for _, s := range c.wr.SGL {
			r.QP.SGE(s)
		}
		if c.wr.Inline != nil {
			r.QP.Inline(c.wr.Inline)
		}
		if err := r.QP.Submit(); !errors.Is(err, c.want) {
			t.Errorf("%s: Submit: %v, want %v", name, err, c.want)
		}
		r.done(t, 0)
	}
}
