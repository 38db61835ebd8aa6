package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

func withoutDevX(c *Config) {
	c.Capabilities = append(c.Capabilities, Capability{CapGeneral, prm.HCACapLogMaxUctx, 0})
}

// createUctx creates a user context and returns its number.
func (v *driver) createUctx() uint64 {
	v.t.Helper()
	return prm.CreateUctxOutUID.Get(v.run(0xa04, 0, nil))
}

// TestUserContext checks that commands name an existing user context or none.
func TestUserContext(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	a, b := v.createUctx(), v.createUctx()
	if a == 0 || b == 0 || a == b {
		t.Fatalf("user contexts %d and %d", a, b)
	}
	as := func(uid uint64) func([]byte) { return func(in []byte) { prm.CmdUID.Set(in, uid) } }
	destroy := func(uid uint64) func([]byte) { return func(in []byte) { prm.DestroyUctxInUID.Set(in, uid) } }
	pd := prm.AllocPDOutPD.Get(v.run(0x800, 0, as(a)))
	v.run(0x100, 1, as(b))          // QUERY_HCA_CAP
	v.run(0x771, 0, as(sharedUser)) // ALLOC_Q_COUNTER
	v.refused(0x800, 0, statusBadParam, reasonUID, as(b+1))
	v.refused(0xa06, 0, statusBusy, reasonInUse, destroy(a))
	v.run(0x801, 0, func(in []byte) { as(a)(in); prm.DeallocPDInPD.Set(in, pd) })
	v.run(0xa06, 0, destroy(a))
	v.refused(0x800, 0, statusBadParam, reasonUID, as(a))
	v.run(0x800, 0, as(b))
	v.refused(0xa06, 0, statusBadResource, reasonUnknown, destroy(a))
	v.refused(0xa06, 0, statusBadResource, reasonUnknown, destroy(0))
	v.refused(0xa04, 0, statusBadParam, reasonCapability,
		func(in []byte) { prm.UctxCap.Set(prm.CreateUctxInUctx.Bytes(in), 1) })
}

// TestUserContextLimit checks the number of user contexts.
func TestUserContextLimit(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	for range 1<<logUctx - 1 {
		v.createUctx()
	}
	v.refused(0xa04, 0, statusLimit, reasonTooMany, nil)
}

// TestNoUserContexts checks that a device without DevX has no user contexts.
func TestNoUserContexts(t *testing.T) {
	v := newDriver(t, withoutDevX)
	v.boot()
	v.refused(0xa04, 0, statusBadOpcode, reasonOpcode, nil)
	v.refused(0xa06, 0, statusBadOpcode, reasonOpcode, nil)
	v.refused(0x800, 0, statusBadParam, reasonUID, func(in []byte) { prm.CmdUID.Set(in, 1) })
	v.refused(0x771, 0, statusBadParam, reasonUID, func(in []byte) { prm.CmdUID.Set(in, sharedUser) })
}
