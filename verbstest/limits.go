package verbstest

import (
	"fmt"
	"io/fs"
	"testing/fstest"

	"github.com/goverbs/goverbs/internal/sim/fakemlx5"
)

// Limits bound what all programs of a machine together may use. Zero means no limit besides those of
// the device.
type Limits struct {
	// Memlock is RLIMIT_MEMLOCK, in bytes: how much memory the kernel pins, which is registered
	// memory and the rings of queues, in pages. Beyond it commands fail with ENOMEM
	// (uverbs.ErrMemlock).
	Memlock int64
	// The numbers of objects that the device has, which QueryDevice returns (it has no number for
	// memory windows). Beyond them commands fail with ENOMEM.
	PDs, CQs, QPs, SRQs, MRs, MWs int
	// Contexts and Objects are hca_handle and hca_object of the rdma cgroup: open devices, and
	// objects of all kinds. Beyond them commands fail with EAGAIN.
	Contexts, Objects int
}

// SetLimits replaces the limits of the machine; SetLimits(Limits{}) removes them. Objects and
// memory beyond new limits remain. It may be called at any time.
func (m *Machine) SetLimits(l Limits) {
	m.net.t.Helper()
	if lowest := min(l.Memlock, int64(min(l.PDs, l.CQs, l.QPs, l.SRQs, l.MRs, l.MWs, l.Contexts, l.Objects))); lowest < 0 {
		m.net.t.Fatalf("verbstest: SetLimits: a limit is %d: use a positive number, or 0 for no limit", lowest)
	}
	m.adapter.SetLimits(fakemlx5.Limits{Memlock: uint64(l.Memlock), Contexts: l.Contexts, Objects: l.Objects,
		Kinds: map[string]int{"PD": l.PDs, "CQ": l.CQs, "QP": l.QPs, "SRQ": l.SRQs, "MR": l.MRs, "MW": l.MWs}})
	m.mu.Lock()
	m.limits = l
	m.mu.Unlock()
	for _, f := range m.opened() {
		f.core.Set(func() { f.setNumbers(l) })
	}
}

// deviceObjects is the number of objects of each kind that a device has without limits.
const deviceObjects = 1 << 17

// setNumbers sets the numbers of objects that programs query.
func (f *file) setNumbers(l Limits) {
	d := &f.core.Device
	for number, limit := range map[*uint32]int{&d.MaxPd: l.PDs, &d.MaxCq: l.CQs, &d.MaxQp: l.QPs, &d.MaxSrq: l.SRQs,
		&d.MaxMr: l.MRs} {
		if *number = deviceObjects; limit > 0 {
			*number = uint32(min(limit, deviceObjects))
		}
	}
}

// Memlock implements ioctl.Process.
func (f *file) Memlock() (limit, pinned uint64) { return f.m.memlock() }

// Memlock returns the limit on locked memory, or 0 if there is none, and how much is pinned, in bytes.
func (h *host) Memlock() (limit, pinned uint64) { return h.m.memlock() }

func (m *Machine) memlock() (limit, pinned uint64) {
	l, u := m.adapter.Limits()
	return l.Memlock, u.Pinned
}

// Files implements ioctl.Process: the files of an rdma cgroup with the machine's limits.
func (f *file) Files() fs.FS {
	l, u := f.m.adapter.Limits()
	number := func(limit int) string {
		if limit == 0 {
			return "max"
		}
		return fmt.Sprint(limit)
	}
	line := func(contexts, objects string) *fstest.MapFile {
		return &fstest.MapFile{Data: fmt.Appendf(nil, "%s hca_handle=%s hca_object=%s\n", f.m.Device(), contexts, objects)}
	}
	return fstest.MapFS{
		"proc/self/cgroup":          {Data: []byte("0::/" + cgroupName + "\n")},
		cgroupDir + "/rdma.max":     line(number(l.Contexts), number(l.Objects)),
		cgroupDir + "/rdma.current": line(fmt.Sprint(u.Contexts), fmt.Sprint(u.Objects)),
	}
}

const (
	cgroupName = "verbstest"
	cgroupDir  = "sys/fs/cgroup/" + cgroupName
)
