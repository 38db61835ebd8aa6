package mlx5

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// An eater converts the fuzzer's bytes to numbers.
type eater []byte

func (e *eater) next(n uint32) uint32 {
	var b [4]byte
	k := copy(b[:], *e)
	*e = (*e)[min(k, 2):]
	return uint32(binary.LittleEndian.Uint16(b[:])) % n
}

// wr returns a request, which may be invalid.
func (e *eater) wr() uverbs.SendWR {
	wr := uverbs.SendWR{WRID: uint64(e.next(1 << 16)), Opcode: uverbs.Opcode(e.next(driver.Opcodes + 2)),
		Flags: uverbs.SendFlags(e.next(9)), RemoteAddr: uint64(e.next(1<<16)) << 30, RKey: e.next(1 << 16),
		Imm: e.next(1 << 16), InvalidateRKey: e.next(1 << 16), CompareAdd: uint64(e.next(1 << 16)),
		Swap: uint64(e.next(1 << 16))}
	for range e.next(7) {
		n := e.next(300)
		switch e.next(8) {
		case 0:
			n = 0
		case 1:
			n = 8
		case 2:
			n = 1<<31 + e.next(2)
		}
		wr.SGL = append(wr.SGL, uverbs.SGE{Addr: uint64(e.next(1 << 16)), Length: n, LKey: e.next(1 << 16)})
	}
	if e.next(3) == 0 {
		wr.Inline = bytes.Repeat([]byte{byte(e.next(256))}, int(e.next(130)))
	}
	return wr
}

const fuzzedKinds = 6

// A fuzzed is a QP that invented requests are posted to.
type fuzzed struct {
	*bench
	ah *uverbs.AH // DCI and UD
}

// newFuzzed returns a QP whose type depends on kind: RC, UC, DCI without or with streams, UD, or XRC.
func newFuzzed(t *testing.T, kind uint8) *fuzzed {
	t.Helper()
	cfg := uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 6, MaxSendSGE: 4, MaxInline: 100}
	switch kind % fuzzedKinds {
	case 1:
		cfg.Type = uverbs.UC
	case 2:
		cfg.Type = uverbs.DCI
	case 3:
		cfg.Type, cfg.DCIStreams.Concurrent = uverbs.DCI, 4
	case 4:
		cfg.Type = uverbs.UD
	case 5:
		cfg.Type = uverbs.XRCSend
	}
	q := &fuzzed{bench: newBench(t, cfg, nil)}
	if q.sq.pd != nil {
		q.ah = address(&q.pd)
	}
	return q
}

// wr returns a request, which may be invalid. Some that need an address have none.
func (q *fuzzed) wr(e *eater) uverbs.SendWR {
	wr := e.wr()
	if q.sq.typ == uverbs.XRCSend {
		wr.RemoteSRQN = e.next(1 << 16)
	}
	if q.sq.pd != nil && e.next(16) > 0 {
		wr.AH, wr.QPN, wr.DCKey, wr.QKey = q.ah, e.next(1<<16), uint64(e.next(1<<16))<<40, e.next(1<<16)<<7
		if q.dci != nil && e.next(8) == 0 {
			wr.DCStream = uint16(e.next(1 << 16))
		}
	}
	return wr
}

// mine returns the requests with the AH of q.
func (q *fuzzed) mine(wrs ...uverbs.SendWR) []uverbs.SendWR {
	wrs = slices.Clone(wrs)
	for i := range wrs {
		if wrs[i].AH != nil {
			wrs[i].AH = q.ah
		}
	}
	return wrs
}

func (q *fuzzed) post(wrs ...uverbs.SendWR) (int, error) { return q.PostSend(q.mine(wrs...)) }

// add adds a request to the batch, with one call for the operation and its data if once is set and there is such a
// call.
func (q *fuzzed) add(wr *uverbs.SendWR, once bool) {
	switch {
	case q.sq.destSegments > 0:
		buildDC(q.bench, &q.mine(*wr)[0], wr.WRID%4 < 2, once)
	case once:
		buildOnce(q.bench, wr, nil)
	default:
		build(q.bench, wr, nil)
	}
}

// wqe returns what the ring has to have at block cur after a valid request.
func (q *fuzzed) wqe(o *oracle, cur uint32, wr *uverbs.SendWR) []byte {
	if q.sq.destSegments == 0 {
		return o.wqe(cur, wr, nil, nil)
	}
	return dcWQE(o, cur, wr, lead(q.sq.typ, wr, q.ah), wr.DCStream)
}

// lead returns the segments of a request that name its destination. ah is its address.
func lead(t uverbs.QPType, wr *uverbs.SendWR, ah *uverbs.AH) []byte {
	switch t {
	case uverbs.UD:
		return dcLead(provider.AHOf(ah), wr.QPN, uint64(wr.QKey)<<32)
	case uverbs.XRCSend:
		return append(binary.BigEndian.AppendUint32(nil, wr.RemoteSRQN), make([]byte, 12)...)
	}
	return dcLead(provider.AHOf(ah), wr.QPN, wr.DCKey)
}

