package mlx5

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/uverbs"
)

// A desk has a context, and registered memory for its requests.
type desk struct {
	s  *soft
	c  *uverbs.Context
	pd *uverbs.PD
	mr *uverbs.MR
}

const allAccess = uverbs.LocalWrite | uverbs.RemoteWrite | uverbs.RemoteRead | uverbs.RemoteAtomic | uverbs.MWBindAccess

func newDesk(t *testing.T, k kit) *desk {
	t.Helper()
	d := &desk{s: newSoft(t, k)}
	d.c = d.s.open(k)
	d.pd = good(d.c.AllocPD())(t)
	d.mr = good(d.pd.Alloc(1<<16, allAccess))(t)
	return d
}

// loop returns a queue pair that is connected to itself.
func (d *desk) loop(t *testing.T, cfg uverbs.QPConfig) *uverbs.QP {
	t.Helper()
	if cfg.Type == 0 {
		cfg.Type = uverbs.RC
	}
	cfg.MaxSendWR, cfg.MaxInline = 16, 32
	if cfg.SRQ == nil {
		cfg.MaxRecvWR = 16
	}
	cfg.Access = uverbs.RemoteWrite | uverbs.RemoteRead | uverbs.RemoteAtomic
	q := good(d.pd.CreateQP(cfg))(t)
	check(t, q.Connect(good(q.Endpoint())(t)))
	return q
}

func (d *desk) write(t *testing.T, q *uverbs.QP, id uint64) {
	t.Helper()
	_, err := q.PostSend(uverbs.SendWR{WRID: id, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{d.mr.SGE(0, 8)}, RemoteAddr: d.mr.Addr() + 100, RKey: d.mr.RKey()})
	check(t, err)
}

// poll waits for the completions of want and checks that no others are polled.
func poll(t *testing.T, q *uverbs.CQ, want ...uint64) {
	t.Helper()
	wcs := make([]uverbs.WC, len(want)+1)
	n := 0
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		n += good(q.Poll(wcs[n:]))(t)
		if n >= len(want) || time.Now().After(deadline) {
			break
		}
	}
	if n != len(want) {
		t.Fatalf("%d completions, want %d: %+v", n, len(want), wcs[:n])
	}
	for i, id := range want {
		if wcs[i].WRID != id || wcs[i].Err() != nil {
			t.Fatalf("completion %d is %+v, want %d", i, wcs[i], id)
		}
	}
}

// TestPurge checks that the completions of a queue pair that is closed or reset are removed from its CQ. Those of
// others stay, in order, at every place of the ring.
func TestPurge(t *testing.T) {
	forKits(t, func(t *testing.T, k kit) {
		d := newDesk(t, k)
		cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
		stays := d.loop(t, uverbs.QPConfig{SendCQ: cq})
		for lap := range 20 {
			d.write(t, stays, 1) // move on by one entry
			poll(t, cq, 1)
			goes := d.loop(t, uverbs.QPConfig{SendCQ: cq})
			for _, c := range "gsgssgsg"[lap%8:] {
				d.write(t, map[rune]*uverbs.QP{'g': goes, 's': stays}[c], uint64(c))
			}
			if lap%2 == 0 {
				check(t, goes.Close())
			} else {
				check(t, goes.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
			}
			var want []uint64
			for _, c := range "gsgssgsg"[lap%8:] {
				if c == 's' {
					want = append(want, 's')
				}
			}
			poll(t, cq, want...)
			check(t, goes.Close())
		}
	})
}

// TestDrain checks that completions of a queue pair in ERR that are still in its CQs count as drained, at every place
// of the ring and among completions of other queue pairs.
func TestDrain(t *testing.T) {
	forKits(t, func(t *testing.T, k kit) {
		d := newDesk(t, k)
		cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 31}))(t)
		other := d.loop(t, uverbs.QPConfig{SendCQ: cq})
		for lap := range 40 {
			q := d.loop(t, uverbs.QPConfig{SendCQ: cq})
			var want []uint64
			for i := range uint64(lap % 5) {
				d.write(t, other, 9)
				_, err := q.PostSend(uverbs.SendWR{WRID: 100 + i, Opcode: uverbs.OpWrite}) // unsignaled
				check(t, err)
				want = append(want, 9)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if _, err := q.PostRecv(uverbs.RecvWR{WRID: 1}, uverbs.RecvWR{WRID: 2}, uverbs.RecvWR{WRID: 3}); err != nil {
				t.Fatal(err)
			}
			d.write(t, q, 4) // completes those before it
			_, err := q.PostSend(uverbs.SendWR{WRID: 5, Opcode: uverbs.OpSend})
			check(t, err)
			if q.SendsOutstanding() < 2 || q.RecvsOutstanding() != 3 {
				t.Fatalf("%d sends and %d receives are outstanding", q.SendsOutstanding(), q.RecvsOutstanding())
			}
			check(t, q.Drain(ctx))
			cancel()
			if lap%2 == 0 { // flushed requests come last, and none of them was posted by Drain
				wcs := make([]uverbs.WC, 20)
				n := good(cq.Poll(wcs))(t)
				for _, wc := range wcs[:n] {
					if wc.QPNum == q.QPN() && (wc.WRID < 1 || wc.WRID > 4) {
						t.Errorf("completion %+v", wc)
					}
				}
				want = nil
			}
			check(t, q.Close())
			poll(t, cq, want...)
		}
	})
}

