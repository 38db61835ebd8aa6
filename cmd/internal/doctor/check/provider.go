package check

import (
	"slices"
	"strings"
)

// providers are the drivers that goverbs supports.
var providers = []string{"mlx5", "rxe"}

// provider checks that goverbs supports the devices' drivers.
func provider(m *machine) []Finding {
	return m.eachDevice(func(d device) []Finding {
		if d.Char == nil || slices.Contains(providers, d.driver) {
			return nil
		}
		return []Finding{{ID: "no-provider", Severity: Error,
			Seen: d.Name + " has the driver " + d.driver + ", which goverbs does not support",
			Why:  "goverbs programs need one of " + strings.Join(providers, ", ") + "; C programs may work",
			Fix:  "ibv_devinfo -d " + d.Name + " (checks the device with the C library)"}}
	})
}
