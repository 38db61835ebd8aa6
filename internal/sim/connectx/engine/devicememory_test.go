package engine_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

const deviceMemoryStart = 1 << 20

func withDeviceMemory() engine.Config {
	return engine.Config{DeviceMemory: engine.DeviceMemory{Start: deviceMemoryStart, Bytes: make([]byte, 16<<10)}}
}

// TestDeviceMemory checks transfers from and to device memory, and what the host
// loads and stores.
func TestDeviceMemory(t *testing.T) {
	run(t, 1, withDeviceMemory(), func(w *world) {
		p := newPair(w, engine.QPAttr{})
		h := p.a.h
		var k *engine.MKey
		w.do(func() {
			at := must(h.AllocDeviceMemory(deviceMemoryStart+4096, 4096, 256, 0))
			k = must(h.CreateMKey(engine.MKeyAttr{Mode: engine.OnDevice, Rights: allRights, QPN: engine.AnyQPN, PD: h.pd,
				Start: at + 64, Length: 128}))
		})
		p.bm.put(0, pattern(128, 1))
		w.do(func() { p.a.post(wqe{op: prm.OpcodeRead}.raddr(p.bm, 0).seg(100, k.Key(), 28)) })
		p.a.scq.expect("READ into device memory", sent)
		got := make([]byte, 100)
		if !h.LoadDeviceMemory(deviceMemoryStart+4096+64+28, got) || !bytes.Equal(got, pattern(128, 1)[:100]) {
			w.t.Errorf("the host loads % x", got)
		}
		if !h.StoreDeviceMemory(deviceMemoryStart+4096+64, []byte("stored")) {
			w.t.Error("the host cannot store")
		}
		w.do(func() { p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 500).seg(6, k.Key(), 0)) })
		p.a.scq.expect("WRITE from device memory", sent)
		if got := p.bm.get(500, 6); string(got) != "stored" {
			w.t.Errorf("%q arrived", got)
		}
		w.do(func() { p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).seg(101, k.Key(), 28)) })
		p.a.scq.expect("beyond the key", sendError(transport.LocalProtection))
		h.takeViolations()
	})
}

// TestDeviceMemoryErrors checks what cannot be allocated, freed, or registered.
func TestDeviceMemoryErrors(t *testing.T) {
	run(t, 1, withDeviceMemory(), func(w *world) {
		h := w.hosts[0]
		w.do(func() {
			at := must(h.AllocDeviceMemory(deviceMemoryStart, 8192, 4160, 6))
			for _, x := range []struct {
				name                string
				start, length, size uint64
				align               uint8
				want                error
			}{
				{"in use", deviceMemoryStart + 4096, 4096, 64, 0, engine.ErrBusy},
				{"no size", deviceMemoryStart + 8192, 4096, 0, 0, engine.ErrParam},
				{"a part of a unit", deviceMemoryStart + 8192, 4096, 63, 0, engine.ErrParam},
				{"larger than its range", deviceMemoryStart + 8192, 4096, 4160, 0, engine.ErrParam},
				{"alignment", deviceMemoryStart + 8192, 4096, 64, 7, engine.ErrParam},
				{"before the memory", deviceMemoryStart - 4096, 4096, 64, 0, engine.ErrParam},
				{"behind the memory", deviceMemoryStart + 16384, 4096, 64, 0, engine.ErrParam},
				{"wraps around", ^uint64(0) - 10, 4096, 64, 0, engine.ErrParam},
			} {
				if _, err := h.AllocDeviceMemory(x.start, x.length, x.size, x.align); !errors.Is(err, x.want) {
					w.t.Errorf("%s: %v, want %v", x.name, err, x.want)
				}
			}
			for _, a := range []engine.MKeyAttr{
				{Start: at, Length: 4161}, {Start: at - 64, Length: 64}, {Start: at, Length64: true},
				{Start: at, Length: 64, Free: true},
			} {
				a.Mode, a.PD = engine.OnDevice, h.pd
				if _, err := h.CreateMKey(a); !errors.Is(err, engine.ErrParam) {
					w.t.Errorf("key %+v: %v", a, err)
				}
			}
			k := must(h.CreateMKey(engine.MKeyAttr{Mode: engine.OnDevice, PD: h.pd, Start: at, Length: 4160}))
			if err := h.FreeDeviceMemory(at, 4160); !errors.Is(err, engine.ErrBusy) {
				w.t.Errorf("free with a key: %v", err)
			}
			w.must(h.DestroyMKey(k.Index))
			if err := h.FreeDeviceMemory(at, 4096); !errors.Is(err, engine.ErrResource) {
				w.t.Errorf("free another size: %v", err)
			}
			w.must(h.FreeDeviceMemory(at, 4160))
			if n := h.Objects().DeviceMemory; n != 0 {
				w.t.Errorf("%d parts are left", n)
			}
		})
	})
}

