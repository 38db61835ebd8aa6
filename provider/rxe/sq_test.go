package rxe

import (
	"bytes"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// field is a little-endian field of a WQE at a fixed offset.
type field struct {
	off, size int
	value     uint64
}

func fill(b []byte, fields []field) {
	for _, f := range fields {
		for i := range f.size {
			b[f.off+i] = byte(f.value >> (8 * i))
		}
	}
}

const everyFlag = uverbs.Fence | uverbs.Signaled | uverbs.Solicited

// golden pairs work requests with the nonzero fields of their WQEs, by offset in
// struct rxe_send_wqe.
var golden = []struct {
	name string
	wr   uverbs.SendWR
	want []field
	data []byte // at offset 208
}{
	{"SEND", uverbs.SendWR{WRID: 0x1122334455667788, Opcode: uverbs.OpSend,
		SGL: []uverbs.SGE{{Addr: 0xa1, Length: 0x40, LKey: 0xb1}}},
		[]field{{0, 8, 0x1122334455667788}, {12, 4, 2}, {184, 4, 0x40}, {188, 4, 0x40}, {196, 4, 1}, {208, 8, 0xa1},
			{216, 4, 0x40}, {220, 4, 0xb1}}, nil},
	{"SEND takes no address", uverbs.SendWR{Opcode: uverbs.OpSend, RemoteAddr: 0xdead, RKey: 0xbeef, Imm: 7},
		[]field{{12, 4, 2}}, nil},
	{"SEND_IMM", uverbs.SendWR{WRID: 1, Opcode: uverbs.OpSendImm, Flags: uverbs.Signaled, Imm: 0x01020304,
		SGL: []uverbs.SGE{{Addr: 0xa1, Length: 1, LKey: 0xb1}}},
		[]field{{0, 8, 1}, {12, 4, 3}, {16, 4, 2}, {20, 4, 0x04030201}, {184, 4, 1}, {188, 4, 1}, {196, 4, 1}, {208, 8, 0xa1},
			{216, 4, 1}, {220, 4, 0xb1}}, nil},
	{"WRITE of three SGEs", uverbs.SendWR{WRID: 2, Opcode: uverbs.OpWrite, Flags: uverbs.Fence, RemoteAddr: 0xc0ffee00,
		RKey: 0xd1, Imm: 7, SGL: []uverbs.SGE{{Addr: 0xa1, Length: 0x10, LKey: 0xb1}, {},
			{Addr: 0xa3, Length: 0x20, LKey: 0xb3}}},
		[]field{{0, 8, 2}, {12, 4, 0}, {16, 4, 1}, {24, 8, 0xc0ffee00}, {32, 4, 0xd1}, {152, 8, 0xc0ffee00}, {184, 4, 0x30},
			{188, 4, 0x30}, {196, 4, 3},
			{208, 8, 0xa1}, {216, 4, 0x10}, {220, 4, 0xb1}, {240, 8, 0xa3}, {248, 4, 0x20}, {252, 4, 0xb3}}, nil},
	{"WRITE_IMM without data", uverbs.SendWR{WRID: 3, Opcode: uverbs.OpWriteImm, Flags: everyFlag, RemoteAddr: 0xc0ffee00,
		RKey: 0xd1, Imm: 0xa0b0c0d0},
		[]field{{0, 8, 3}, {12, 4, 1}, {16, 4, 7}, {20, 4, 0xd0c0b0a0}, {24, 8, 0xc0ffee00}, {32, 4, 0xd1},
			{152, 8, 0xc0ffee00}}, nil},
	{"READ", uverbs.SendWR{WRID: 4, Opcode: uverbs.OpRead, Flags: uverbs.Signaled | uverbs.Fence, RemoteAddr: 0xc0ffee00,
		RKey: 0xd1, SGL: []uverbs.SGE{{Addr: 0xa1, Length: 1 << 31, LKey: 0xb1}}},
		[]field{{0, 8, 4}, {12, 4, 4}, {16, 4, 3}, {24, 8, 0xc0ffee00}, {32, 4, 0xd1}, {152, 8, 0xc0ffee00},
			{184, 4, 1 << 31}, {188, 4, 1 << 31}, {196, 4, 1},
			{208, 8, 0xa1}, {216, 4, 1 << 31}, {220, 4, 0xb1}}, nil},
	{"COMPARE_SWAP", uverbs.SendWR{WRID: 7, Opcode: uverbs.OpCompareSwap, Flags: uverbs.Signaled, RemoteAddr: 0xc0ffee00,
		RKey: 0xd1, Imm: 7, CompareAdd: 0x1122334455667788, Swap: 0x99aabbccddeeff00,
		SGL: []uverbs.SGE{{Addr: 0xa1, Length: 8, LKey: 0xb1}}},
		[]field{{0, 8, 7}, {12, 4, 5}, {16, 4, 2}, {24, 8, 0xc0ffee00}, {32, 8, 0x1122334455667788},
			{40, 8, 0x99aabbccddeeff00}, {48, 4, 0xd1}, {152, 8, 0xc0ffee00},
			{184, 4, 8}, {188, 4, 8}, {196, 4, 1}, {208, 8, 0xa1}, {216, 4, 8}, {220, 4, 0xb1}}, nil},
	{"FETCH_ADD to two places", uverbs.SendWR{WRID: 8, Opcode: uverbs.OpFetchAdd, Flags: uverbs.Fence,
		RemoteAddr: 0xc0ffee01, RKey: 0xd1, CompareAdd: 0x1122334455667788,
		SGL: []uverbs.SGE{{Addr: 0xa1, Length: 3, LKey: 0xb1}, {Addr: 0xa2, Length: 5, LKey: 0xb2}}},
		[]field{{0, 8, 8}, {12, 4, 6}, {16, 4, 1}, {24, 8, 0xc0ffee01}, {32, 8, 0x1122334455667788}, {48, 4, 0xd1},
			{152, 8, 0xc0ffee01},
			{184, 4, 8}, {188, 4, 8}, {196, 4, 2}, {208, 8, 0xa1}, {216, 4, 3}, {220, 4, 0xb1}, {224, 8, 0xa2}, {232, 4, 5},
			{236, 4, 0xb2}}, nil},
	{"LOCAL_INV", uverbs.SendWR{WRID: 9, Opcode: uverbs.OpLocalInv, Flags: uverbs.Signaled, InvalidateRKey: 0x11223344,
		Imm: 7, RKey: 8, RemoteAddr: 9},
		[]field{{0, 8, 9}, {12, 4, 7}, {16, 4, 2}, {20, 4, 0x11223344}}, nil},
	{"SEND_INV", uverbs.SendWR{WRID: 10, Opcode: uverbs.OpSendInv, Flags: uverbs.Solicited, InvalidateRKey: 0x11223344,
		Imm: 7, SGL: []uverbs.SGE{{Addr: 0xa1, Length: 1, LKey: 0xb1}}},
		[]field{{0, 8, 10}, {12, 4, 9}, {16, 4, 4}, {20, 4, 0x11223344}, {184, 4, 1}, {188, 4, 1}, {196, 4, 1},
			{208, 8, 0xa1}, {216, 4, 1}, {220, 4, 0xb1}}, nil},
	{"BIND_MW", uverbs.SendWR{WRID: 11, Opcode: uverbs.OpBindMW, Flags: uverbs.Fence,
		Bind: &uverbs.MWBind{RKey: 0x55667788}, Imm: 7, RKey: 8, RemoteAddr: 9},
		[]field{{0, 8, 11}, {12, 4, 8}, {16, 4, 1}, {24, 8, 0xc0ffee00}, {32, 8, 1 << 33}, {40, 4, 0xb1}, {44, 4, 0xe1},
			{48, 4, 0x55667788}, {52, 4, 0x27}}, nil},
	{"FLUSH", uverbs.SendWR{WRID: 12, Opcode: uverbs.OpFlush, Flags: uverbs.Signaled, RemoteAddr: 0xc0ffee00, RKey: 0xd1,
		FlushLength: 0x12345, Placement: uverbs.PlacementPersistent, Selectivity: uverbs.SelectMR, Imm: 7},
		[]field{{0, 8, 12}, {12, 4, 14}, {16, 4, 2}, {24, 8, 0xc0ffee00}, {36, 4, 0xd1}, {40, 1, 2}, {41, 1, 1},
			{152, 8, 0xc0ffee00}, {184, 4, 0x12345}, {188, 4, 0x12345}}, nil},
	{"ATOMIC_WRITE", uverbs.SendWR{WRID: 13, Opcode: uverbs.OpAtomicWrite, RemoteAddr: 0xc0ffee00, RKey: 0xd1,
		Swap: 0x8877665544332211, CompareAdd: 7},
		[]field{{0, 8, 13}, {12, 4, 15}, {24, 8, 0xc0ffee00}, {32, 4, 0xd1}, {152, 8, 0xc0ffee00}, {184, 4, 8}, {188, 4, 8}},
		[]byte{0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88}},
	{"inline SEND", uverbs.SendWR{WRID: 5, Opcode: uverbs.OpSend, Flags: uverbs.Solicited, Inline: []byte("inline data")},
		[]field{{0, 8, 5}, {12, 4, 2}, {16, 4, 4 | 8}, {184, 4, 11}, {188, 4, 11}}, []byte("inline data")},
	{"inline WRITE_IMM", uverbs.SendWR{WRID: 6, Opcode: uverbs.OpWriteImm, RemoteAddr: 0xc0ffee00, RKey: 0xd1, Imm: 1,
		Inline: bytes.Repeat([]byte{0x5a}, 48)},
		[]field{{0, 8, 6}, {12, 4, 1}, {16, 4, 8}, {20, 4, 1 << 24}, {24, 8, 0xc0ffee00}, {32, 4, 0xd1}, {152, 8, 0xc0ffee00},
			{184, 4, 48}, {188, 4, 48}}, bytes.Repeat([]byte{0x5a}, 48)},
}

// TestEveryOperation checks that there are WQEs of every operation that rxe has.
func TestEveryOperation(t *testing.T) {
	var compared [driver.Opcodes]bool
	for _, c := range golden {
		compared[c.wr.Opcode] = true
	}
	for op := range uverbs.Opcode(driver.Opcodes) {
		if connected[op]|datagrams[op] != 0 && !compared[op] {
			t.Errorf("there is no WQE of %v", op)
		}
	}
	if unacknowledged[uverbs.OpLocalInv] != 0 {
		t.Error("rxe has no LOCAL_INV on UC")
	}
}

// A testOwner binds windows, and adds nothing to errors.
type testOwner struct{ provider.QPOwner }

func (testOwner) DoorbellError(err error) error { return err }

func (testOwner) Bind(wr *uverbs.SendWR) (driver.Bind, error) {
	b := wr.Bind
	if b == nil {
		return driver.Bind{}, uverbs.ErrNoMW
	}
	return driver.Bind{Addr: 0xc0ffee00, Length: 1 << 33, LKey: 0xb1, MWRKey: 0xe1, RKey: b.RKey, Access: 0x27}, nil
}

var goldenCap = testCap(31, 15, 3, 48)

// soil fills every element with values that an earlier request may have left there. It leaves out the address vector of
// UD, at offsets 56 to 144, which an RC QP does not write.
func soil(r *kernelRing) {
	for i := range r.mask + 1 {
		e := r.element(i)
		for j := range e {
			if j < 56 || j >= 144 {
				e[j] = 0xee
			}
		}
	}
}

func TestSendWQEBytes(t *testing.T) {
	for _, c := range golden {
		t.Run(c.name, func(t *testing.T) {
			k, q, _ := newKernel(t, goldenCap, 15)
			soil(k.sq)
			if n, err := q.PostSend([]uverbs.SendWR{c.wr}); n != 1 || err != nil {
				t.Fatalf("PostSend: %d, %v", n, err)
			}
			end := 208 + 16*len(c.wr.SGL) + len(c.data)
			want := make([]byte, end)
			fill(want, c.want)
			copy(want[208:], append(want[208:208+16*len(c.wr.SGL)], c.data...))
			if got := k.sq.element(0)[:end]; !bytes.Equal(got, want) {
				t.Errorf("WQE is\n%x, want\n%x", got, want)
			}
			if rest := k.sq.element(0)[end:]; bytes.ContainsFunc(rest, func(r rune) bool { return r == 0 }) {
				t.Error("wrote beyond the data")
			}
			if k.sq.count() != 1 || k.rung != 1 {
				t.Errorf("%d published, %d doorbells, want 1 and 1", k.sq.count(), k.rung)
			}
		})
	}
}

// addToBatch adds wr to the batch.
func addToBatch(q *qp, wr *uverbs.SendWR) {
	q.Op(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, exOf(q.sq.ops.traits(wr.Opcode, 0), wr))
	switch wr.Opcode {
	case uverbs.OpCompareSwap, uverbs.OpFetchAdd, uverbs.OpAtomicWrite:
		q.Atomic(wr.CompareAdd, wr.Swap)
	case uverbs.OpFlush:
		q.Flush(wr.FlushLength, uint8(wr.Placement), uint8(wr.Selectivity))
	case uverbs.OpBindMW:
		q.Bind(testOwner{}.Bind(wr))
	}
	for _, s := range wr.SGL {
		q.SGE(s)
	}
	if len(wr.Inline) > 0 {
		q.Inline(wr.Inline)
	}
}

func TestBatchWritesWhatTheListWrites(t *testing.T) {
	var wrs []uverbs.SendWR
	for _, c := range golden {
		wrs = append(wrs, c.wr)
	}
	list, lq, _ := newKernel(t, goldenCap, 15)
	batch, bq, _ := newKernel(t, goldenCap, 15)
	soil(list.sq)
	soil(batch.sq)
	for lap := range 5 { // enough for the ring to wrap
		if n, err := lq.PostSend(wrs); n != len(wrs) || err != nil {
			t.Fatalf("PostSend: %d, %v", n, err)
		}
		bq.Begin()
		for i := range wrs {
			addToBatch(bq, &wrs[i])
		}
		if batch.sq.count() != 0 {
			t.Fatal("the batch was published before Submit")
		}
		if err := bq.Submit(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(list.sq.b, batch.sq.b) {
			t.Fatalf("lap %d: rings differ", lap)
		}
		if batch.rung != lap+1 || list.rung != lap+1 {
			t.Fatalf("lap %d: %d and %d doorbells", lap, list.rung, batch.rung)
		}
		for range wrs {
			list.sq.advance()
			batch.sq.advance()
		}
	}
}

func TestRecvWQEBytes(t *testing.T) {
	k, q, _ := newKernel(t, goldenCap, 15)
	soil(k.rq)
	for i, c := range []struct {
		wr   uverbs.RecvWR
		want []field
	}{
		{uverbs.RecvWR{WRID: 0x1122334455667788}, []field{{0, 8, 0x1122334455667788}}},
		{uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{{Addr: 0xa1, Length: 0x10, LKey: 0xb1},
			{Addr: 0xa2, Length: 0x20, LKey: 0xb2}}},
			[]field{{0, 8, 1}, {16, 4, 0x30}, {20, 4, 0x30}, {28, 4, 2}, {40, 8, 0xa1}, {48, 4, 0x10}, {52, 4, 0xb1},
				{56, 8, 0xa2}, {64, 4, 0x20}, {68, 4, 0xb2}}},
	} {
		if n, err := q.PostRecv([]uverbs.RecvWR{c.wr}); n != 1 || err != nil {
			t.Fatalf("PostRecv: %d, %v", n, err)
		}
		want := make([]byte, 40+16*len(c.wr.SGL))
		fill(want, c.want)
		if got := k.rq.element(uint32(i))[:len(want)]; !bytes.Equal(got, want) {
			t.Errorf("WQE is\n%x, want\n%x", got, want)
		}
	}
	if k.rung != 0 {
		t.Error("PostRecv rang a doorbell")
	}
}

func TestBadRequests(t *testing.T) {
	good := uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{sge(0, 8)}}
	long := uverbs.SGE{Length: 1<<31 + 1}
	half := uverbs.SGE{Length: 1<<30 + 1}
	for name, c := range map[string]struct {
		wr   uverbs.SendWR
		want error
	}{
		"opcode without meaning": {uverbs.SendWR{Opcode: driver.Opcodes}, uverbs.ErrOpcode},
		"opcode out of range":    {uverbs.SendWR{Opcode: 16 + uverbs.OpSend}, uverbs.ErrOpcode},
		"unknown flag":           {uverbs.SendWR{Opcode: uverbs.OpSend, Flags: inlineFlag}, uverbs.ErrOpcode},
		"inline READ":            {uverbs.SendWR{Opcode: uverbs.OpRead, Inline: []byte{1}}, uverbs.ErrMalformed},
		"BIND_MW of nothing":     {uverbs.SendWR{Opcode: uverbs.OpBindMW}, uverbs.ErrNoMW},
		"BIND_MW with an SGE": {uverbs.SendWR{Opcode: uverbs.OpBindMW, Bind: new(uverbs.MWBind), SGL: good.SGL},
			uverbs.ErrMalformed},
		"inline LOCAL_INV":    {uverbs.SendWR{Opcode: uverbs.OpLocalInv, Inline: []byte{1}}, uverbs.ErrMalformed},
		"FLUSH with an SGE":   {uverbs.SendWR{Opcode: uverbs.OpFlush, SGL: good.SGL}, uverbs.ErrMalformed},
		"FLUSH over 2^31":     {uverbs.SendWR{Opcode: uverbs.OpFlush, FlushLength: 1<<31 + 1}, uverbs.ErrRange},
		"inline ATOMIC_WRITE": {uverbs.SendWR{Opcode: uverbs.OpAtomicWrite, Inline: make([]byte, 8)}, uverbs.ErrMalformed},
		"inline atomic":       {uverbs.SendWR{Opcode: uverbs.OpFetchAdd, Inline: make([]byte, 8)}, uverbs.ErrMalformed},
		"atomic of nothing":   {uverbs.SendWR{Opcode: uverbs.OpFetchAdd}, uverbs.ErrAtomicSize},
		"atomic of 9 bytes": {uverbs.SendWR{Opcode: uverbs.OpCompareSwap, SGL: []uverbs.SGE{sge(0, 8), sge(8, 1)}},
			uverbs.ErrAtomicSize},
		"inline and SGL":    {uverbs.SendWR{Opcode: uverbs.OpSend, Inline: []byte{1}, SGL: good.SGL}, uverbs.ErrMalformed},
		"SGE over 2^31":     {uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{long}}, uverbs.ErrRange},
		"message over 2^31": {uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{half, half}}, uverbs.ErrRange},
		"sum over 2^32": {uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{{Length: ^uint32(0)}, {Length: 2}}},
			uverbs.ErrRange},
		"four SGEs":       {uverbs.SendWR{Opcode: uverbs.OpSend, SGL: make([]uverbs.SGE, 4)}, uverbs.ErrTooManySGEs},
		"49 bytes inline": {uverbs.SendWR{Opcode: uverbs.OpSend, Inline: make([]byte, 49)}, uverbs.ErrInlineTooLong},
	} {
		t.Run(name, func(t *testing.T) {
			k, q, _ := newKernel(t, goldenCap, 15)
			n, err := q.PostSend([]uverbs.SendWR{good, good, c.wr, good})
			if n != 2 || !errors.Is(err, c.want) {
				t.Errorf("PostSend: %d, %v; want 2, %v", n, err, c.want)
			}
			if k.sq.count() != 2 || k.rung != 1 {
				t.Errorf("%d published, %d doorbells; want 2 and 1", k.sq.count(), k.rung)
			}
			q.Begin()
			addToBatch(q, &good)
			addToBatch(q, &c.wr)
			addToBatch(q, &good)
			if err := q.Submit(); !errors.Is(err, c.want) {
				t.Errorf("Submit: %v, want %v", err, c.want)
			}
			if k.sq.count() != 2 || k.rung != 1 {
				t.Error("a bad batch was published")
			}
			if err := q.Submit(); err != nil {
				t.Errorf("empty Submit: %v", err)
			}
			if n, err := q.PostSend([]uverbs.SendWR{c.wr}); n != 0 || !errors.Is(err, c.want) || k.rung != 1 {
				t.Errorf("bad request alone: %d, %v, %d doorbells", n, err, k.rung)
			}
		})
	}
}

