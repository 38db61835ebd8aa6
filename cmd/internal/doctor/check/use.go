package check

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// use creates objects on each device. What other checks have explained is not reported again.
func use(m *machine) []Finding {
	return m.eachDevice(func(d device) []Finding {
		if d.Char == nil || !slices.Contains(providers, d.driver) {
			return nil
		}
		err := m.Kernel.Try(d.Name)
		switch {
		case err == nil:
			return []Finding{fact("use", "%s: a PD, an MR, a CQ and a QP were created and closed", d.Name)}
		case errors.Is(err, uverbs.ErrNoNode), errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM),
			errors.Is(err, uverbs.ErrNetns):
			return nil
		}
		f := Finding{ID: "use", Severity: Error, Seen: d.Name + ": " + err.Error(), Why: "programs fail in the same way",
			Fix: "GOVERBS_TRACE=1 devinfo -d " + d.Name + " (prints the commands to the kernel)"}
		if errors.Is(err, unix.EAGAIN) {
			f.ID = "use-limit"
			f.Why = "a limit of the rdma cgroup was reached, here or in the container's host"
			f.Fix = "on the host: grep . /sys/fs/cgroup/*/rdma.max, and raise the limit of " + d.Name
		}
		if errors.Is(err, uverbs.ErrMemlock) {
			f.ID, f.Fix = "use-memlock", "ulimit -l unlimited"
		}
		return []Finding{f}
	})
}