// TestPurgeSRQ checks that receives that have completed for a queue pair are returned to its SRQ when the queue pair is
// closed.
func TestPurgeSRQ(t *testing.T) {
	forKits(t, func(t *testing.T, k kit) {
		d := newDesk(t, k)
		cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 63}))(t)
		srq := good(d.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 7, MaxSGE: 2}))(t)
		other := d.loop(t, uverbs.QPConfig{SendCQ: cq, SRQ: srq})
		for range 10 {
			q := d.loop(t, uverbs.QPConfig{SendCQ: cq, SRQ: srq})
			for i := range uint64(7) {
				_, err := srq.PostRecv(uverbs.RecvWR{WRID: i})
				check(t, err)
			}
			if _, err := srq.PostRecv(uverbs.RecvWR{}); err != uverbs.ErrQueueFull {
				t.Fatalf("the SRQ takes an eighth: %v", err)
			}
			for i := range 7 {
				to := q
				if i%3 == 0 {
					to = other
				}
				_, err := to.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, WRID: 100})
				check(t, err)
			}
			check(t, q.Close())
			wcs := make([]uverbs.WC, 20)
			if n := good(cq.Poll(wcs))(t); n != 6 {
				t.Fatalf("%d completions of the other queue pair, want 6: %+v", n, wcs[:n])
			}
		}
	})
}

// TestResize resizes a CQ at every place of its ring, with every number of completions in it.
func TestResize(t *testing.T) {
	for _, size := range []int{64, 128} {
		k := standard()
		k.set.cqeSize = size
		d := newDesk(t, k)
		cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
		q := d.loop(t, uverbs.QPConfig{SendCQ: cq})
		id := uint64(0)
		for lap := range 80 {
			var want []uint64
			for range lap % 7 {
				d.write(t, q, id)
				want = append(want, id)
				id++
			}
			check(t, cq.Resize([]int{31, 15, 7, 100}[lap%4]))
			if n := cq.Entries(); n != []int{31, 15, 7, 127}[lap%4] {
				t.Fatalf("%d entries", n)
			}
			if len(want) < 6 { // the smallest ring has no room for more
				d.write(t, q, id)
				want = append(want, id)
				id++
			}
			poll(t, cq, want...)
		}
		for range 6 {
			d.write(t, q, 9)
		}
		if err := cq.Resize(3); !errors.Is(err, unix.EINVAL) {
			t.Errorf("resize to 3 with 6 completions in it: %v", err)
		}
		poll(t, cq, 9, 9, 9, 9, 9, 9)
	}
}

// TestEvents checks that waiters are woken by events. The word that arms the CQ counts the events.
func TestEvents(t *testing.T) {
	forKits(t, func(t *testing.T, k kit) { events(t, newDesk(t, k)) })
}

// TestLargeRegisterNumbers checks register page numbers of more than 16 bits, which a device has if its BAR is larger
// than 256 MiB.
func TestLargeRegisterNumbers(t *testing.T) {
	k := standard()
	k.uarBase = 1<<16 - ioctltest.FirstUAR
	events(t, newDesk(t, k))
}