// TestNoReads checks that a QP of a connection that allows no READs and atomics refuses them. The kernel would keep
// them in the queue forever.
func TestNoReads(t *testing.T) {
	reads := []uverbs.SendWR{
		{Opcode: uverbs.OpRead, SGL: []uverbs.SGE{sge(0, 8)}},
		{Opcode: uverbs.OpCompareSwap, SGL: []uverbs.SGE{sge(0, 8)}},
		{Opcode: uverbs.OpFetchAdd, SGL: []uverbs.SGE{sge(0, 8)}},
	}
	k, q, _ := newKernel(t, goldenCap, 15)
	for _, depth := range []uint8{0, 1} {
		q.SetRdAtomic(depth)
		var want error
		if depth == 0 {
			want = uverbs.ErrRdAtomic
		}
		for i := range reads {
			if _, err := q.PostSend(reads[i : i+1]); err != want {
				t.Errorf("depth %d, %v: %v, want %v", depth, reads[i].Opcode, err, want)
			}
			q.Begin()
			addToBatch(q, &reads[i])
			if err := q.Submit(); err != want {
				t.Errorf("depth %d, %v in a batch: %v, want %v", depth, reads[i].Opcode, err, want)
			}
		}
		if n := k.sq.count(); n != 6*int(depth) {
			t.Errorf("depth %d: %d requests in the queue", depth, n)
		}
	}
	q.SetRdAtomic(0)
	if _, err := q.PostSend([]uverbs.SendWR{{Opcode: driver.Opcodes}}); err != uverbs.ErrOpcode {
		t.Errorf("an unknown opcode: %v", err)
	}
	if _, err := q.PostSend([]uverbs.SendWR{{Opcode: uverbs.OpSend}}); err != nil {
		t.Errorf("a SEND: %v", err)
	}
}

