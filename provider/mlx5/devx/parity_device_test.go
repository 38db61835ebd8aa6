//go:build device

package devx_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/provider/mlx5/devx"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceParityDevX has tests of rdma-core's tests/test_mlx5_devx.py.
func TestDeviceParityDevX(t *testing.T) {
	t.Run("test_devx_rc_qp_send_imm_traffic", sendImm)
}

// sendImm sends messages with an immediate between queue pairs of two contexts, in both directions.
func sendImm(t *testing.T) {
	const (
		sends     = sqOffset + 256 // after 16 receives
		sendImm   = 0x0b
		withImm   = 3 // the opcode of the receive's completion
		n         = 1024
		immOffset = 36
	)
	a, b := createRig(t, sends), createRig(t, sends)
	a.connect(b.qpn)
	b.connect(a.qpn)
	for i := range uint32(100) { // the rings wrap
		from, to := a, b
		if i%2 == 1 {
			from, to = b, a
		}
		to.receive(n)
		data := from.data.Bytes()[:n]
		for j := range data {
			data[j] = byte(j) + byte(i)
		}
		from.request(sendImm, 0x03020100+i, from.segment(0, n))
		from.completion(0)
		if imm := binary.BigEndian.Uint32(to.completion(withImm)[immOffset:]); imm != 0x03020100+i {
			t.Fatalf("message %d has the immediate %#x", i, imm)
		}
		if got := to.data.Bytes()[half : half+n]; !bytes.Equal(got, data) {
			t.Fatalf("message %d is % x, want % x", i, got, data)
		}
	}
}

// TestDeviceParityUAR has the test of rdma-core's tests/test_mlx5_uar.py.
func TestDeviceParityUAR(t *testing.T) {
	t.Run("test_alloc_uar", allocUARs)
}

// allocUARs allocates pages of both types.
func allocUARs(t *testing.T) {
	ctx := open(t)
	nonCached, err := devx.AllocUAR(ctx, devx.NonCached)
	if err != nil {
		t.Fatal(err)
	}
	blueFlame, err := devx.AllocUAR(ctx, devx.BlueFlame)
	if errors.Is(err, uverbs.ErrNotSupported) {
		port, failed := ctx.QueryPort(1)
		if failed != nil {
			t.Fatal(failed)
		}
		if port.LinkLayer == uverbs.LinkInfiniBand {
			features.Missing(t, features.BlueFlameUARIB, err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if a, b := nonCached.Page(), blueFlame.Page(); a == 0 || b == 0 || a == b {
		t.Errorf("pages %d and %d", a, b)
	}
	for _, u := range []*devx.UAR{nonCached, blueFlame} {
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	}
}
