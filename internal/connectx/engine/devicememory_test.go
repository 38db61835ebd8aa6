package engine_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/connectx/engine"
	"github.com/goverbs/goverbs/internal/connectx/prm"
	"github.com/goverbs/goverbs/internal/connectx/transport"
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
