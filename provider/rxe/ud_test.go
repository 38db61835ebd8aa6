package rxe

import (
	"bytes"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// testAH returns an AH with this number. It has no PD, as the QPs of the tests.
func testAH(t testing.TB, number uint64) *uverbs.AH {
	t.Helper()
	ah := new(uverbs.AH)
	provider.AHOf(ah).AV()[0] = number
	return ah
}

// udAddr calls UDAddr with an AH.
func udAddr(q *qp, ah *uverbs.AH, qpn, qkey uint32) {
	q.UDAddr(provider.AHOf(ah), qpn, qkey)
}

// newDatagramKernel returns what newKernel does, for a UD QP. The MTU of its port is mtu.
func newDatagramKernel(t testing.TB, c uverbs.QPCap, cqe int) (*kernel, *qp, *cq) {
	t.Helper()
	k, q, cq := newKernel(t, c, cqe)
	k.ud = true
	q.sq.sendDatagrams(nil, func() uint64 { return mtu })
	return k, q, cq
}

func TestDatagramWQEBytes(t *testing.T) {
	ah := testAH(t, 0x55667788)
	for _, c := range []struct {
		name string
		wr   uverbs.SendWR
		want []field
		data []byte
	}{
		{"SEND", uverbs.SendWR{WRID: 0x1122334455667788, Opcode: uverbs.OpSend, Flags: uverbs.Signaled, AH: ah, QPN: 0xa0b0c0,
			QKey: 0x91929394, RemoteAddr: 7, RKey: 8, Imm: 9, SGL: []uverbs.SGE{{Addr: 0xa1, Length: 0x40, LKey: 0xb1}}},
			[]field{{0, 8, 0x1122334455667788}, {12, 4, 2}, {16, 4, 2}, {24, 4, 0xa0b0c0}, {28, 4, 0x91929394},
				{36, 4, 0x55667788},
				{184, 4, 0x40}, {188, 4, 0x40}, {196, 4, 1}, {208, 8, 0xa1}, {216, 4, 0x40}, {220, 4, 0xb1}}, nil},
		{"SEND_IMM of nothing", uverbs.SendWR{Opcode: uverbs.OpSendImm, Imm: 0x01020304, AH: ah, QPN: 1},
			[]field{{12, 4, 3}, {20, 4, 0x04030201}, {24, 4, 1}, {36, 4, 0x55667788}}, nil},
		{"inline SEND", uverbs.SendWR{Opcode: uverbs.OpSend, AH: ah, QPN: 1, QKey: 2, Inline: []byte("inline data")},
			[]field{{12, 4, 2}, {16, 4, 8}, {24, 4, 1}, {28, 4, 2}, {36, 4, 0x55667788}, {184, 4, 11}, {188, 4, 11}},
			[]byte("inline data")},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, lq, _ := newDatagramKernel(t, goldenCap, 15)
			batch, bq, _ := newDatagramKernel(t, goldenCap, 15)
			soil(list.sq)
			soil(batch.sq)
			if n, err := lq.PostSend([]uverbs.SendWR{c.wr}); n != 1 || err != nil {
				t.Fatalf("PostSend: %d, %v", n, err)
			}
			bq.Begin()
			addToBatch(bq, &c.wr)
			udAddr(bq, c.wr.AH, c.wr.QPN, c.wr.QKey)
			if err := bq.Submit(); err != nil {
				t.Fatal(err)
			}
			end := 208 + 16*len(c.wr.SGL) + len(c.data)
			want := make([]byte, end)
			fill(want, c.want)
			copy(want[208+16*len(c.wr.SGL):], c.data)
			if got := list.sq.element(0)[:end]; !bytes.Equal(got, want) {
				t.Errorf("WQE is\n%x, want\n%x", got, want)
			}
			if !bytes.Equal(list.sq.b, batch.sq.b) {
				t.Error("the batch writes something else than the list")
			}
		})
	}
}

