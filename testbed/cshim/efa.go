package cshim

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakeefa"
)

// NewEFA returns a host for programs that use a device of a fabric, until the test ends.
func NewEFA(t testing.TB, d *fakeefa.Device) *Host {
	t.Helper()
	return newHost(t, func(f func()) { f() }, d.Name(), "efa")
}