// TestMemoryOps executes the operations on device memory, and checks accesses
// that are none.
func TestMemoryOps(t *testing.T) {
	c := withDeviceMemory()
	c.DeviceMemory.Operations = deviceMemoryStart - 2*16<<10
	run(t, 1, c, func(w *world) {
		h := w.hosts[0]
		w.do(func() {
			at := must(h.AllocDeviceMemory(deviceMemoryStart+4096, 8192, 128, 0))
			increment, testAndSet := must(h.AddMemoryOp(at, engine.Increment)), must(h.AddMemoryOp(at, engine.TestAndSet))
			if increment != at-2*16<<10 || testAndSet != at-16<<10 {
				t.Errorf("the addresses are %#x and %#x of %#x", increment, testAndSet, at)
			}
			h.StoreDeviceMemory(at, []byte{1, 2, 250})
			operate := func(offset uint64, n byte, store bool) byte {
				p := []byte{n}
				if ok, err := h.OperateDeviceMemory(offset, p, store); !ok || err != nil {
					t.Errorf("offset %#x, store %t: %t, %v", offset, store, ok, err)
				}
				return p[0]
			}
			operate(increment+2, 10, true)
			if a, b := operate(testAndSet+2, 0, false), operate(testAndSet+2, 0, false); a != 4 || b != 1 {
				t.Errorf("250 and 10 is %d, then %d", a, b)
			}
			got := make([]byte, 4)
			if h.LoadDeviceMemory(at, got); !bytes.Equal(got, []byte{1, 2, 1, 0}) {
				t.Errorf("the memory has % x", got)
			}
			for _, x := range []struct {
				name  string
				at    uint64
				n     int
				store bool
				want  error
			}{
				{"a load of an increment", increment, 1, false, engine.ErrParam},
				{"a store of a test and set", testAndSet, 1, true, engine.ErrParam},
				{"four bytes", increment, 4, true, engine.ErrParam},
				{"behind the memory", increment + 128, 1, true, engine.ErrParam},
			} {
				if ok, err := h.OperateDeviceMemory(x.at, make([]byte, x.n), x.store); !ok || !errors.Is(err, x.want) {
					t.Errorf("%s: %t, %v", x.name, ok, err)
				}
			}
			if ok, err := h.OperateDeviceMemory(deviceMemoryStart-2*16<<10-1, []byte{1}, true); ok || err != nil {
				t.Errorf("before the operations: %t, %v", ok, err)
			}
			memoryOpErrors(t, h, at)
		})
	})
}

// memoryOpErrors checks which operations cannot be added or removed, and
// removes those of the memory at an offset.
func memoryOpErrors(t *testing.T, h *host, at uint64) {
	t.Helper()
	operate := func() error {
		return second(h.OperateDeviceMemory(deviceMemoryStart-2*16<<10+4096, []byte{1}, true))
	}
	for _, x := range []struct {
		name      string
		got, want error
	}{
		{"add twice", second(h.AddMemoryOp(at, engine.Increment)), engine.ErrState},
		{"add in the middle", second(h.AddMemoryOp(at+64, engine.Increment)), engine.ErrResource},
		{"add an unknown operation", second(h.AddMemoryOp(at, engine.MemoryOps)), engine.ErrParam},
		{"free with both", h.FreeDeviceMemory(at, 128), engine.ErrBusy},
		{"remove the first", h.RemoveMemoryOp(at, engine.Increment), nil},
		{"use it", operate(), engine.ErrState},
		{"remove it again", h.RemoveMemoryOp(at, engine.Increment), engine.ErrState},
		{"remove in the middle", h.RemoveMemoryOp(at+64, engine.Increment), engine.ErrResource},
		{"free with the second", h.FreeDeviceMemory(at, 128), engine.ErrBusy},
		{"remove the second", h.RemoveMemoryOp(at, engine.TestAndSet), nil},
		{"free", h.FreeDeviceMemory(at, 128), nil},
		{"use it afterwards", operate(), engine.ErrParam},
	} {
		if !errors.Is(x.got, x.want) {
			t.Errorf("%s: %v", x.name, x.got)
		}
	}
}
