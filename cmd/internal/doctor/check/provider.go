package check

import (
	"slices"
	"strings"
)

// providers are the drivers that goverbs supports.
var providers = []string{"mlx5", "rxe", "efa", "bnxt_re", "irdma", "siw"}

// provider checks that goverbs supports the devices' drivers.
func provider(m *machine) []Finding {
	return m.eachDevice(func(d device) []Finding {
		if d.driver == "efa" {
			return []Finding{{ID: "no-connections", Severity: Warning,
				Seen: d.Name + " is an Amazon EFA, which has no connections",
				Why:  "packages rdma, rsocket and cm do not work on it, only uverbs, with QPs of type SRD or UD",
				Fix:  "rdma link add rxe0 type rxe netdev " + m.anyInterface() + " (soft-RoCE has connections)"}}
		}
		if d.Char == nil || slices.Contains(providers, d.driver) {
			return nil
		}
		return []Finding{{ID: "no-provider", Severity: Error,
			Seen: d.Name + " has the driver " + d.driver + ", which goverbs does not support",
			Why:  "goverbs programs need one of " + strings.Join(providers, ", ") + "; C programs may work",
			Fix:  "ibv_devinfo -d " + d.Name + " (checks the device with the C library)"}}
	})
}
