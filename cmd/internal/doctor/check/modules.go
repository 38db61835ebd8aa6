package check

import (
	"errors"
	"slices"

	"github.com/goverbs/goverbs/internal/nldev"
)

// modules checks that the kernel has the RDMA core and its interfaces for programs.
func modules(m *machine) []Finding {
	if errors.Is(m.err, nldev.ErrNoRDMA) {
		return []Finding{{ID: "no-rdma", Severity: Error,
			Seen: "the kernel has no RDMA subsystem: " + m.path("sys", "class", "infiniband") + " does not exist",
			Why:  "no program can find an RDMA device",
			Fix:  "modprobe ib_uverbs; then modprobe mlx5_ib for a ConnectX, or modprobe rdma_rxe for soft-RoCE"}}
	}
	if m.err != nil {
		return []Finding{{ID: "device-list", Severity: Error, Seen: m.err.Error(),
			Why: "no program can find an RDMA device",
			Fix: "run doctor on the host, outside of the container: it says what the container hides"}}
	}
	var all []Finding
	if slices.ContainsFunc(m.devices, func(d device) bool { return d.Char == nil }) {
		all = append(all, Finding{ID: "no-uverbs", Severity: Error,
			Seen: "the module ib_uverbs is not loaded, and the kernel cannot load it",
			Why:  "the kernel offers programs no access to its RDMA devices", Fix: "modprobe ib_uverbs"})
	}
	if m.cm == nil {
		all = append(all, Finding{ID: "no-rdma-cm", Severity: Error,
			Seen: "the module rdma_ucm is not loaded, and the kernel cannot load it",
			Why:  "programs cannot connect by IP address", Fix: "modprobe rdma_ucm"})
	}
	return all
}
