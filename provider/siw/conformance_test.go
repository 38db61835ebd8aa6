package siw

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/providertest"
	"github.com/goverbs/goverbs/uverbs"
)

const (
	slots   = providertest.MaxSendWR + 1
	entries = providertest.Entries + 1
)

var granted = uverbs.QPCap{MaxSendWR: slots, MaxRecvWR: slots, MaxSendSGE: providertest.MaxSGE,
	MaxRecvSGE: providertest.MaxSGE, MaxInline: providertest.MaxInline}

func TestConformance(t *testing.T) {
	providertest.RunIWARP(t, func(t *testing.T) *providertest.Rig {
		k, q, c := newKernel(t, slots, granted, entries)
		return &providertest.Rig{QP: q, CQ: c, Cap: granted, QPN: qpn, Mem: k.mem, Addr: base, LKey: lkey, RKey: rkey,
			Work: k.run}
	})
}

// TestFlush checks the requests that the kernel leaves in the rings of a QP in ERR, and those that are posted there.
func TestFlush(t *testing.T) {
	k, q, c := newKernel(t, 4, granted, 16)
	send := func(id uint64) uverbs.SendWR { return uverbs.SendWR{WRID: id, Opcode: uverbs.OpSend} }
	post := func(want int, wrs ...uverbs.SendWR) {
		t.Helper()
		if n, err := q.PostSend(wrs); n != want || (n < len(wrs)) != errors.Is(err, uverbs.ErrQueueFull) {
			t.Fatalf("PostSend: %d, %v; want %d", n, err, want)
		}
	}
	post(1, send(1))
	if n, err := q.PostRecv([]uverbs.RecvWR{{WRID: 11}}); n != 1 || err != nil {
		t.Fatalf("PostRecv: %d, %v", n, err)
	}
	k.run() // both complete, but the SEND is not signaled
	post(2, send(2), send(3))
	if n, err := q.PostRecv([]uverbs.RecvWR{{WRID: 12}}); n != 1 || err != nil {
		t.Fatalf("PostRecv: %d, %v", n, err)
	}
	if s, r := q.SendsOutstanding(), q.RecvsOutstanding(); s != 2 || r != 1 {
		t.Errorf("%d sends and %d receives are outstanding, want 2 and 1", s, r)
	}
	for range 2 { // the second time has no effect
		q.Entered(uint8(uverbs.StateErr))
	}
	if s, r := q.SendsOutstanding(), q.RecvsOutstanding(); s != 0 || r != 0 {
		t.Errorf("%d sends and %d receives are outstanding in ERR", s, r)
	}
	rung := k.rung
	post(2, send(4), send(5), send(6)) // the ring has 4 elements
	if k.rung != rung {
		t.Error("a post in ERR rings the doorbell")
	}
	if !c.Ready() {
		t.Error("the CQ is not ready")
	}
	var got []uint64
	for _, size := range []int{2, 1, 9, 9} {
		wcs := make([]uverbs.WC, size)
		n, err := c.Poll(wcs)
		if err != nil {
			t.Fatal(err)
		}
		for _, wc := range wcs[:n] {
			if want := wc.WRID != 11; (wc.Status == uverbs.WCWRFlushErr) != want || wc.QPNum != qpn {
				t.Errorf("completion %+v", wc)
			}
			got = append(got, wc.WRID)
		}
	}
	if want := []uint64{11, 2, 3, 4, 5, 12}; !slices.Equal(got, want) {
		t.Errorf("%d completed, want %d", got, want)
	}
	if c.Ready() {
		t.Error("the CQ is ready after the last completion")
	}
	post(1, send(7))
	c.drop(&q.sq) // as Retire does
	if n, err := c.Poll(make([]uverbs.WC, 2)); n != 0 || err != nil || c.Ready() {
		t.Errorf("Poll returns %d completions of a QP that is closed: %v", n, err)
	}
}

// TestDoorbellRefused checks that the requests count as posted.
func TestDoorbellRefused(t *testing.T) {
	k, q, _ := newKernel(t, 4, granted, 16)
	k.refuse = unix.ENOTCONN
	n, err := q.PostSend([]uverbs.SendWR{{Opcode: uverbs.OpSend}})
	if n != 1 || !errors.Is(err, uverbs.ErrState) || !errors.Is(err, unix.ENOTCONN) {
		t.Errorf("PostSend: %d, %v", n, err)
	}
	q.retired.Store(true)
	q.Begin()
	q.Op(uverbs.OpSend, 0, 1, 0, 0, 0)
	if err := q.Submit(); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("Submit: %v", err)
	}
}

// TestReadsNotAllowed checks READs on a connection that allows none.
func TestReadsNotAllowed(t *testing.T) {
	_, q, _ := newKernel(t, 4, granted, 16)
	read := uverbs.SendWR{Opcode: uverbs.OpRead}
	q.SetRdAtomic(0)
	if n, err := q.PostSend([]uverbs.SendWR{read}); n != 0 || !errors.Is(err, uverbs.ErrRdAtomic) {
		t.Errorf("PostSend: %d, %v", n, err)
	}
	q.SetRdAtomic(1)
	if n, err := q.PostSend([]uverbs.SendWR{read}); n != 1 || err != nil {
		t.Errorf("PostSend: %d, %v", n, err)
	}
}

// FuzzDecode checks that Poll decodes any bytes that may be in an entry, and returns only known values.
func FuzzDecode(f *testing.F) {
	f.Add(make([]byte, 32))
	f.Add([]byte{7, 0, 0, 0, 0, 0, 0, 0, 1, 8, 0, 0, 64, 0, 0, 0})
	f.Fuzz(func(t *testing.T, entry []byte) {
		k, _, c := newKernel(t, 4, granted, 4)
		e, _ := k.cq.next()
		copy(e, entry)
		there := e[8]&1 != 0
		id, length := le.Uint64(e), le.Uint32(e[12:])
		wcs := make([]uverbs.WC, 2)
		n, err := c.Poll(wcs)
		if err != nil || (n == 1) != there || n > 1 {
			t.Fatalf("Poll: %d, %v", n, err)
		}
		if n == 0 {
			return
		}
		wc := &wcs[0]
		if wc.WRID != id || wc.Flags != 0 || wc.Imm != 0 || wc.Err() != nil && wc.ByteLen != 0 ||
			wc.Err() == nil && wc.ByteLen != length {
			t.Errorf("%+v of % x", wc, entry)
		}
	})
}
