package connectx

import "github.com/goverbs/goverbs/internal/sim/connectx/prm"

// generalCommands are the commands of general objects. The only type is that of reserved queue pair numbers.
var generalCommands = []command{
	{0xa00, "CREATE_GENERAL_OBJECT", prm.GeneralObjectIn, prm.GeneralObjectOut, running, (*Device).createGeneral},
	{0xa03, "DESTROY_GENERAL_OBJECT", prm.GeneralObjectIn, prm.GeneralObjectOut, running, (*Device).destroyGeneral},
}

// Reserved queue pair numbers are those that no queue pair has. A program exchanges them in the place of others,
// when it connects by rdma_cm and has one DCT for many connections. An object has 2^logReserved numbers, of which
// the first is its own.
const (
	firstReserved = 1 << 22
	logReserved   = 6
	logReservedQP = 16 // of all objects
)

// offeredReserved are capabilities of reserved queue pair numbers.
var offeredReserved = []Capability{
	{CapGeneral, prm.HCACapHCACap2, 1},
	{CapGeneral, prm.HCACapGeneralObjTypes, 1 << prm.ObjectReservedQPN},
	{CapGeneral2, prm.HCACap2LogReservedQPNGranularity, logReserved},
}

// newReserved returns the blocks of reserved numbers.
func newReserved() numbers {
	return newNumbers("block of queue pair numbers", firstReserved>>logReserved, 1<<(logReservedQP-logReserved))
}

// checkGeneral checks the type of a general object.
func (d *Device) checkGeneral(in []byte) error {
	t := prm.GeneralObjectInObjType.Get(in)
	if t >= 64 || d.caps.general(prm.HCACapGeneralObjTypes)>>t&1 == 0 {
		return refuse(statusBadParam, reasonCapability)
	}
	return nil
}

func (d *Device) createGeneral(in, out []byte) error {
	if err := d.checkGeneral(in); err != nil {
		return err
	}
	if prm.GeneralObjectInLogObjRange.Get(in) != logReserved {
		return refuse(statusBadParam, reasonSize)
	}
	block, err := d.reserved.add()
	if err == nil {
		prm.GeneralObjectOutObjID.Set(out, uint64(block)<<logReserved)
	}
	return err
}

func (d *Device) destroyGeneral(in, out []byte) error {
	if err := d.checkGeneral(in); err != nil {
		return err
	}
	id := get32(prm.GeneralObjectInObjID, in)
	if id&(1<<logReserved-1) != 0 {
		return refuse(statusBadResource, reasonUnknown)
	}
	return d.reserved.remove(id >> logReserved)
}