func TestBatchMisuse(t *testing.T) {
	for name, add := range map[string]func(q *qp){
		"SGE before an operation":    func(q *qp) { q.SGE(sge(0, 1)) },
		"Inline before an operation": func(q *qp) { q.Inline([]byte{1}) },
		"SGE after Inline": func(q *qp) {
			q.Op(uverbs.OpSend, 0, 0, 0, 0, 0)
			q.Inline([]byte{1})
			q.SGE(sge(0, 1))
		},
		"Inline after SGE": func(q *qp) {
			q.Op(uverbs.OpSend, 0, 0, 0, 0, 0)
			q.SGE(sge(0, 1))
			q.Inline([]byte{1})
		},
		"Flush of no FLUSH": func(q *qp) { q.Op(uverbs.OpSend, 0, 0, 0, 0, 0); q.Flush(1, 1, 0) },
		"Bind of no BIND_MW": func(q *qp) {
			q.Op(uverbs.OpSend, 0, 0, 0, 0, 0)
			q.Bind(driver.Bind{}, nil)
		},
		"operands before any":   func(q *qp) { q.Atomic(1, 2) },
		"operands of no atomic": func(q *qp) { q.Op(uverbs.OpSend, 0, 0, 0, 0, 0); q.Atomic(1, 2) },
		"Inline twice": func(q *qp) {
			q.Op(uverbs.OpSend, 0, 0, 0, 0, 0)
			q.Inline([]byte{1})
			q.Inline([]byte{1})
		},
	} {
		k, q, _ := newKernel(t, goldenCap, 15)
		q.Begin()
		add(q)
		if err := q.Submit(); !errors.Is(err, uverbs.ErrMalformed) || k.sq.count() != 0 {
			t.Errorf("%s: %v, %d published", name, err, k.sq.count())
		}
	}
}

