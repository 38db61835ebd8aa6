package features

import (
	"slices"
	"testing"
)

func TestLookup(t *testing.T) {
	for _, c := range []struct {
		kernel, device, feature string
		offered, known          bool
	}{
		{"5.10", "rxe0", Usable, false, true},
		{"5.10", "mlx5_0", Usable, true, true},
		{"6.12-16k", "rxe0", Usable, true, true},
		{"6.1", "rxe0", RC, true, true},
		{"6.1", "rxe", Flush, false, true},
		{"6.12", "rxe0", Flush, true, true},
		{"6.12.107+deb13-amd64", "rxe0", AtomicWrite, true, true},
		{"6.1.0-50-amd64", "rxe0", ReregMR, false, true},
		{"6.12", "rxe0", ODP, false, true},
		{"7.2", "rxe0", ODP, true, true},
		{"7.2", "rxe0", Disassociate, false, true},
		{"7.2", "rxe0", "levitation", false, false},
		{"6.12", "mlx5_0", SQD, false, true},
		{"7.2", "mlx5_0", RC, true, true},
		{"7.2", Memory, RC, true, true},
		{"7.2", Memory, CMServices, false, true},
		{"6.12", "siw0", RC, true, true},
		{"6.12", "siw0", UD, false, true},
		{"7.2", "hns_0", RC, false, false},
		{"next", "rxe0", RC, false, false},
	} {
		offered, why, known := Lookup(c.kernel, c.device, c.feature)
		if offered != c.offered || known != c.known || why == "" {
			t.Errorf("Lookup(%q, %q, %q) = %v, %q, %v", c.kernel, c.device, c.feature, offered, why, known)
		}
	}
}

func TestDriverOf(t *testing.T) {
	for device, want := range map[string]string{"rxe0": "rxe", "rxe": "rxe", "mlx5_0": "mlx5",
		"mlx5_bond_0": "mlx5_bond_0", "mlx5": "mlx5", "siw0": "siw"} {
		if got := driverOf(device); got != want {
			t.Errorf("driverOf(%q) = %q, want %q", device, got, want)
		}
	}
}

func TestTableHasNoDoubles(t *testing.T) {
	seen := make(map[[2]string]bool)
	for _, r := range slices.Concat(table, memoryTable, mlx5Table, siwTable) {
		key := [2]string{r.driver, r.feature}
		if seen[key] {
			t.Errorf("%v is a duplicate", key)
		}
		if seen[key] = true; r.why == "" {
			t.Errorf("%v has no reason", key)
		}
	}
}

// recorder replaces a test that Missing ends.
type recorder struct {
	testing.TB
	outcome string
}

func (r *recorder) Helper()               {}
func (r *recorder) Skipf(string, ...any)  { r.outcome = "skip"; panic(r) }
func (r *recorder) Fatalf(string, ...any) { r.outcome = "fail"; panic(r) }

func TestMissing(t *testing.T) {
	for _, c := range []struct{ kernel, device, feature, want string }{
		{"6.1", "rxe0", Flush, "skip"},
		{"6.12", "rxe0", Flush, "fail"},
		{"6.12", "rxe0", "levitation", "fail"},
		{"", "", Flush, "skip"},
	} {
		t.Setenv(EnvKernel, c.kernel)
		t.Setenv(EnvDevice, c.device)
		r := &recorder{TB: t}
		func() {
			defer func() { _ = recover() }() // Skipf and Fatalf panic
			Missing(r, c.feature, nil)
		}()
		if r.outcome != c.want {
			t.Errorf("%+v: outcome %q", c, r.outcome)
		}
	}
}
