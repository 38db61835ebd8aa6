package cm

import (
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestOpenDevicesWithoutIndex checks that Devices and ids share open devices if the list of devices comes from sysfs,
// without indexes, no matter which opens the device first.
func TestOpenDevicesWithoutIndex(t *testing.T) {
	r := newRig(t)
	s := newSyncID(t, PSTCP)
	check(t, s.Bind(at(here, 0)))
	key := s.dev.key
	old := listDevices
	defer func() { listDevices = old }()
	listDevices = func() ([]uverbs.Device, error) {
		return []uverbs.Device{{Name: "rxe0", Index: -1, NodeGUID: key.guid}}, nil
	}
	list := closing(t, good(Devices())(t))
	if n := r.openings(); n != 1 || list.Contexts()[0] != s.Verbs() {
		t.Errorf("the device was opened %d times", n)
	}
	check(t, s.Close())
	check(t, list.Close())
	list = closing(t, good(Devices())(t))
	after := newSyncID(t, PSTCP)
	check(t, after.Bind(at(here, 0)))
	if n := r.openings(); n != 2 || list.Contexts()[0] != after.Verbs() {
		t.Errorf("the device was opened %d times, want 2", n)
	}
}
