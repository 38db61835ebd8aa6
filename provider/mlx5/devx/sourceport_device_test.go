//go:build device

package devx_test

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/provider/mlx5/devx"
	"github.com/goverbs/goverbs/uverbs"
)

// loop creates a QP of the verbs that is connected to itself.
func loop(t *testing.T, ctx *uverbs.Context) (*uverbs.QP, *uverbs.CQ, *uverbs.MR) {
	t.Helper()
	pd, err := ctx.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	mr, err := pd.Alloc(4096, uverbs.LocalWrite|uverbs.RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	cq, err := ctx.CreateCQ(uverbs.CQConfig{Entries: 16})
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4,
		Access: uverbs.RemoteWrite})
	if err != nil {
		t.Fatal(err)
	}
	own, err := qp.Endpoint()
	if err == nil {
		err = qp.Connect(own)
	}
	if err != nil {
		t.Fatal(err)
	}
	return qp, cq, mr
}

// TestDeviceParityUDPSport has the test of rdma-core's tests/test_mlx5_udp_sport.py.
func TestDeviceParityUDPSport(t *testing.T) {
	t.Run("test_rc_modify_udp_sport", sendFromPort)
}

// sendFromPort changes the UDP source port of a QP, and sends. On InfiniBand it checks that the port cannot be changed.
func sendFromPort(t *testing.T) {
	ctx := open(t)
	port, err := ctx.QueryPort(1)
	if err != nil {
		t.Fatal(err)
	}
	qp, cq, mr := loop(t, ctx)
	err = mlx5.ModifyUDPSourcePort(qp, 55555)
	if port.LinkLayer == uverbs.LinkInfiniBand {
		if !errors.Is(err, uverbs.ErrNotSupported) {
			t.Errorf("on InfiniBand: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, prm.QueryQPOut.Size)
	if err := devx.QueryQP(qp, input(0x50b, prm.QueryQPIn, set(prm.QueryQPInQPN, uint64(qp.QPN()))), out); err != nil {
		t.Fatal(err)
	}
	if got := prm.ADSUDPSport.Get(prm.QPCPrimary.Bytes(prm.QueryQPOutQPC.Bytes(out))); got != 55555 {
		t.Errorf("the port is %d", got)
	}
	for i := range 10 {
		mr.Bytes()[0] = byte(1 + i)
		if _, err := qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
			SGL: []uverbs.SGE{mr.SGE(0, 8)}, RemoteAddr: mr.Addr() + 100, RKey: mr.RKey()}); err != nil {
			t.Fatal(err)
		}
		if err := cq.Wait(deadline(t)); err != nil {
			t.Fatal(err)
		}
		var wc [1]uverbs.WC
		if n, err := cq.Poll(wc[:]); n != 1 || err != nil || wc[0].Status != uverbs.WCSuccess {
			t.Fatalf("%d completions: %v, %v", n, wc[0].Status, err)
		}
		if mr.Bytes()[100] != byte(1+i) {
			t.Errorf("after request %d, the byte is %d", i, mr.Bytes()[100])
		}
	}
}
