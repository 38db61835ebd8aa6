package mlx5

import (
	"slices"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// A faultRig is a CQ, and an SRQ whose receives complete in it.
type faultRig struct {
	*srqRig
	q      *cq
	target *target // the target of the completions
	key    uint64
	qpn    uint64
}

// newFaultRig creates an SRQ on a device that supports SRQs of up to limit slots. The completions name the QP of an
// SRQ, an XRC SRQ, or, in version 0, the number of either.
func newFaultRig(t *testing.T, kind string, maxWR, limit int) *faultRig {
	b := newBench(t, uverbs.QPConfig{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1}, func(c *deviceContext) {
		c.limits.srqWR = limit
		c.indexed = kind != "version 0"
	})
	p, _, err := b.ctx.CreateCQ(&driver.CQConfig{Entries: 63}, noCQCommand)
	check(t, err)
	cfg := &driver.SRQConfig{MaxWR: maxWR, MaxSGE: 3}
	if kind == "XRC SRQ" {
		cfg.XRC = true
	}
	v, _, err := b.ctx.CreateSRQ(cfg, noCommand)
	check(t, err)
	s := v.(*srq)
	r := &faultRig{srqRig: &srqRig{srq: s, taken: make([][]uint32, 1)}, q: p.(*cq), qpn: benchQPN}
	switch kind {
	case "SRQ":
		b.target.srq = s
		r.target = &b.target
	default:
		r.target = &s.target
	}
	r.key = uint64(r.target.key)
	if kind == "version 0" {
		s.ctx.srqs.put(5, &s.target)
		r.key = 5
	}
	t.Cleanup(func() {
		check(t, s.Retire())
		check(t, r.q.Retire(true))
	})
	return r
}

// arrives writes a completion of the receive in a slot, as the device does.
func (r *faultRig) arrives(opcode, syndromes uint64, slot uint32) {
	i := r.q.ci
	for {
		if _, ok := r.q.mine(i); !ok {
			break
		}
		i++
	}
	e := r.q.at(i)
	*e = block{4: be(r.key << 32), 6: be(syndromes)}
	e[7] = be(r.qpn<<32 | uint64(slot)<<16 | opcode<<opcodeShift | r.q.owner(i))
}

const absentPage = 0x93<<8 | 0x22

// poll returns the WRIDs of the completions.
func (r *faultRig) poll(t *testing.T) (ids []uint64) {
	t.Helper()
	wcs := make([]uverbs.WC, 16)
	n := good(r.q.Poll(wcs))(t)
	for _, wc := range wcs[:n] {
		check(t, wc.Err())
		ids = append(ids, wc.WRID)
	}
	return ids
}

// list returns n slots of the list that the device follows, beginning with slot i.
func (r *faultRig) list(i uint32, n int) (all []uint32) {
	for range n {
		all = append(all, i)
		i = r.next(i)
	}
	return all
}

func (r *faultRig) posts(t *testing.T, ids ...uint64) {
	t.Helper()
	for _, id := range ids {
		_, err := r.PostRecv([]uverbs.RecvWR{{WRID: id, SGL: []uverbs.SGE{{Addr: id << 12, Length: 64, LKey: 7},
			{Addr: id << 13, Length: 32, LKey: 8}}}})
		check(t, err)
	}
}

var faultKinds = []string{"SRQ", "XRC SRQ", "version 0"}

// TestSRQPageFault checks that Poll does not return a receive for which a page was absent. The receive is posted again,
// with its buffers, in the slot that the device uses next, and its own slot rests. The slots are those of libmlx5.
func TestSRQPageFault(t *testing.T) {
	for _, kind := range faultKinds {
		t.Run(kind, func(t *testing.T) {
			r := newFaultRig(t, kind, 3, 1<<15)
			r.posts(t, 70, 71)
			r.arrives(cqeRespError, absentPage, 0)
			if ids := r.poll(t); ids != nil {
				t.Fatalf("Poll returns %d", ids)
			}
			if r.count != 3 || be(uint64(r.record.words[recvCounter]))>>32 != 3 {
				t.Errorf("%d receives are posted, the record says %#x", r.count, r.record.words[recvCounter])
			}
			if got, want := r.list(0, 5), []uint32{0, 1, 2, 3, 4}; !slices.Equal(got, want) {
				t.Errorf("the device follows %v, want %v", got, want)
			}
			if !slices.Equal(r.slot(2)[1:], r.slot(0)[1:]) || r.slot(2)[1] != (segment{be2(64, 7), be(70 << 12)}) ||
				r.slot(2)[3] != (segment{be2(0, invalidLKey), 0}) {
				t.Errorf("slot 0 has %x, slot 2 %x", r.slot(0), r.slot(2))
			}
			r.arrives(cqeSend, 0, 1)
			r.arrives(cqeSend, 0, 2)
			if ids := r.poll(t); !slices.Equal(ids, []uint64{71, 70}) {
				t.Errorf("Poll returns %d", ids)
			}
			// Slots 1 and 2 are free. Slots 5, 6, 7 and 0 rest, and 4 comes after 3.
			r.posts(t, 72, 73, 74)
			if got, want := r.list(3, 4), []uint32{3, 4, 1, 2}; !slices.Equal(got, want) || r.tail != 2 {
				t.Errorf("the device follows %v up to %d, want %v", got, r.tail, want)
			}
			if _, err := r.PostRecv([]uverbs.RecvWR{{}}); err != uverbs.ErrQueueFull {
				t.Errorf("a fourth receive: %v", err)
			}
			r.arrives(cqeRespError, absentPage, 3)
			if ids := r.poll(t); ids != nil || r.ids[2] != 72 {
				t.Errorf("Poll returns %d, slot 2 has %d", ids, r.ids[2])
			}
			if got, want := r.list(r.resting.head, 4), []uint32{6, 7, 0, 3}; !slices.Equal(got, want) || r.resting.tail != 3 ||
				r.tail != 5 {
				t.Errorf("%v rest up to %d, the list goes to %d; want %v, and 5", got, r.resting.tail, r.tail, want)
			}
		})
	}
}

// TestSRQPageFaultTakesFreeSlots checks that the free slots are appended to the list before the slot that has rested
// longest.
func TestSRQPageFaultTakesFreeSlots(t *testing.T) {
	r := newFaultRig(t, "SRQ", 7, 1<<15)
	r.posts(t, 1, 2, 3, 4, 5, 6, 7)
	for _, slot := range []uint32{3, 1, 5} {
		r.arrives(cqeSend, 0, slot)
	}
	r.arrives(cqeRespError, absentPage, 0)
	if ids := r.poll(t); !slices.Equal(ids, []uint64{4, 2, 6}) {
		t.Fatalf("Poll returns %d", ids)
	}
	if got, want := r.list(7, 5), []uint32{7, 1, 3, 5, 8}; !slices.Equal(got, want) || r.tail != 8 {
		t.Errorf("the list is %v up to %d, want %v", got, r.tail, want)
	}
}

// TestSRQPageFaultWithoutRest checks that no slot rests if the device supports no more slots: the slot is appended to
// the list.
func TestSRQPageFaultWithoutRest(t *testing.T) {
	r := newFaultRig(t, "SRQ", 4, 8)
	r.posts(t, 1, 2, 3, 4, 5, 6, 7)
	r.arrives(cqeRespError, absentPage, 0)
	r.arrives(cqeRespError, absentPage, 7)
	r.arrives(cqeSend, 0, 0)
	if ids := r.poll(t); !slices.Equal(ids, []uint64{1}) {
		t.Fatalf("Poll returns %d", ids)
	}
	if r.count != 9 || r.tail != 7 {
		t.Errorf("%d receives are posted, the list goes to %d", r.count, r.tail)
	}
}

// TestSRQOtherFailures checks that Poll returns other errors: errors with another cause, or of a queue that is not an
// SRQ.
func TestSRQOtherFailures(t *testing.T) {
	for syndromes, want := range map[uint64]uverbs.WCStatus{0x22: uverbs.WCRemAbortErr,
		0x93<<8 | 0x05: uverbs.WCWRFlushErr, 0x94<<8 | 0x22: uverbs.WCRemAbortErr} {
		r := newFaultRig(t, "SRQ", 3, 1<<15)
		r.posts(t, 70)
		r.arrives(cqeRespError, syndromes, 0)
		var wcs [2]uverbs.WC
		if n, err := r.q.Poll(wcs[:]); n != 1 || err != nil || wcs[0].Status != want ||
			wcs[0].VendorErr != uint32(syndromes>>8) || wcs[0].WRID != 70 {
			t.Errorf("syndromes %#x: %d, %v: %+v", syndromes, n, err, wcs[0])
		}
	}
	r := newFaultRig(t, "SRQ", 3, 1<<15)
	r.target.srq = nil
	good(r.target.rq.post([]uverbs.RecvWR{{WRID: 9}}))(t)
	r.arrives(cqeRespError, absentPage, 0)
	var wcs [2]uverbs.WC
	if n, err := r.q.Poll(wcs[:]); n != 1 || err != nil || wcs[0].Status != uverbs.WCRemAbortErr || wcs[0].WRID != 9 {
		t.Errorf("a QP's own receive: %d, %v: %+v", n, err, wcs[0])
	}
}

// TestSRQPageFaultPurged checks that the SRQ keeps the receive if the QP is closed before the error was polled, and
// that an error of a closed SRQ has no effect.
func TestSRQPageFaultPurged(t *testing.T) {
	r := newFaultRig(t, "SRQ", 3, 1<<15)
	r.posts(t, 70, 71)
	r.arrives(cqeRespError, absentPage, 0)
	r.q.squeeze(r.target)
	if r.count != 3 || r.ids[2] != 70 {
		t.Errorf("%d receives are posted, slot 2 has %d", r.count, r.ids[2])
	}
	check(t, r.Retire())
	if !r.fault(1) || r.count != 3 {
		t.Errorf("%d receives are posted to a closed SRQ", r.count)
	}
}

// TestSRQPageFaultsBesidePosts completes receives with absent pages in one goroutine while another posts. It checks
// that no receive is lost and that none completes twice.
func TestSRQPageFaultsBesidePosts(t *testing.T) {
	const receives = 5000
	r := newFaultRig(t, "SRQ", 60, 1<<15)
	r.ctx.memory = pageableMRs(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for id := uint64(0); id < receives; {
			if n, _ := r.PostRecv([]uverbs.RecvWR{{WRID: id}}); n == 1 {
				id++
			}
		}
	})
	seen := make(map[uint64]bool)
	at, taken := uint32(0), uint32(0)
	for step := 0; len(seen) < receives; step++ {
		r.faults.Lock()
		posted, next := r.count, r.next(at)
		r.faults.Unlock()
		if taken == posted {
			continue
		}
		taken++
		if step%3 == 0 {
			r.arrives(cqeRespError, absentPage, at)
		} else {
			r.arrives(cqeSend, 0, at)
		}
		for _, id := range r.poll(t) {
			if seen[id] {
				t.Fatalf("receive %d completes twice", id)
			}
			seen[id] = true
		}
		at = next
	}
	wg.Wait()
}

// pageableMRs returns the memory of a Context that has an on-demand MR.
func pageableMRs(t *testing.T) *driver.MRs {
	d := newDesk(t, standard())
	if d.s.ctx.memory.Pageable() {
		t.Error("without an MR on demand, the device finds pages absent")
	}
	d.s.Set(func() { d.s.Extended.OdpCaps.GeneralCaps = uint64(uverbs.ODPSupport) })
	good(d.pd.Alloc(100, uverbs.OnDemand))(t)
	return d.s.ctx.memory
}