// FuzzPost checks that lists and batches have the same effect for any requests: they write the same as the oracle and
// leave earlier requests unchanged.
func FuzzPost(f *testing.F) {
	for kind := range uint8(fuzzedKinds) {
		f.Add([]byte("seed seed seed seed seed seed seed seed seed seed seed seed"), kind)
		f.Add(bytes.Repeat([]byte{8, 0, 3, 1}, 100), kind)
		f.Add(bytes.Repeat([]byte{0, 0, 1, 0, 2, 0, 3, 0, 1, 0}, 60), kind)
	}
	f.Fuzz(func(t *testing.T, in []byte, kind uint8) {
		list, batch := newFuzzed(t, kind), newFuzzed(t, kind)
		o := oracle{qpn: benchQPN}
		e := eater(in)
		for len(e) > 0 {
			wr := list.wr(&e)
			if wr.Opcode == uverbs.OpBindMW {
				continue
			}
			fence, cur, half := o.fence, list.sq.cur, list.sq.db.Half
			n, err := list.post(wr)
			if wr.Opcode >= driver.Opcodes { // no method of a batch has such an opcode
				if n != 0 || err != uverbs.ErrOpcode {
					t.Fatalf("%+v: the list says %d, %v", wr, n, err)
				}
				continue
			}
			batch.Begin()
			batch.add(&wr, wr.WRID%8 < 4)
			if again := batch.Submit(); (again == nil) != (err == nil) || n == 1 != (err == nil) {
				t.Fatalf("%+v: the list says %d, %v, the batch %v", wr, n, err, again)
			}
			if err == nil {
				want := list.wqe(&o, cur, &wr)
				if got := list.at(cur, len(want)); !bytes.Equal(got, want) || !bytes.Equal(batch.at(cur, len(want)), want) {
					t.Fatalf("%+v after fence %#x:\n got %x\n and %x\nwant %x", wr, fence, got, batch.at(cur, len(want)), want)
				}
				// The bytes after the request in its last block are irrelevant.
				told := min(len(want), 256)
				if !bytes.Equal(list.regs[half:][:told], batch.regs[half:][:told]) {
					t.Fatalf("%+v: the registers have\n    %x\nand %x", wr, list.regs[half:][:told], batch.regs[half:][:told])
				}
			}
			if list.sq.cur != batch.sq.cur || list.sq.head != batch.sq.head || *list.record.words != *batch.record.words ||
				list.sq.db.Half != batch.sq.db.Half {
				t.Fatalf("%+v: list and batch differ: %+v and %+v", wr, list.record.words, batch.record.words)
			}
			if e.next(4) == 0 {
				list.complete()
				batch.complete()
			}
		}
	})
}

// FuzzPoll checks that Poll returns no more completions than the CQ has entries and accesses no other memory, for any
// contents of the CQ.
func FuzzPoll(f *testing.F) {
	f.Add(bytes.Repeat([]byte{0}, 640), uint8(0))
	f.Add(bytes.Repeat([]byte{0x21, 0xd0, 0x11, 0x44}, 640), uint8(7))
	f.Fuzz(func(t *testing.T, in []byte, how uint8) {
		b := newBench(t, uverbs.QPConfig{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1}, func(c *deviceContext) {
			c.indexed = how&1 == 0
			if how&2 != 0 {
				c.set.cqeSize = 128
			}
		})
		c := b.ctx
		p, _, err := c.CreateCQ(&driver.CQConfig{Entries: 15}, noCQCommand)
		check(t, err)
		q := p.(*cq)
		defer q.Retire(true)
		s := newBenchSRQ(t, c)
		c.targets.put(3, &target{srq: s, key: 3})
		wcs := make([]uverbs.WC, 5)
		for len(in) > 0 {
			for i := range q.mask + 1 {
				e := q.at(i)
				n := copy(bytesOf(e)[:], in)
				in = in[n:]
				switch how >> 4 & 3 {
				case 1:
					e[4] &= be(0x07ffffffff) // an index that may exist
				case 2:
					e[4] &= be(0x03ffffffff)
					e[7] = e[7]&^be(ownerBit) | be(q.owner(i))
				}
			}
			for range 3 {
				ci := q.ci
				n, err := q.Poll(wcs)
				if n > len(wcs) || n > 0 && err != nil || q.ci-ci > q.mask+1+uint32(len(wcs)) {
					t.Fatalf("%d completions, %v, %d entries", n, err, q.ci-ci)
				}
			}
			q.Purge(b.qp)
			if n, err := s.post([]uverbs.RecvWR{{}}); n > 1 {
				t.Fatal(n, err)
			}
		}
	})
}

func newBenchSRQ(t testing.TB, c *deviceContext) *srq {
	t.Helper()
	p, _, err := c.CreateSRQ(&driver.SRQConfig{MaxWR: 7, MaxSGE: 2}, func([]byte, []byte) (driver.Reply, error) {
		return driver.Reply{}, nil
	})
	check(t, err)
	t.Cleanup(func() { check(t, p.Retire()) })
	return p.(*srq)
}
