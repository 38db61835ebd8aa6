package connectx

import "github.com/goverbs/goverbs/internal/connectx/prm"

// allocMEMIC allocates device memory.
func (d *Device) allocMEMIC(in, out []byte) error {
	start, err := d.hca.AllocDeviceMemory(prm.AllocMEMICInRangeStartAddr.Get(in), prm.AllocMEMICInRangeSize.Get(in),
		prm.AllocMEMICInMEMICSize.Get(in), uint8(prm.AllocMEMICInLogMEMICAddrAlignment.Get(in)))
	if err == nil {
		prm.AllocMEMICOutMEMICStartAddr.Set(out, start)
	}
	return err
}

// deallocMEMIC frees device memory.
func (d *Device) deallocMEMIC(in, out []byte) error {
	return d.hca.FreeDeviceMemory(prm.DeallocMEMICInMEMICStartAddr.Get(in), prm.DeallocMEMICInMEMICSize.Get(in))
}
