package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// allocMEMIC allocates device memory.
func (d *Device) allocMEMIC(in, out []byte) error {
	if err := d.checkDeviceMemory(); err != nil {
		return err
	}
	start, err := d.hca.AllocDeviceMemory(prm.AllocMEMICInRangeStartAddr.Get(in), prm.AllocMEMICInRangeSize.Get(in),
		prm.AllocMEMICInMEMICSize.Get(in), uint8(prm.AllocMEMICInLogMEMICAddrAlignment.Get(in)))
	if err == nil {
		prm.AllocMEMICOutMEMICStartAddr.Set(out, start)
	}
	return err
}

// deallocMEMIC frees device memory.
func (d *Device) deallocMEMIC(in, out []byte) error {
	if err := d.checkDeviceMemory(); err != nil {
		return err
	}
	return d.hca.FreeDeviceMemory(prm.DeallocMEMICInMEMICStartAddr.Get(in), prm.DeallocMEMICInMEMICSize.Get(in))
}

// modifyMEMIC gives an operation on device memory an address, or takes it away.
func (d *Device) modifyMEMIC(in, out []byte) error {
	const alloc, dealloc = 0, 1 // op_mod
	op := engine.MemoryOp(prm.ModifyMEMICInMEMICOperationType.Get(in))
	if err := d.checkDeviceMemory(); err != nil {
		return err
	}
	if prm.DeviceMemCapMEMICOperations.Get(d.caps.page(CapDevMem, true))>>op&1 == 0 {
		return refuse(statusBadParam, reasonCapability)
	}
	start := prm.ModifyMEMICInMEMICStartAddr.Get(in)
	switch prm.CmdOpMod.Get(in) {
	case alloc:
		at, err := d.hca.AddMemoryOp(start, op)
		if err == nil {
			prm.ModifyMEMICOutMEMICOperationAddr.Set(out, at)
		}
		return err
	case dealloc:
		return d.hca.RemoveMemoryOp(start, op)
	}
	return refuse(statusBadParam, reasonOpMod)
}

// operate executes an access to an operation's address. It returns false if the offset of BAR 0 is
// not one.
func (d *Device) operate(offset uint64, p []byte, store bool) bool {
	ok, err := d.hca.OperateDeviceMemory(offset, p, store)
	if err != nil {
		d.report("device memory: %v", err)
	}
	return ok
}

// checkDeviceMemory checks that the device offers device memory.
func (d *Device) checkDeviceMemory() error {
	if d.caps.general(prm.HCACapDeviceMemory) == 0 || !prm.DeviceMemCapMEMIC.Is(d.caps.page(CapDevMem, true)) {
		return refuse(statusBadOpcode, reasonOpcode)
	}
	return nil
}
