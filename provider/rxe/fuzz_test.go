package rxe

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// FuzzDecode checks that Poll decodes any bytes that the kernel may write to an entry, and returns only known values.
func FuzzDecode(f *testing.F) {
	f.Add(make([]byte, 48))
	f.Fuzz(func(t *testing.T, entry []byte) {
		k, c := newTestCQ(t, 3)
		e := k.element(0)
		copy(e, entry)
		k.advance()
		wcs := make([]uverbs.WC, 2)
		if n, err := c.Poll(wcs); n != 1 || err != nil {
			t.Fatalf("Poll: %d, %v", n, err)
		}
		wc := &wcs[0]
		if wc.WRID != le.Uint64(e) || wc.QPNum != le.Uint32(e[28:]) || (wc.Err() == nil) != (le.Uint32(e[8:]) == 0) {
			t.Errorf("%+v of % x", wc, e)
		}
		if wc.Err() != nil && (wc.ByteLen != 0 || wc.Flags != 0 || wc.Imm != 0) {
			t.Errorf("a failed completion says more than it knows: %+v", wc)
		}
	})
}

// FuzzHeader checks that the header of a ring is refused, or else that no use of the ring accesses memory outside of
// it.
func FuzzHeader(f *testing.F) {
	f.Add(uint16(4096), uint32(6), uint32(7), uint32(0), uint32(0))
	f.Add(uint16(384), uint32(0), uint32(0), uint32(9), uint32(9))
	f.Add(uint16(60000), uint32(9), uint32(63), uint32(63), uint32(63))
	f.Fuzz(func(t *testing.T, size uint16, shift, mask, prod, cons uint32) {
		m, err := provider.Anon(int(size) + 1)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Retire()
		b := m.Bytes()
		if len(b) >= 384 {
			for at, v := range map[int]uint32{0: shift, 4: mask, 128: prod, 256: cons} {
				le.PutUint32(b[at:], v)
			}
		}
		if r, err := newRing("test", m, sendHeader); err == nil {
			q := newQP(r, ring{}, uverbs.QPCap{MaxSendSGE: 1000, MaxInline: 1000}, quiet{})
			for range 100 {
				if _, err := q.PostSend([]uverbs.SendWR{{SGL: make([]uverbs.SGE, q.sq.maxSGE)},
					{Inline: make([]byte, q.sq.maxInline)}}); err != nil && !errors.Is(err, uverbs.ErrQueueFull) {
					t.Fatal(err)
				}
			}
			if q.sq.cur > mask {
				t.Errorf("index %d, mask %d", q.sq.cur, mask)
			}
			copy(b[4:], []byte{0xff, 0xff, 0xff, 0xff, 0, 0xff}) // must no longer have an effect
			q.Reset()
			q.PostSend(make([]uverbs.SendWR, 3))
		}
		if r, err := newRing("test", m, cqeSize); err == nil {
			c := newCQ(nil, r)
			for range 3 {
				if n, err := c.Poll(make([]uverbs.WC, 4)); n > int(r.mask) || err != nil && !errors.Is(err, uverbs.ErrABI) {
					t.Fatalf("Poll: %d, %v", n, err)
				}
			}
		}
	})
}

// A model describes what a QP that is connected to itself must do.
type model struct {
	sends []uverbs.WC // posted sends, as their expected completions
	recvs []uint64
	done  []uverbs.WC
}

