package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// memic fills in ALLOC_MEMIC: n bytes anywhere in the device memory.
func (v *driver) memic(n uint64) func(in []byte) {
	page := v.device.caps.page(CapDevMem, true)
	return func(in []byte) {
		prm.AllocMEMICInRangeStartAddr.Set(in, prm.DeviceMemCapMEMICBARStartAddr.Get(page))
		prm.AllocMEMICInRangeSize.Set(in, prm.DeviceMemCapMEMICBARSize.Get(page))
		prm.AllocMEMICInMEMICSize.Set(in, n)
	}
}

// TestDeviceMemory allocates and frees device memory, which the host accesses
// through BAR 0.
func TestDeviceMemory(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	at := prm.AllocMEMICOutMEMICStartAddr.Get(v.run(0x205, 0, v.memic(4096)))
	v.write(int(at)+8, []byte{1, 2, 3, 4})
	if got := v.read(int(at) + 8); got != 0x01020304 {
		t.Errorf("the memory has %#x", got)
	}
	v.refused(0x205, 0, statusBusy, reasonParam, v.memic(64))
	v.refused(0x205, 0, statusBadParam, reasonParam, v.memic(deviceMemory+64))
	free := func(n uint64) func(in []byte) {
		return func(in []byte) {
			prm.DeallocMEMICInMEMICStartAddr.Set(in, at)
			prm.DeallocMEMICInMEMICSize.Set(in, n)
		}
	}
	v.refused(0x206, 0, statusBadResource, reasonParam, free(64))
	v.run(0x206, 0, free(4096))
	v.refused(0x206, 0, statusBadResource, reasonParam, free(4096))
}

// TestMemoryOps checks that stores and loads at the addresses of operations
// execute them.
func TestMemoryOps(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	at := prm.AllocMEMICOutMEMICStartAddr.Get(v.run(0x205, 0, v.memic(64)))
	op := func(op uint64) func(in []byte) {
		return func(in []byte) {
			prm.ModifyMEMICInMEMICStartAddr.Set(in, at)
			prm.ModifyMEMICInMEMICOperationType.Set(in, op)
		}
	}
	increment := int(prm.ModifyMEMICOutMEMICOperationAddr.Get(v.run(0x207, 0, op(0))))
	testAndSet := int(prm.ModifyMEMICOutMEMICOperationAddr.Get(v.run(0x207, 0, op(1))))
	v.write(increment+1, []byte{1})
	v.write(increment+1, []byte{1})
	load := func() byte {
		b := make([]byte, 1)
		v.loop.Run(func() { v.device.ReadBAR(uint64(testAndSet+1), b) })
		return b[0]
	}
	if a, b := load(), load(); a != 2 || b != 1 {
		t.Errorf("after two increments: %d, then %d", a, b)
	}
	v.reported(0)
	v.write(increment, []byte{1, 1, 1, 1})
	v.reported(1)
	v.refused(0x207, 0, statusBadParam, reasonCapability, op(2))
	v.refused(0x207, 2, statusBadParam, reasonOpMod, op(0))
	v.refused(0x207, 0, statusBadResourceState, reasonParam, op(0))
	v.run(0x207, 1, op(0))
	v.run(0x207, 1, op(1))
	v.refused(0x207, 1, statusBadResourceState, reasonParam, op(1))
}

// TestNoDeviceMemory checks that a device without device memory executes none of
// its commands.
func TestNoDeviceMemory(t *testing.T) {
	for name, c := range map[string]Capability{
		"device_memory": {CapGeneral, prm.HCACapDeviceMemory, 0},
		"memic":         {CapDevMem, prm.DeviceMemCapMEMIC, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := newDriver(t, func(config *Config) { config.Capabilities = []Capability{c} })
			v.boot()
			v.refused(0x205, 0, statusBadOpcode, reasonOpcode, v.memic(64))
			v.refused(0x206, 0, statusBadOpcode, reasonOpcode, nil)
			v.refused(0x207, 0, statusBadOpcode, reasonOpcode, nil)
		})
	}
}
