package connectx

import "github.com/goverbs/goverbs/internal/sim/connectx/prm"

// uctxCommands are the commands of user contexts, which the driver creates for
// DevX.
var uctxCommands = []command{
	{0xa04, "CREATE_UCTX", prm.CreateUctxIn, prm.CreateUctxOut, running, (*Device).createUctx},
	{0xa06, "DESTROY_UCTX", prm.DestroyUctxIn, prm.DestroyUctxOut, running, (*Device).destroyUctx},
}

// logUctx is log2 of the number of user contexts.
const logUctx = 8

// logUMem is log2 of the number of umems.
const logUMem = 16

// offeredDevX are capabilities of DevX. A device with log_max_uctx=0 has none.
var offeredDevX = []Capability{
	{CapGeneral, prm.HCACapLogMaxUctx, logUctx},
	{CapGeneral, prm.HCACapLogMaxUMem, logUMem},
}

// newUsers returns the user contexts of a device. Number 0 is the driver.
func newUsers(caps *capabilities) numbers {
	return newNumbers("user context", 1, 1<<caps.general(prm.HCACapLogMaxUctx)-1)
}

// createUctx creates a user context. The device has no optional rights of users
// (uctx_cap), so none may be requested.
func (d *Device) createUctx(in, out []byte) error {
	switch {
	case d.caps.general(prm.HCACapLogMaxUctx) == 0:
		return refuse(statusBadOpcode, reasonOpcode)
	case prm.UctxCap.Is(prm.CreateUctxInUctx.Bytes(in)):
		return refuse(statusBadParam, reasonCapability)
	}
	return d.users.alloc(prm.CreateUctxOutUID, out)
}

// destroyUctx destroys a user context that owns no objects.
func (d *Device) destroyUctx(in, out []byte) error {
	if d.caps.general(prm.HCACapLogMaxUctx) == 0 {
		return refuse(statusBadOpcode, reasonOpcode)
	}
	uid := prm.DestroyUctxInUID.Get(in)
	if d.owns(uint16(uid)) {
		return refuse(statusBusy, reasonInUse)
	}
	return d.users.remove(uint32(uid))
}

// sharedUser is the user of objects that the driver shares among all users, as
// sets of Q counters.
const sharedUser = 0xffff

// checkUser checks that the user of a command exists.
func (d *Device) checkUser(in []byte) error {
	switch uid := uint32(prm.CmdUID.Get(in)); {
	case uid == 0 || d.users.has(uid):
		return nil
	case uid == sharedUser && d.caps.general(prm.HCACapLogMaxUctx) != 0:
		return nil
	}
	return refuse(statusBadParam, reasonUID)
}