// TestBatchFirstError checks that an invalid bind does not hide an earlier error of the batch.
func TestBatchFirstError(t *testing.T) {
	for _, c := range []struct {
		op   uverbs.Opcode
		want error
	}{{99, uverbs.ErrOpcode}, {uverbs.OpSend, uverbs.ErrRange}} {
		k, q, _ := newKernel(t, goldenCap, 15)
		q.Begin()
		q.Op(c.op, 0, 0, 0, 0, 0)
		q.Op(uverbs.OpBindMW, 0, 0, 0, 0, 0)
		q.Bind(driver.Bind{}, uverbs.ErrRange)
		q.Op(uverbs.OpSend, 0, 0, 0, 0, 0)
		if err := q.Submit(); !errors.Is(err, c.want) || k.sq.count() != 0 {
			t.Errorf("%v, then a bad bind: %v, want %v", c.op, err, c.want)
		}
	}
}

func TestAbort(t *testing.T) {
	k, q, _ := newKernel(t, goldenCap, 15)
	q.Begin()
	q.Op(uverbs.OpSend, 0, 1, 0, 0, 0)
	q.Abort()
	if err := q.Submit(); err != nil || k.sq.count() != 0 || k.rung != 0 {
		t.Errorf("after Abort: %v, %d published, %d doorbells", err, k.sq.count(), k.rung)
	}
}