// TestDatagramMTU checks that the port's MTU is queried when a message is longer than the known MTU, and again after
// RESET, because the QP may then have another port.
func TestDatagramMTU(t *testing.T) {
	k, q, _ := newDatagramKernel(t, testCap(15, 15, 2, 48), 63)
	port, asked := uint64(1000), 0
	q.sq.sendDatagrams(nil, func() uint64 { asked++; return port })
	ah := testAH(t, ahNum)
	post := func(n uint32, ask int, want error) {
		t.Helper()
		asked = 0
		wr := uverbs.SendWR{Opcode: uverbs.OpSend, AH: ah, SGL: []uverbs.SGE{{Length: n / 2}, {Length: n - n/2}}}
		if _, err := q.PostSend([]uverbs.SendWR{wr}); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("a list with %d bytes: %v, want %v", n, err, want)
		}
		if asked != ask {
			t.Errorf("a list with %d bytes asks %d times for the MTU, want %d", n, asked, ask)
		}
		q.Begin()
		addToBatch(q, &wr)
		udAddr(q, ah, 0, 0)
		if err := q.Submit(); !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("a batch with %d bytes: %v, want %v", n, err, want)
		}
		for k.sq.count() > 0 {
			k.sq.advance()
		}
	}
	post(0, 0, nil)
	post(1000, 1, nil)
	post(1000, 0, nil)
	post(1001, 1, uverbs.ErrTooLong)
	port = 2000
	post(2000, 1, nil)
	post(2001, 1, uverbs.ErrTooLong)
	port = 40
	if err := q.Reset(); err != nil {
		t.Fatal(err)
	}
	post(41, 1, uverbs.ErrTooLong)
	inline := uverbs.SendWR{Opcode: uverbs.OpSend, AH: ah, Inline: make([]byte, 41)}
	if _, err := q.PostSend([]uverbs.SendWR{inline}); !errors.Is(err, uverbs.ErrTooLong) {
		t.Errorf("41 bytes inline: %v", err)
	}
	q.Begin()
	addToBatch(q, &inline)
	udAddr(q, ah, 0, 0)
	if err := q.Submit(); !errors.Is(err, uverbs.ErrTooLong) {
		t.Errorf("a batch with 41 bytes inline: %v", err)
	}
	inline.Inline = inline.Inline[:40]
	if _, err := q.PostSend([]uverbs.SendWR{inline}); err != nil {
		t.Errorf("40 bytes inline: %v", err)
	}
}

// TestBatchWithoutAddress checks that a batch reports an operation without an address, even if valid parts are added
// later.
func TestBatchWithoutAddress(t *testing.T) {
	k, q, _ := newDatagramKernel(t, goldenCap, 15)
	ah := testAH(t, ahNum)
	for name, build := range map[string]func(){
		"last": func() { q.Op(uverbs.OpSend, 0, 1, 0, 0, 0) },
		"first": func() {
			q.Op(uverbs.OpSend, 0, 1, 0, 0, 0)
			q.Op(uverbs.OpSend, 0, 1, 0, 0, 0)
			udAddr(q, ah, 1, 1)
		},
		"nil address": func() { q.Op(uverbs.OpSend, 0, 1, 0, 0, 0); udAddr(q, nil, 1, 1) },
	} {
		q.Begin()
		build()
		if err := q.Submit(); !errors.Is(err, uverbs.ErrNoAH) || k.sq.count() != 0 {
			t.Errorf("%s: Submit: %v, %d published", name, err, k.sq.count())
		}
	}
	rc, rq, _ := newKernel(t, goldenCap, 15)
	rq.Begin()
	rq.Op(uverbs.OpSend, 0, 1, 0, 0, 0)
	udAddr(rq, ah, 1, 1)
	if err := rq.Submit(); !errors.Is(err, uverbs.ErrQPType) || rc.sq.count() != 0 {
		t.Errorf("an address on an RC QP: %v", err)
	}
}
