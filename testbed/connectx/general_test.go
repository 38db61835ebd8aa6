package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// reserve fills in the commands of general objects.
func reserve(kind, logRange, id uint64) func(in []byte) {
	return func(in []byte) {
		prm.GeneralObjectInObjType.Set(in, kind)
		prm.GeneralObjectInLogObjRange.Set(in, logRange)
		prm.GeneralObjectInObjID.Set(in, id)
	}
}

// TestReservedNumbers checks that users get ranges of queue pair numbers that do not overlap, that they own them,
// and that their number is limited.
func TestReservedNumbers(t *testing.T) {
	o := newObjects(t, nil)
	a, b := o.newUser(), o.newUser()
	const kind = prm.ObjectReservedQPN
	seen := make(map[uint64]bool)
	last := uint64(0)
	for range 1 << (logReservedQP - logReserved) {
		last = a.number(0xa00, prm.GeneralObjectOutObjID, reserve(kind, logReserved, 0))
		if last < firstReserved || last+1<<logReserved > 1<<23 || last%(1<<logReserved) != 0 || seen[last] {
			t.Fatalf("numbers from %#x on", last)
		}
		seen[last] = true
	}
	o.refused(0xa00, 0, statusLimit, reasonTooMany, a.as(reserve(kind, logReserved, 0)))
	o.refused(0xa03, 0, statusBadResource, reasonOwner, b.as(reserve(kind, 0, last)))
	o.refused(0xa03, 0, statusBadResource, reasonUnknown, reserve(kind, 0, last+1))
	o.run(0xa03, 0, a.as(reserve(kind, 0, last)))
	o.refused(0xa03, 0, statusBadResource, reasonOwner, a.as(reserve(kind, 0, last)))
	if again := b.number(0xa00, prm.GeneralObjectOutObjID, reserve(kind, logReserved, 0)); again != last {
		t.Errorf("numbers from %#x on, want the free ones from %#x on", again, last)
	}
	o.refused(0xa00, 0, statusBadParam, reasonSize, a.as(reserve(kind, logReserved+1, 0)))
	o.refused(0xa00, 0, statusBadParam, reasonCapability, a.as(reserve(kind+1, logReserved, 0)))
	o.refused(0xa03, 0, statusBadParam, reasonCapability, reserve(0xffff, 0, last))
}