func events(t *testing.T, d *desk) {
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
	q := d.loop(t, uverbs.QPConfig{SendCQ: cq})
	for id := range uint64(10) {
		check(t, cq.Arm(id%2 == 1))
		_, err := q.PostRecv(uverbs.RecvWR{WRID: id})
		check(t, err)
		_, err = q.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Solicited})
		check(t, err)
		check(t, cq.WaitEvent(context.Background()))
		poll(t, cq, id)
	}
}

// TestWindows binds, uses and unbinds windows, each request directly after the other.
func TestWindows(t *testing.T) {
	d := newDesk(t, standard())
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 63}))(t)
	q := d.loop(t, uverbs.QPConfig{SendCQ: cq})
	one, two := good(d.pd.AllocMW(uverbs.MWType1))(t), good(d.pd.AllocMW(uverbs.MWType2))(t)
	r := uverbs.MWRange{MR: d.mr, Off: 4096, Len: 64, Access: uverbs.RemoteWrite | uverbs.RemoteRead}
	through := func(id uint64, addr uint64, rkey uint32) {
		t.Helper()
		_, err := q.PostSend(uverbs.SendWR{WRID: id, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, Inline: []byte("window"),
			RemoteAddr: addr, RKey: rkey})
		check(t, err)
	}
	for lap := range uint64(10) {
		check(t, one.Bind(q, 1, uverbs.Signaled, r))
		through(2, d.mr.Addr()+4096, one.RKey())
		b := q.StartSend()
		key := uverbs.IncRKey(two.RKey())
		zeroBased := r
		zeroBased.Access |= uverbs.ZeroBased
		b.BindMW(3, uverbs.Signaled, two, key, zeroBased)
		check(t, b.Submit())
		two.SetRKey(key)
		through(4, 8, key)
		_, err := q.PostSend(uverbs.SendWR{WRID: 5, Opcode: uverbs.OpLocalInv, Flags: uverbs.Signaled, InvalidateRKey: key})
		check(t, err)
		check(t, one.Bind(q, 6, uverbs.Signaled, uverbs.MWRange{}))
		poll(t, cq, 1, 2, 3, 4, 5, 6)
		if got := string(d.mr.Bytes()[4096:][:14]); got != "window\x00\x00window" {
			t.Fatalf("lap %d: the memory has %q", lap, got)
		}
		clear(d.mr.Bytes()[4096:8192])
	}
}

// TestSRQFirstLimit checks that a limit that the kernel would ignore is rejected.
func TestSRQFirstLimit(t *testing.T) {
	d := newDesk(t, standard())
	if _, err := d.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 7, Limit: 3}); !errors.Is(err, uverbs.ErrNotSupported) ||
		!strings.Contains(err.Error(), "SRQ.Modify") {
		t.Errorf("an SRQ that has a limit from the beginning: %v", err)
	}
}

// TestPollWhileEnding polls a CQ that may still have completions of a QP that Close of the Context has destroyed.
func TestPollWhileEnding(t *testing.T) {
	forKits(t, func(t *testing.T, k kit) {
		d := newDesk(t, k)
		cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
		q := d.loop(t, uverbs.QPConfig{SendCQ: cq})
		for id := range uint64(5) {
			d.write(t, q, id)
		}
		closed := make(chan error, 1)
		go func() { closed <- d.c.Close() }()
		var wcs [1]uverbs.WC
		for {
			n, err := cq.Poll(wcs[:])
			if errors.Is(err, uverbs.ErrClosed) {
				break
			}
			if err != nil || n > 0 && wcs[0].Err() != nil {
				t.Fatalf("Poll beside Close: %+v, %v", wcs[:n], err)
			}
		}
		check(t, <-closed)
	})
}

// TestSRQCounterWraps checks that the number of receives in the doorbell record has 16 bits.
func TestSRQCounterWraps(t *testing.T) {
	d := newDesk(t, standard())
	s := good(d.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 7}))(t)
	impl := implOf(s)
	impl.count = 0xffff
	good(s.PostRecv(uverbs.RecvWR{}))(t)
	if w := impl.record.words[recvCounter]; w != 0 {
		t.Errorf("the record says %#x", w)
	}
}
