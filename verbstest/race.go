package verbstest

import (
	"testing"

	"github.com/goverbs/goverbs/internal/race"
)

// IgnoreRaces makes the race detector ignore what devices do to b until the test ends. It is for
// memory that a program polls while a device may write it, such as the flags of one-sided protocols.
// The program must access them with sync/atomic. In a program built without the race detector,
// IgnoreRaces does nothing.
func IgnoreRaces(t testing.TB, b []byte) {
	t.Helper()
	if len(b) == 0 {
		t.Fatal("verbstest: IgnoreRaces: no bytes: pass the part of the region that is polled, while the region is open")
	}
	t.Cleanup(race.Ignore(b))
}
