package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// A user is a driver that executes commands for a user context.
type user struct {
	*driver
	uid uint64
}

func (v *driver) newUser() user { return user{v, v.createUctx()} }

// as returns the function for a command's input, which also sets the user.
func (u user) as(fill func(in []byte)) func([]byte) {
	return func(in []byte) {
		prm.CmdUID.Set(in, u.uid)
		if fill != nil {
			fill(in)
		}
	}
}

// set returns a function that sets a field.
func set(f prm.Field, v uint64) func([]byte) { return func(in []byte) { f.Set(in, v) } }

// number creates an object and returns its number.
func (u user) number(opcode uint16, f prm.Field, fill func(in []byte)) uint64 {
	u.t.Helper()
	return f.Get(u.run(opcode, 0, u.as(fill)))
}

// TestOwnership checks that a user cannot use, query or destroy another user's objects or the
// driver's, that the driver can, and that a number is the next owner's when it is used again.
func TestOwnership(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	a, b := v.newUser(), v.newUser()
	pd := a.number(0x800, prm.AllocPDOutPD, nil)
	own := prm.AllocPDOutPD.Get(v.run(0x800, 0, nil))
	key := func(pd uint64) func([]byte) {
		return func(in []byte) {
			c := prm.CreateMKeyInMKC.Bytes(in)
			prm.MKCAccessMode10.Set(c, 2) // KLM
			prm.MKCPD.Set(c, pd)
			prm.MKCQPN.Set(c, 0xffffff)
		}
	}
	mkey := a.number(0x200, prm.CreateMKeyOutMKeyIndex, key(pd))
	v.refused(0x200, 0, statusBadResource, reasonOwner, b.as(key(pd)))
	v.refused(0x200, 0, statusBadResource, reasonOwner, b.as(key(own)))
	v.refused(0x201, 0, statusBadResource, reasonOwner, b.as(set(prm.QueryMKeyInMKeyIndex, mkey)))
	v.refused(0x202, 0, statusBadResource, reasonOwner, b.as(set(prm.DestroyMKeyInMKeyIndex, mkey)))
	v.refused(0x801, 0, statusBadResource, reasonOwner, b.as(set(prm.DeallocPDInPD, pd)))
	v.refused(0x801, 0, statusBadResource, reasonOwner, b.as(set(prm.DeallocPDInPD, own)))
	v.run(0x201, 0, a.as(set(prm.QueryMKeyInMKeyIndex, mkey)))
	driverKey := prm.CreateMKeyOutMKeyIndex.Get(v.run(0x200, 0, key(pd))) // as the kernel's ibv_reg_mr
	v.run(0x202, 0, set(prm.DestroyMKeyInMKeyIndex, driverKey))
	v.run(0x202, 0, set(prm.DestroyMKeyInMKeyIndex, mkey)) // the driver may destroy everything
	v.run(0x801, 0, a.as(set(prm.DeallocPDInPD, pd)))
	v.refused(0x801, 0, statusBadResource, reasonOwner, a.as(set(prm.DeallocPDInPD, pd)))
	v.run(0xa06, 0, set(prm.DestroyUctxInUID, a.uid))
}

// TestSharedObjects checks that users may use event queues and counters that the driver shares,
// and not those that it does not share.
func TestSharedObjects(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	u := v.newUser()
	private, _ := v.createEQ(4, 0, 1)
	shared := user{v, sharedUser}
	ring := v.host.alloc(1)
	eqn := prm.CreateEQOutEQNumber.Get(v.list(0x301, 0, 8, 0, shared.as(func(in []byte) {
		prm.EQCLogEQSize.Set(prm.CreateEQInEQC.Bytes(in), 4)
		prm.EQCUARPage.Set(prm.CreateEQInEQC.Bytes(in), uint64(v.uar))
		prm.CreateEQInPAS.Set(in, ring)
	})))
	cq := func(eqn uint64) func([]byte) {
		return u.as(func(in []byte) {
			c := prm.CreateCQInCQC.Bytes(in)
			prm.CQCLogCQSize.Set(c, 4)
			prm.CQCUARPage.Set(c, uint64(v.uar))
			prm.CQCCEQN.Set(c, eqn)
			prm.CreateCQInPAS.Set(in, v.host.alloc(1))
		})
	}
	v.list(0x400, 0, 8, 0, cq(eqn))
	if out := v.try(0x400, 0, 8, 0, cq(uint64(private))); prm.CmdSyndrome.Get(out)&0xffff != uint64(reasonOwner) {
		t.Errorf("a CQ of a private event queue: %s", hexStatus(out))
	}
	v.refused(0x302, 0, statusBadResource, reasonOwner, u.as(set(prm.DestroyEQInEQNumber, eqn)))
}

// TestUserCommands checks that users may not execute the driver's commands, and not create objects
// that access all memory.
func TestUserCommands(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	u := v.newUser()
	for _, opcode := range []uint16{0x103, 0x105, 0x108, 0x109, 0x805, 0xa04, 0xa06} {
		v.refused(opcode, 0, statusBadOpcode, reasonUser, u.as(nil))
	}
	pd := u.number(0x800, prm.AllocPDOutPD, nil)
	v.refused(0x500, 0, statusBadParam, reasonCapability, u.as(func(in []byte) {
		prm.QPCPD.Set(prm.CreateQPInQPC.Bytes(in), pd)
		prm.QPCRLKY.Set(prm.CreateQPInQPC.Bytes(in), 1)
	}))
	for mode, why := range map[uint64]reason{0: reasonUMem, 1: reasonUMem} { // physical addresses, a list of pages
		v.refused(0x200, 0, statusBadParam, why, u.as(func(in []byte) {
			c := prm.CreateMKeyInMKC.Bytes(in)
			prm.MKCAccessMode10.Set(c, mode)
			prm.MKCLogPageSize.Set(c, 12)
			prm.MKCPD.Set(c, pd)
		}))
	}
}
