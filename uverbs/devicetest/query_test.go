package devicetest

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// offered skips the test if the device returned a typed error because it does not support the
// feature.
func offered(t *testing.T, feature string, err error) {
	t.Helper()
	if errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, feature, err)
	}
	check(t, err)
}

// TestDeviceQueryGID compares single entries with the table.
func TestDeviceQueryGID(t *testing.T) {
	dev := openDevice(t)
	used := map[int]bool{}
	for _, want := range must(dev.GIDs(1))(t) {
		used[want.Index] = true
		got := must(dev.QueryGID(1, want.Index))(t)
		if d := cmp.Diff(want, *got); d != "" {
			t.Errorf("index %d: (-table +entry)\n%s", want.Index, d)
		}
	}
	if len(used) == 0 {
		t.Fatal("the device has no GID")
	}
	free := 0
	for used[free] {
		free++
	}
	for _, index := range []int{free, must(dev.QueryPort(1))(t).GIDTableLen, 1 << 30} {
		if _, err := dev.QueryGID(1, index); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("index %d: %v", index, err)
		}
	}
}

// TestDevicePKeyIndex checks that PKeyIndex returns each P_Key's index.
func TestDevicePKeyIndex(t *testing.T) {
	dev := openDevice(t)
	keys := must(dev.PKeys(1))(t)
	if n := must(dev.QueryPort(1))(t).PKeyTableLen; n != len(keys) {
		t.Errorf("%d P_Keys, the port says %d", len(keys), n)
	}
	if rnic(dev) {
		if len(keys) != 0 {
			t.Errorf("P_Keys %#x of iWARP", keys)
		}
	} else if i := must(dev.PKeyIndex(1, keys[0]))(t); i != 0 {
		t.Errorf("%#x is at %d", keys[0], i)
	}
	if i, err := dev.PKeyIndex(1, 0x1234); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("0x1234: %d, %v", i, err)
	}
}

// TestDeviceQueryQP checks that Query returns the attributes that Modify has set.
func TestDeviceQueryQP(t *testing.T) {
	l := newLoop(t, func(c *uverbs.QPConfig) { c.SignalAll = true })
	peer := endpoint(t, l.b.qp)
	q := l.a.qp
	want := uverbs.QPAttr{State: uverbs.StateRTS, PathMTU: uverbs.MTU512, RQPSN: 0x123456, SQPSN: 0x654321,
		DestQPN: peer.QPN, Access: uverbs.RemoteRead | uverbs.RemoteWrite, PKeyIndex: 0, MaxRdAtomic: 8, MaxDestRdAtomic: 4,
		MinRNRTimer: 11, Port: 1, Timeout: 13, RetryCount: 3, RNRRetryCount: 5,
		AV: uverbs.AHAttr{IsGlobal: true, DGID: peer.GID,
			SGIDIndex: uint8(must(l.dev.SelectGID(0, netip.Addr{}))(t).Index), HopLimit: 33, TrafficClass: 0x40,
			FlowLabel: 0x12345, Port: 1}}
	const toInit = uverbs.MaskState | uverbs.MaskPKeyIndex | uverbs.MaskPort | uverbs.MaskAccess
	const toRTR = uverbs.MaskState | uverbs.MaskAV | uverbs.MaskPathMTU | uverbs.MaskDestQPN | uverbs.MaskRQPSN |
		uverbs.MaskMaxDestRdAtomic | uverbs.MaskMinRNRTimer
	const toRTS = uverbs.MaskState | uverbs.MaskTimeout | uverbs.MaskRetryCount | uverbs.MaskRNRRetryCount |
		uverbs.MaskSQPSN |
		uverbs.MaskMaxRdAtomic
	for _, step := range []struct {
		to uverbs.QPState
		m  uverbs.QPMask
	}{{uverbs.StateReset, uverbs.MaskState}, {uverbs.StateInit, toInit}, {uverbs.StateRTR, toRTR},
		{uverbs.StateRTS, toRTS}} {
		a := want
		a.State = step.to
		check(t, q.Modify(a, step.m))
	}
	got := must(q.Query(toInit | toRTR | toRTS | uverbs.MaskCap | uverbs.MaskQKey))(t)
	want.CurState, want.SignalAll = got.CurState, true
	// The kernel uses the route's hop limit. rxe returns the size of the rings, which may be
	// larger than the QP's, and an alternate path whether there is one or not.
	if got.AV.HopLimit == 0 || got.Cap.MaxSendWR < q.Cap().MaxSendWR || got.Cap.MaxRecvWR < q.Cap().MaxRecvWR {
		t.Errorf("%+v, made with %+v", got, q.Cap())
	}
	want.AV.HopLimit, want.Cap, want.AltAV, want.AltPort = got.AV.HopLimit, got.Cap, got.AltAV, got.AltPort
	if got.CurState != uverbs.StateRTS && got.CurState != uverbs.StateReset { // rxe leaves it at 0
		t.Errorf("the current state is %v", got.CurState)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-set +queried)\n%s", d)
	}
}

// TestDeviceRefusals calls functions that only some devices support, and accepts a typed error
// from the others.
func TestDeviceRefusals(t *testing.T) {
	t.Run("port speed", func(t *testing.T) {
		v, err := openDevice(t).QueryPortSpeed(1)
		offered(t, features.PortSpeed, err)
		if v == 0 {
			t.Error("the port has no speed")
		}
	})
	t.Run("CQ moderation", func(t *testing.T) {
		dev := openDevice(t)
		cq := must(dev.CreateCQ(uverbs.CQConfig{Entries: 8}))(t)
		err := cq.Moderate(2, 10*time.Microsecond)
		if has := must(dev.QueryDevice())(t).MaxModerateCount > 0; has != (err == nil) {
			t.Errorf("the device says that it does it: %t; %v", has, err)
		}
		offered(t, features.Moderation, err)
	})
	t.Run("rate limit", func(t *testing.T) {
		l := newLoop(t, nil)
		err := l.a.qp.Modify(uverbs.QPAttr{State: uverbs.StateRTS, RateLimit: 1000}, uverbs.MaskState|uverbs.MaskRateLimit)
		if errors.Is(err, uverbs.ErrInvalid) && strings.Contains(err.Error(), "does not accept RateLimit") {
			features.Missing(t, features.RateLimit, err)
		}
		offered(t, features.RateLimit, err)
	})
	t.Run("dma-buf", func(t *testing.T) {
		pd := must(openDevice(t).AllocPD())(t)
		null := must(unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0))(t)
		defer unix.Close(null)
		m, err := pd.RegDMABuf(null, 0, 4096, 0, uverbs.LocalWrite)
		if err == nil {
			check(t, m.Close())
			t.Fatal("/dev/null is taken for a dma-buf")
		}
		if !errors.Is(err, uverbs.ErrInvalid) { // the error of a device that supports it
			offered(t, features.DMABuf, err)
		}
	})
}