func TestFullAndEmpty(t *testing.T) {
	k, q, c := newKernel(t, testCap(7, 7, 1, 0), 63)
	wrs := make([]uverbs.SendWR, 9)
	for i := range wrs {
		wrs[i] = uverbs.SendWR{WRID: uint64(i), Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, RemoteAddr: base, RKey: rkey}
	}
	for lap := range 20 {
		if n, err := q.PostSend(wrs); n != 7 || !errors.Is(err, uverbs.ErrQueueFull) || !errors.Is(err, unix.ENOMEM) {
			t.Fatalf("lap %d: PostSend: %d, %v", lap, n, err)
		}
		q.Begin()
		addToBatch(q, &wrs[0])
		if err := q.Submit(); !errors.Is(err, uverbs.ErrQueueFull) {
			t.Fatalf("lap %d: Submit: %v", lap, err)
		}
		k.run()
		wcs := poll(t, c)
		if len(wcs) != 7 || wcs[6].WRID != 6 || c.Ready() {
			t.Fatalf("lap %d: completions %v", lap, wcs)
		}
		q.Begin()
		for i := range 8 {
			addToBatch(q, &wrs[i])
		}
		if err := q.Submit(); !errors.Is(err, uverbs.ErrQueueFull) || k.sq.count() != 0 {
			t.Fatalf("lap %d: batch of 8: %v, %d published", lap, err, k.sq.count())
		}
		if n, err := q.PostSend(wrs[:3]); n != 3 || err != nil {
			t.Fatalf("lap %d: PostSend: %d, %v", lap, n, err)
		}
		k.run()
		poll(t, c)

		recv := make([]uverbs.RecvWR, 8)
		if n, err := q.PostRecv(recv); n != 7 || !errors.Is(err, uverbs.ErrQueueFull) {
			t.Fatalf("lap %d: PostRecv: %d, %v", lap, n, err)
		}
		for range 7 {
			k.rq.advance()
		}
	}
}
