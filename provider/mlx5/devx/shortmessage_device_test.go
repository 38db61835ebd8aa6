//go:build device

package devx_test

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/provider/mlx5/devx"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceShortMessages checks that messages of any length arrive in memory with a key of DevX, on queue pairs of
// uverbs that were created after the key.
func TestDeviceShortMessages(t *testing.T) {
	ctx := open(t)
	fatal := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pd, err := ctx.AllocPD()
	fatal(err)
	cq, err := ctx.CreateCQ(uverbs.CQConfig{Entries: 16})
	fatal(err)
	mr, err := pd.Alloc(4096, uverbs.LocalWrite)
	fatal(err)
	connected := func() *uverbs.QP {
		qp, err := pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4})
		fatal(err)
		self, err := qp.Endpoint()
		fatal(err)
		fatal(qp.Connect(self))
		return qp
	}
	first := connected()
	out := make([]byte, prm.QueryQPOut.Size)
	fatal(devx.QueryQP(first, input(0x50b, prm.QueryQPIn, set(prm.QueryQPInQPN, uint64(first.QPN()))), out))
	umem, err := devx.AllocUmem(ctx, 4096, uverbs.LocalWrite)
	fatal(err)
	r := &rig{t: t, ctx: ctx, pd: prm.QPCPD.Get(prm.QueryQPOutQPC.Bytes(out)), data: umem}
	_, index := create(t, ctx, 0x200, prm.CreateMKeyIn, prm.CreateMKeyOutMKeyIndex, r.key)
	qp := connected()
	for _, n := range []int{1, 31, 32, 33, 64, 65, 4096} {
		clear(umem.Bytes())
		for i := range mr.Bytes() {
			mr.Bytes()[i] = byte(i + n)
		}
		_, err := qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{{Addr: 0, Length: uint32(n), LKey: uint32(index) << 8}}})
		fatal(err)
		_, err = qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, SGL: []uverbs.SGE{mr.SGE(0, n)}})
		fatal(err)
		for range 2 {
			var wc [1]uverbs.WC
			_, err := cq.PollWait(deadline(t), wc[:])
			fatal(err)
			fatal(wc[0].Err())
		}
		if !bytes.Equal(umem.Bytes()[:n], mr.Bytes()[:n]) {
			t.Errorf("a message of %d bytes did not arrive", n)
		}
	}
}
