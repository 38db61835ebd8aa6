package mlx5

import (
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// A cqeRig is a QP and a CQ to which the test writes completions.
type cqeRig struct {
	*bench
	q *cq
}

func newCQERig(t *testing.T, indexed bool) *cqeRig {
	b := newBench(t, uverbs.QPConfig{MaxSendWR: 4, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1},
		func(c *deviceContext) { c.indexed = indexed })
	if !indexed {
		b.ctx.targets.put(benchQPN, &b.target) // newBench does not do this
	}
	p, _, err := b.ctx.CreateCQ(&driver.CQConfig{Entries: 15}, noCQCommand)
	check(t, err)
	t.Cleanup(func() { check(t, p.Retire(true)) })
	return &cqeRig{b, p.(*cq)}
}

// writes writes a completion as the device does, which the next Poll returns. name is the user
// index, or an SRQ's number.
func (r *cqeRig) writes(opcode, name, counter, syndromes uint64) {
	e := r.q.at(r.q.ci)
	*e = block{4: be(name << 32), 6: be(syndromes)}
	e[7] = be(benchQPN<<32 | counter<<16 | opcode<<opcodeShift | r.q.owner(r.q.ci))
	r.q.at(r.q.ci + 1)[7] = be(invalidEntry | r.q.owner(r.q.ci+1) ^ ownerBit)
}

// TestVersion0Requester checks that the SRQ number in completions of version 0 is used only for receives. For sends it
// may have any value.
func TestVersion0Requester(t *testing.T) {
	r := newCQERig(t, false)
	s := newBenchSRQ(t, r.ctx)
	r.ctx.srqs.put(5, &s.target)
	for _, opcode := range []uint64{cqeRequester, cqeReqError} {
		for _, srqn := range []uint64{0, 5, 6} {
			at := r.sq.cur & r.sq.mask
			good(r.PostSend([]uverbs.SendWR{{WRID: 9, Opcode: uverbs.OpSend, Flags: uverbs.Signaled}}))(t)
			r.writes(opcode, srqn, uint64(at), 0x05)
			r.q.last, r.q.key = nil, noIndex
			var wcs [2]uverbs.WC
			n, err := r.q.Poll(wcs[:])
			if n != 1 || err != nil || wcs[0].WRID != 9 || (wcs[0].Status == uverbs.WCSuccess) != (opcode == cqeRequester) {
				t.Errorf("opcode %d, SRQ %d: %d, %v: %+v", opcode, srqn, n, err, wcs[0])
			}
			if r.sq.outstanding() != 0 {
				t.Errorf("opcode %d, SRQ %d: %d sends are outstanding", opcode, srqn, r.sq.outstanding())
			}
			r.writes(opcode, srqn, uint64(at), 0x05)
			if r.q.drop(r.q.ci, &s.target) {
				t.Errorf("opcode %d, SRQ %d: the completion is dropped with the SRQ", opcode, srqn)
			}
			if !r.q.drop(r.q.ci, &r.target) {
				t.Errorf("opcode %d, SRQ %d: the completion stays when the QP is closed", opcode, srqn)
			}
		}
	}
}

// TestReceivesOutOfOrder checks that completions of receives may come in any order, since they name the receive.
func TestReceivesOutOfOrder(t *testing.T) {
	r := newCQERig(t, true)
	for lap := range uint64(3) {
		for i := range uint64(8) {
			good(r.PostRecv([]uverbs.RecvWR{{WRID: 100*lap + i, SGL: []uverbs.SGE{{Addr: 1, Length: 8, LKey: 7}}}}))(t)
		}
		for k, i := range []uint64{2, 0, 1, 7, 3, 6, 4, 5} {
			opcode := uint64([]int{cqeSend, cqeSendImm, cqeWriteImm, cqeSendInv}[k%4])
			r.writes(opcode, uint64(r.target.key), 8*lap+i, 0)
			var wcs [2]uverbs.WC
			n, err := r.q.Poll(wcs[:])
			if n != 1 || err != nil || wcs[0].WRID != 100*lap+i || wcs[0].Err() != nil {
				t.Errorf("lap %d, receive %d: %d, %v: %+v", lap, i, n, err, wcs[0])
			}
		}
		if n := r.rq.outstanding(); n != 0 {
			t.Errorf("%d receives are outstanding", n)
		}
	}
}

// TestForeignOpcodes checks that completions of features that this library does not use, matched tags (6) and
// signatures (12), and of undefined opcodes are reported once, for all queues that they name. The completions after
// them are returned.
func TestForeignOpcodes(t *testing.T) {
	for _, opcode := range []uint64{6, 7, 8, 9, 10, 11, 12, 15} {
		for _, name := range []uint64{0, 0x777} {
			r := newCQERig(t, true)
			good(r.PostSend([]uverbs.SendWR{{WRID: 9, Opcode: uverbs.OpSend, Flags: uverbs.Signaled}}))(t)
			var wcs [2]uverbs.WC
			r.writes(opcode, name, 0, 0)
			if n, err := r.q.Poll(wcs[:]); n != 0 || err != errFormat {
				t.Errorf("opcode %d of queue %#x: %d, %v", opcode, name, n, err)
			}
			r.writes(cqeRequester, uint64(r.target.key), 0, 0)
			if n, err := r.q.Poll(wcs[:]); n != 1 || err != nil || wcs[0].WRID != 9 {
				t.Errorf("behind opcode %d: %d, %v: %+v", opcode, n, err, wcs[0])
			}
		}
	}
}

func noCommand([]byte, []byte) (driver.Reply, error) { return driver.Reply{}, nil }

func noCQCommand(_, _ []byte, _ ...driver.Attr) (driver.Reply, error) {
	return driver.Reply{}, nil
}
