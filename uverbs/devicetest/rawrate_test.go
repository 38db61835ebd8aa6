package devicetest

import (
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceRawRateLimit sends frames at a limited rate: they take at least as long as the rate says.
func TestDeviceRawRateLimit(t *testing.T) {
	const frames, size, rate = 20, 1000, 8000 // a frame takes 1 ms
	p := newRawTap(t, 0)
	limits := must(mlx5.QueryDevice(p.dev))(t).Rates
	if limits.Max == 0 {
		features.Missing(t, features.RawRate, errors.New("QueryDevice reports no rates"))
	}
	check(t, mlx5.ModifyRateLimit(p.qp, mlx5.RateLimit{Rate: rate}))
	frame := rawPacket{dst: rawMAC, from: 1, payload: size - 42}.frame()
	if len(frame) != size {
		t.Fatalf("the frame has %d bytes", len(frame))
	}
	copy(p.mr.Bytes(), frame)
	start := time.Now()
	for i := range frames {
		post(t, p.qp, uverbs.SendWR{WRID: uint64(i), Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
			Inline: frame[:18], SGL: []uverbs.SGE{p.mr.SGE(18, size-18)}})
	}
	for i := range frames {
		if wc := p.next(t); wc.WRID != uint64(i) {
			t.Errorf("completion %d is of request %d", i, wc.WRID)
		}
	}
	if took, least := time.Since(start), (frames-1)*time.Millisecond; took < least {
		t.Errorf("%d frames took %v, at least %v at %d kb/s", frames, took, least, rate)
	}
	if err := mlx5.ModifyRateLimit(p.qp, mlx5.RateLimit{Rate: limits.Max + 1}); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a rate that the device does not have: %v", err)
	}
	check(t, mlx5.ModifyRateLimit(p.qp, mlx5.RateLimit{}))
	p.send(t, frame, 18, 0)
}
