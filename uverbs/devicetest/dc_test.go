package devicetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceDC sends from three DCIs to each of two DCTs, and checks that every message arrives at the DCT that it
// names, and that its completion has the number of the DCI. Then it reads from and writes to both DCTs.
func TestDeviceDC(t *testing.T) {
	s := setup{kind: uverbs.DCI, pairs: 3, srq: true, access: uverbs.RemoteWrite | uverbs.RemoteRead,
		qpAccess: uverbs.RemoteWrite | uverbs.RemoteRead}
	for _, batch := range []bool{false, true} {
		t.Run(fmt.Sprintf("batch=%v", batch), func(t *testing.T) {
			s.batch = batch
			a, b := newPlayers(t, s)
			for round := range 20 {
				for qp := range a.qps {
					from := []*player{a, b}[round%2]
					from.peer.receive(t, 0)
					op := []uverbs.Opcode{uverbs.OpSend, uverbs.OpSendImm, uverbs.OpWriteImm}[round%3]
					want := from.fill(t)
					from.post(t, qp, uverbs.SendWR{Opcode: op, SGL: from.outgoing(), RemoteAddr: from.addr, RKey: from.rkey,
						Imm: parityImm})
					must(from.done(t))(t)
					wc := must(from.peer.done(t))(t)
					if wc.QPNum != from.peer.dct.QPN() || wc.SrcQP != from.qps[qp].QPN() || int(wc.ByteLen) != len(want) {
						t.Fatalf("a message of QP %#x for DCT %#x arrives as %+v", from.qps[qp].QPN(), from.peer.dct.QPN(), wc)
					}
					same(t, from.peer.received(t), want)
				}
			}
			remoteTraffic(t, a, uverbs.OpWrite)
			remoteTraffic(t, a, uverbs.OpRead)
		})
	}
}

// TestDeviceDCErrors makes requests of a DCI fail in each way, and checks that the DCI then is in ERR, that it works
// again after RESET, and that the DCT has not noticed.
func TestDeviceDCErrors(t *testing.T) {
	s := setup{kind: uverbs.DCI, srq: true, access: uverbs.RemoteWrite, qpAccess: uverbs.RemoteWrite, rounds: 2}
	client, server := newPlayers(t, s)
	q := client.qps[0]
	for _, x := range []struct {
		name  string
		want  uverbs.WCStatus
		spoil func(*uverbs.SendWR)
	}{
		{"wrong access key", uverbs.WCRetryExcErr, func(wr *uverbs.SendWR) { wr.DCKey++ }},
		{"wrong RKey", uverbs.WCRemAccessErr, func(wr *uverbs.SendWR) { wr.RKey ^= 0xffff00 }},
		{"wrong LKey", uverbs.WCLocProtErr, func(wr *uverbs.SendWR) { wr.SGL[0].LKey ^= 0xffff00 }},
		{"READ that the DCT does not permit", uverbs.WCRemInvReqErr, func(wr *uverbs.SendWR) { wr.Opcode = uverbs.OpRead }},
	} {
		mine, theirs := client.fill(t), server.fill(t)
		wr := uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: client.outgoing(),
			RemoteAddr: client.addr, RKey: client.rkey}
		client.toDCT(&wr)
		x.spoil(&wr)
		must(q.PostSend(wr))(t)
		_, err := client.done(t)
		if x.want == uverbs.WCRemInvReqErr && errors.Is(err, uverbs.WCRemAccessErr) {
			err = x.want // adapters differ
		}
		fails(t, err, x.want)
		same(t, client.sent(t), mine)
		same(t, server.sent(t), theirs)
		if a := must(q.Query(uverbs.MaskState))(t); a.State != uverbs.StateErr {
			t.Errorf("%s: the DCI is in %v", x.name, a.State)
		}
		check(t, q.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
		check(t, q.Ready())
		remoteTraffic(t, client, uverbs.OpWrite)
	}
}

// TestDeviceDCClose closes DCTs while requests for them are posted. The requests complete, with success or an error,
// another DCT is not disturbed, and nothing hangs.
func TestDeviceDCClose(t *testing.T) {
	const depth = 20
	s := setup{kind: uverbs.DCI, pairs: 2, srq: true, access: uverbs.RemoteWrite, qpAccess: uverbs.RemoteWrite, rounds: 2}
	client, server := newPlayers(t, s)
	for lap := range 3 {
		goes := createDC(t, server.pd, uverbs.QPConfig{Type: uverbs.DCT, RecvCQ: server.cq, SRQ: server.srq, DCKey: dctKey,
			Access: uverbs.RemoteWrite})
		check(t, goes.Ready())
		wr := uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: client.outgoing(),
			RemoteAddr: client.addr, RKey: client.rkey}
		client.toDCT(&wr)
		wr.QPN = goes.QPN()
		for range depth {
			must(client.qps[0].PostSend(wr))(t)
		}
		check(t, goes.Close())
		failed := false
		for i := range depth {
			_, err := client.done(t)
			if failed = failed || err != nil; failed && err == nil {
				t.Errorf("lap %d: request %d succeeds after an error", lap, i)
			}
			if err != nil && !errors.Is(err, uverbs.WCRetryExcErr) && !errors.Is(err, uverbs.WCWRFlushErr) &&
				!errors.Is(err, uverbs.WCRemOpErr) {
				t.Errorf("lap %d: %v", lap, err)
			}
		}
		if failed {
			check(t, client.qps[0].Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
			check(t, client.qps[0].Ready())
		}
		remoteTraffic(t, client, uverbs.OpWrite)
	}
}

// TestDeviceDCQuery queries both ends, and checks that a DCT has the attributes that Ready set.
func TestDeviceDCQuery(t *testing.T) {
	client, _ := newPlayers(t, setup{kind: uverbs.DCI, srq: true, qpAccess: uverbs.RemoteWrite})
	if a := must(client.qps[0].Query(uverbs.MaskState | uverbs.MaskTimeout))(t); a.State != uverbs.StateRTS ||
		a.RetryCount != 6 || a.RNRRetryCount != 7 {
		t.Errorf("the DCI has %+v", a)
	}
	e := endpoint(t, client.dct)
	a := must(client.dct.Query(uverbs.MaskState | uverbs.MaskAccess | uverbs.MaskPort | uverbs.MaskPathMTU))(t)
	if a.State != uverbs.StateRTR || a.PathMTU != e.MTU || a.Access&uverbs.RemoteWrite == 0 || a.Port == 0 {
		t.Errorf("the DCT has %+v", a)
	}
	if _, err := client.dct.Query(uverbs.MaskTimeout); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("query of a DCT's timeout: %v", err)
	}
	err := client.dct.Modify(uverbs.QPAttr{State: uverbs.StateErr}, uverbs.MaskState)
	if !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a DCT to ERR: %v", err)
	}
}
