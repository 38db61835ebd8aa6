package connectx

import "github.com/goverbs/goverbs/internal/connectx/prm"

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

// checkDeviceMemory checks that the device offers device memory.
func (d *Device) checkDeviceMemory() error {
	if d.caps.general(prm.HCACapDeviceMemory) == 0 || !prm.DeviceMemCapMEMIC.Is(d.caps.page(CapDevMem, true)) {
		return refuse(statusBadOpcode, reasonOpcode)
	}
	return nil
}