// FuzzQueues makes random calls of a QP and a CQ, with a kernel that is behind by a
// random amount, and compares the completions with a model.
func FuzzQueues(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	f.Add([]byte("post poll run post post run poll reset batch batch run poll"))
	f.Fuzz(func(t *testing.T, script []byte) {
		const slots = 7
		k, q, c := newKernel(t, testCap(slots, slots, 1, 16), 1023)
		var m model
		id := uint64(0)
		request := func(x byte) (uverbs.SendWR, uverbs.WC) {
			id++
			wr := uverbs.SendWR{WRID: id, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, RemoteAddr: base, RKey: rkey}
			want := uverbs.WC{WRID: id, Opcode: uverbs.WCWrite, QPNum: qpn, ByteLen: uint32(x % 16)}
			switch {
			case x&16 != 0:
				wr.Inline = make([]byte, x%16)
			default:
				wr.SGL = []uverbs.SGE{sge(64, int(x%16))}
				if x&32 != 0 {
					wr.Opcode, want.Opcode = uverbs.OpRead, uverbs.WCRead
				}
			}
			return wr, want
		}
		for i, b := range script {
			x := byte(i)*37 + b
			switch b % 8 {
			case 0, 1: // PostSend
				var wrs []uverbs.SendWR
				var wants []uverbs.WC
				for j := range x % 5 {
					wr, want := request(x + j)
					wrs, wants = append(wrs, wr), append(wants, want)
				}
				n, err := q.PostSend(wrs)
				if room := slots - len(m.sends); n != min(room, len(wrs)) || (err == nil) != (n == len(wrs)) {
					t.Fatalf("step %d: posted %d of %d with room for %d: %v", i, n, len(wrs), room, err)
				}
				m.sends = append(m.sends, wants[:n]...)
			case 2, 3: // a batch
				q.Begin()
				var wants []uverbs.WC
				for j := range x % 5 {
					wr, want := request(x + j)
					addToBatch(q, &wr)
					wants = append(wants, want)
				}
				if b%16 == 2 {
					q.Abort()
					break
				}
				fits := len(wants) <= slots-len(m.sends)
				if err := q.Submit(); (err == nil) != fits {
					t.Fatalf("step %d: batch of %d, %d in the queue: %v", i, len(wants), len(m.sends), err)
				}
				if fits {
					m.sends = append(m.sends, wants...)
				}
			case 4: // PostRecv
				id++
				n, err := q.PostRecv([]uverbs.RecvWR{{WRID: id}})
				if (n == 1) != (len(m.recvs) < slots) || (n == 1) != (err == nil) {
					t.Fatalf("step %d: PostRecv: %d, %v with %d in the queue", i, n, err, len(m.recvs))
				}
				if n == 1 {
					m.recvs = append(m.recvs, id)
				}
			case 5: // the kernel executes some of the requests
				for j := 0; j < int(x%4) && len(m.sends) > 0; j++ {
					if !k.execute(k.sq.element(k.sq.own)) {
						t.Fatalf("step %d: no receive needed, none there", i)
					}
					k.sq.advance()
					m.done = append(m.done, m.sends[0])
					m.sends = m.sends[1:]
				}
			case 6: // a state change
				if b&64 == 0 {
					k.reset()
					q.Reset()
				} else {
					k.flush()
					for _, w := range m.sends {
						m.done = append(m.done, uverbs.WC{WRID: w.WRID, Status: uverbs.WCWRFlushErr, QPNum: qpn})
					}
					for _, id := range m.recvs {
						m.done = append(m.done, uverbs.WC{WRID: id, Status: uverbs.WCWRFlushErr, QPNum: qpn})
					}
				}
				m.sends, m.recvs = nil, nil
			case 7:
				wcs := make([]uverbs.WC, x%5)
				n, err := c.Poll(wcs)
				if err != nil || n != min(len(wcs), len(m.done)) {
					t.Fatalf("step %d: polled %d of %d: %v", i, n, len(m.done), err)
				}
				if d := cmp.Diff(m.done[:n], wcs[:n]); n > 0 && d != "" {
					t.Fatalf("step %d: -want +got\n%s", i, d)
				}
				m.done = slices.Clone(m.done[n:])
			}
			if len(m.done) > 1000 {
				return
			}
			if c.Ready() != (len(m.done) > 0) {
				t.Fatalf("step %d: Ready is %v with %d completions", i, c.Ready(), len(m.done))
			}
		}
	})
}
