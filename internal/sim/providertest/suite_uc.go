package providertest

import (
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// ucWrite checks WRITEs with a WRITE with immediate after them: on UC the completion of a WRITE
// does not mean that the data has arrived.
func ucWrite(t *testing.T, r *Rig) {
	big := strings.Repeat("sixteen bytes ..", 1024)
	copy(r.Mem, big)
	for lap := range uint64(20) {
		clear(r.Mem[20000:60000])
		r.recv(t, uverbs.RecvWR{WRID: lap})
		told := r.write(lap, 0, 40000, len(big))
		told.Opcode, told.Imm = uverbs.OpWriteImm, uint32(lap)
		r.send(t, r.write(1000, 0, 20000, 100), told)
		for _, wc := range r.done(t, 3) {
			switch {
			case wc.Opcode == uverbs.WCWrite && (wc.WRID == 1000 || wc.WRID == lap):
			case wc.Opcode == uverbs.WCRecvRDMAImm && wc.WRID == lap && wc.Imm == uint32(lap) && int(wc.ByteLen) == len(big):
			default:
				t.Errorf("completion %+v", wc)
			}
		}
		r.want(t, 20000, big[:100]+"\x00")
		r.want(t, 40000, big)
	}
}

func ucBatch(t *testing.T, r *Rig) {
	copy(r.Mem, "batch of several")
	for lap := range uint64(20) {
		clear(r.Mem[1000:4000])
		r.recv(t, uverbs.RecvWR{WRID: 10, SGL: []uverbs.SGE{r.sge(1000, 64)}}, uverbs.RecvWR{WRID: 11})
		q := r.QP
		q.Begin()
		q.Op(uverbs.OpWrite, 0, 1, r.Addr+2000, r.RKey, 0)
		q.SGE(r.sge(0, 5))
		q.SGE(r.sge(5, 11))
		q.Op(uverbs.OpSendImm, 0, 2, 0, 0, 77)
		q.SGE(r.sge(0, 16))
		q.Op(uverbs.OpWriteImm, uverbs.Signaled, lap, r.Addr+3000, r.RKey, 78)
		q.Inline([]byte("inline"))
		if err := q.Submit(); err != nil {
			t.Fatal(err)
		}
		for _, wc := range r.done(t, 3) {
			switch {
			case wc.Opcode == uverbs.WCWrite && wc.WRID == lap:
			case wc.Opcode == uverbs.WCRecv && wc.WRID == 10 && wc.Imm == 77 && wc.ByteLen == 16:
			case wc.Opcode == uverbs.WCRecvRDMAImm && wc.WRID == 11 && wc.Imm == 78 && wc.ByteLen == 6:
			default:
				t.Errorf("completion %+v", wc)
			}
		}
		r.want(t, 1000, "batch of several")
		r.want(t, 2000, "batch of several")
		r.want(t, 3000, "inline\x00")
	}
}

// ucRefused checks that operations which UC does not support are refused.
func ucRefused(t *testing.T, r *Rig) {
	good := r.write(1, 0, 100, 1)
	for name, op := range map[string]uverbs.Opcode{
		"READ": uverbs.OpRead, "COMPARE_SWAP": uverbs.OpCompareSwap, "FETCH_ADD": uverbs.OpFetchAdd} {
		bad := r.write(2, 0, 100, 8)
		bad.Opcode = op
		if n, err := r.QP.PostSend([]uverbs.SendWR{good, bad, good}); n != 1 || !errors.Is(err, uverbs.ErrQPType) {
			t.Errorf("%s: PostSend: %d, %v; want 1, %v", name, n, err, uverbs.ErrQPType)
		}
		r.done(t, 1)
		r.QP.Begin()
		r.QP.Op(op, 0, 2, r.Addr, r.RKey, 0)
		if op != uverbs.OpRead {
			r.QP.Atomic(0, 0)
		}
		r.QP.SGE(r.sge(0, 8))
		if err := r.QP.Submit(); !errors.Is(err, uverbs.ErrQPType) {
			t.Errorf("%s: Submit: %v, want %v", name, err, uverbs.ErrQPType)
		}
	}
}

// ucLost sends messages for which no receive is posted. Their sends must complete, and later
// messages must arrive.
func ucLost(t *testing.T, r *Rig) {
	send := uverbs.SendWR{WRID: 1, Opcode: uverbs.OpSend, Flags: uverbs.Signaled}
	for range 2 * r.Cap.MaxSendWR {
		r.send(t, send)
		r.done(t, 1)
	}
	check(t, r.QP.Reset()) // afterwards no message is in flight
	r.recv(t, uverbs.RecvWR{WRID: 2})
	r.send(t, send)
	r.done(t, 2)
}

// ucReset checks that RESET empties the receive queue without completions, and that all slots are
// free afterwards.
func ucReset(t *testing.T, r *Rig) {
	recvs := make([]uverbs.RecvWR, r.Cap.MaxRecvWR+1)
	for lap := range 5 {
		r.recv(t, recvs[:5]...)
		check(t, r.QP.Reset())
		r.done(t, 0)
		r.outstanding(t, 0)
		if n, err := r.QP.PostRecv(recvs); n != r.Cap.MaxRecvWR || !errors.Is(err, uverbs.ErrQueueFull) {
			t.Errorf("lap %d: PostRecv: %d, %v; want %d, %v", lap, n, err, r.Cap.MaxRecvWR, uverbs.ErrQueueFull)
		}
		for id := range uint64(r.Cap.MaxRecvWR) {
			r.send(t, uverbs.SendWR{WRID: id, Opcode: uverbs.OpSend, Flags: uverbs.Signaled})
			for _, wc := range r.done(t, 2) {
				if wc.Opcode == uverbs.WCSend && wc.WRID != id {
					t.Fatalf("lap %d: completion %+v, want %d", lap, wc, id)
				}
			}
		}
	}
}
