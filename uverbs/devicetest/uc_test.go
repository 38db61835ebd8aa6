package devicetest

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

func unacknowledged(c *uverbs.QPConfig) { c.Type = uverbs.UC }

// TestDeviceUCSend checks that a message of many packets arrives completely on UC. No other message
// is in flight in these loops.
func TestDeviceUCSend(t *testing.T) {
	l := newLoop(t, unacknowledged)
	for _, n := range sizes {
		l.a.fill(byte(n))
		clear(l.b.mr.Bytes())
		receive(t, l.b.qp, uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{l.b.mr.SGE(0, bufSize)}})
		post(t, l.a.qp, uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSendImm, Flags: uverbs.Signaled, Imm: uint32(n),
			SGL: []uverbs.SGE{l.a.mr.SGE(0, n)}})
		l.success(t, l.a, 2, uverbs.WCSend)
		if wc := l.success(t, l.b, 1, uverbs.WCRecv); int(wc.ByteLen) != n || wc.Flags&uverbs.WCWithImm == 0 ||
			wc.Imm != uint32(n) {
			t.Fatalf("size %d: received %+v", n, wc)
		}
		same(t, l.b.mr.Bytes()[:n], l.a.mr.Bytes()[:n])
	}
}

func TestDeviceUCWrite(t *testing.T) {
	l := newLoop(t, unacknowledged)
	for _, n := range sizes {
		l.a.fill(byte(n))
		clear(l.b.mr.Bytes())
		receive(t, l.b.qp, uverbs.RecvWR{WRID: 1})
		b := l.a.qp.StartSend()
		b.Write(2, 0, l.b.mr.Addr(), l.b.mr.RKey())
		b.SGE(l.a.mr.SGE(0, n))
		b.WriteImm(3, uverbs.Signaled, 0, 0, 7)
		check(t, b.Submit())
		l.success(t, l.a, 3, uverbs.WCWrite)
		if wc := l.success(t, l.b, 1, uverbs.WCRecvRDMAImm); wc.Imm != 7 || wc.ByteLen != 0 {
			t.Fatalf("received %+v", wc)
		}
		same(t, l.b.mr.Bytes()[:n], l.a.mr.Bytes()[:n])
	}
}

// TestDeviceUCWriteLost checks that a WRITE to memory without remote write access is lost, and that
// neither end reports it.
func TestDeviceUCWriteLost(t *testing.T) {
	l := newLoop(t, unacknowledged)
	write := uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWriteImm, Flags: uverbs.Signaled, SGL: []uverbs.SGE{l.a.mr.SGE(0, 8)},
		RemoteAddr: l.b.mr.Addr(), RKey: l.b.mr.RKey() + 1}
	l.a.fill(3)
	receive(t, l.b.qp, uverbs.RecvWR{WRID: 2})
	post(t, l.a.qp, write)
	l.success(t, l.a, 1, uverbs.WCWrite)
	write.RKey--
	post(t, l.a.qp, write)
	l.success(t, l.a, 1, uverbs.WCWrite)
	l.success(t, l.b, 2, uverbs.WCRecvRDMAImm)
	same(t, l.b.mr.Bytes()[:8], l.a.mr.Bytes()[:8])
}

// TestDeviceUCRevive checks that a request that fails locally moves the QP to SQE or ERR, and that
// the QP works again after RESET.
func TestDeviceUCRevive(t *testing.T) {
	l := newLoop(t, unacknowledged)
	for range 3 {
		bad := l.a.mr.SGE(0, 8)
		bad.LKey ^= 0x5500
		post(t, l.a.qp, uverbs.SendWR{WRID: 1, Opcode: uverbs.OpSend, SGL: []uverbs.SGE{bad}},
			uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend})
		// Newer kernels flush it before they find out the cause.
		if wc := l.completion(t, l.a); wc.WRID != 1 || wc.Status != uverbs.WCLocProtErr && wc.Status != uverbs.WCLocQPOpErr &&
			wc.Status != uverbs.WCWRFlushErr {
			t.Fatalf("completion %+v", wc)
		}
		if wc := l.completion(t, l.a); wc.WRID != 2 || !errors.Is(wc.Err(), uverbs.WCWRFlushErr) {
			t.Fatalf("completion %+v", wc)
		}
		// The IBA requires SQE. rxe moves the QP to ERR.
		if a := must(l.a.qp.Query(uverbs.MaskState))(t); a.State != uverbs.StateErr && a.State != uverbs.StateSQE {
			t.Fatalf("the QP is in %v", a.State)
		}
		l.revive(t)
	}
}

func TestDeviceUCRefused(t *testing.T) {
	l := newLoop(t, unacknowledged)
	n, err := l.a.qp.PostSend(uverbs.SendWR{
		Opcode: uverbs.OpRead, SGL: []uverbs.SGE{l.a.mr.SGE(0, 8)}, RemoteAddr: l.b.mr.Addr(), RKey: l.b.mr.RKey()})
	if n != 0 || !errors.Is(err, uverbs.ErrQPType) {
		t.Fatalf("READ: %d, %v", n, err)
	}
	cq := must(l.dev.CreateCQ(uverbs.CQConfig{Entries: 4}))(t)
	qp := typedQP(t, l.pd, uverbs.QPConfig{Type: uverbs.UC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4})
	check(t, qp.Init())
	if err := qp.Modify(uverbs.QPAttr{State: uverbs.StateRTR}, uverbs.MaskState); !errors.Is(err, uverbs.ErrInvalid) {
		t.Fatalf("RTR without a peer: %v", err)
	} else {
		t.Log(err)
	}
	if err := qp.Ready(); !errors.Is(err, uverbs.ErrInvalid) {
		t.Fatalf("Ready: %v", err)
	}
}

func TestDeviceUCHandshake(t *testing.T) { testHandshake(t, unacknowledged) }
