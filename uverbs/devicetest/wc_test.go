package devicetest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceWCFields checks all fields of completions of rxe. Fields that it does not support must
// be zero.
func TestDeviceWCFields(t *testing.T) {
	if name := deviceName(t); !strings.HasPrefix(name, "rxe") {
		t.Skipf("%s is another driver's: the test is of what rxe leaves out", name)
	}
	l := newLoop(t, nil)
	a, b := l.a.qp.QPN(), l.b.qp.QPN()
	sge := []uverbs.SGE{l.a.mr.SGE(0, 8)}
	remote := func(op uverbs.Opcode) uverbs.SendWR {
		return uverbs.SendWR{Opcode: op, SGL: sge, RemoteAddr: l.b.mr.Addr(), RKey: l.b.mr.RKey(), Imm: 9}
	}
	for _, c := range []struct {
		wr         uverbs.SendWR
		sent, recv uverbs.WC // recv with Opcode 0: nothing is received
	}{
		{uverbs.SendWR{Opcode: uverbs.OpSend, SGL: sge}, uverbs.WC{Opcode: uverbs.WCSend},
			uverbs.WC{Opcode: uverbs.WCRecv, Flags: uverbs.WCGRH}},
		{uverbs.SendWR{Opcode: uverbs.OpSendImm, SGL: sge, Imm: 9}, uverbs.WC{Opcode: uverbs.WCSend, Flags: uverbs.WCWithImm},
			uverbs.WC{Opcode: uverbs.WCRecv, Flags: uverbs.WCGRH | uverbs.WCWithImm, Imm: 9}},
		{remote(uverbs.OpWrite), uverbs.WC{Opcode: uverbs.WCWrite}, uverbs.WC{}},
		{remote(uverbs.OpWriteImm), uverbs.WC{Opcode: uverbs.WCWrite, Flags: uverbs.WCWithImm},
			uverbs.WC{Opcode: uverbs.WCRecvRDMAImm, Flags: uverbs.WCGRH | uverbs.WCWithImm, Imm: 9}},
		{remote(uverbs.OpRead), uverbs.WC{Opcode: uverbs.WCRead}, uverbs.WC{}},
		{remote(uverbs.OpCompareSwap), uverbs.WC{Opcode: uverbs.WCCompareSwap}, uverbs.WC{}},
		{remote(uverbs.OpFetchAdd), uverbs.WC{Opcode: uverbs.WCFetchAdd}, uverbs.WC{}},
	} {
		t.Run(c.wr.Opcode.String(), func(t *testing.T) {
			received := c.recv.Opcode != 0
			if received {
				receive(t, l.b.qp, uverbs.RecvWR{WRID: 2, SGL: []uverbs.SGE{l.b.mr.SGE(0, 64)}})
			}
			wr := c.wr
			wr.WRID, wr.Flags = 1, uverbs.Signaled
			post(t, l.a.qp, wr)
			c.sent.WRID, c.sent.ByteLen, c.sent.QPNum = 1, 8, a
			if d := cmp.Diff(c.sent, l.completion(t, l.a)); d != "" {
				t.Errorf("sent: -want +got\n%s", d)
			}
			if !received {
				return
			}
			c.recv.WRID, c.recv.ByteLen, c.recv.QPNum = 2, 8, b
			if d := cmp.Diff(c.recv, l.completion(t, l.b)); d != "" {
				t.Errorf("received: -want +got\n%s", d)
			}
		})
	}
}
