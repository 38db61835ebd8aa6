package check

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// enoughMemlock and enoughFiles are the limits below which programs of ordinary size fail.
const (
	enoughMemlock = 64 << 20
	enoughFiles   = 1024
)

// memlock checks the limit on locked memory, which bounds what can be registered.
func memlock(m *machine) []Finding {
	limit, err := m.Kernel.Limit(unix.RLIMIT_MEMLOCK)
	if err != nil || limit >= enoughMemlock || m.capable(unix.CAP_IPC_LOCK) {
		return nil
	}
	f := Finding{ID: "memlock", Severity: Warning, Seen: fmt.Sprintf("the limit on locked memory is %d KiB", limit>>10),
		Why: fmt.Sprintf("registered memory, queues included, counts against it: programs that need more fail with ENOMEM; "+
			"%d MiB is enough for small ones", enoughMemlock>>20)}
	if limit < 2*tryBytes {
		f.Severity = Error
	}
	unit := m.service()
	switch {
	case m.container():
		f.ID = "memlock-container"
		f.Fix = "docker run --ulimit memlock=-1 ... (Kubernetes: securityContext.capabilities.add: [IPC_LOCK])"
	case unit != "":
		f.ID = "memlock-service"
		f.Fix = fmt.Sprintf("mkdir -p /etc/systemd/system/%[1]s.d && printf '[Service]\\nLimitMEMLOCK=infinity\\n' > "+
			"/etc/systemd/system/%[1]s.d/memlock.conf && systemctl daemon-reload && systemctl restart %[1]s", unit)
	default:
		f.Fix = "ulimit -l unlimited (for good: echo '* - memlock unlimited' > /etc/security/limits.d/rdma.conf, and log " +
			"in again)"
	}
	return []Finding{f}
}

// files checks the limit on descriptors.
func files(m *machine) []Finding {
	limit, err := m.Kernel.Limit(unix.RLIMIT_NOFILE)
	if err != nil || limit >= enoughFiles {
		return nil
	}
	return []Finding{{ID: "nofile", Severity: Warning, Seen: fmt.Sprintf("the limit on open files is %d", limit),
		Why: fmt.Sprintf("each device, completion channel and connection manager needs descriptors; %d are enough for small "+
			"programs", enoughFiles), Fix: "ulimit -n 65536"}}
}
