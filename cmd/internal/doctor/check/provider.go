package check

import (
	"slices"
	"strings"
)

// providers are the drivers that goverbs supports.
var providers = []string{"mlx5", "rxe"}

// provider checks that goverbs supports the devices' drivers.
func provider(m *machine) []Finding {
	var all []Finding
	for _, d := range m.devices {
		if d.Char == nil || slices.Contains(providers, d.driver) {
			continue
		}
		f := Finding{ID: "no-provider", Severity: Warning,
			Seen: d.Name + " has the driver " + d.driver + ", which goverbs does not support",
			Why:  "goverbs programs need one of " + strings.Join(providers, ", ") + "; C programs may work",
			Fix:  "ibv_devinfo -d " + d.Name + " (checks the device with the C library)"}
		if len(m.devices) == 1 {
			f.Severity = Error
		}
		all = append(all, f)
	}
	return all
}
