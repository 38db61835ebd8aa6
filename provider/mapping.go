package provider

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/leak"
)

// A Mapping is memory outside the Go heap that a device or the kernel shares:
// a ring, or a page of registers. Its methods are safe for concurrent use.
type Mapping struct {
	mem  []byte
	lent bool

	mu      sync.Mutex
	retired bool
	ticket  *leak.Ticket
}

// Map maps n bytes of dev's node at offset, shared, for reading and writing.
// The offset is one that the kernel offered. An errno comes back as it is.
func Map(dev *ioctl.Device, offset int64, n int) (*Mapping, error) {
	return mapNode(dev, offset, n, unix.PROT_READ|unix.PROT_WRITE)
}

// MapToRead is Map for what the kernel lets nobody write: a clock.
func MapToRead(dev *ioctl.Device, offset int64, n int) (*Mapping, error) {
	return mapNode(dev, offset, n, unix.PROT_READ)
}

func mapNode(dev *ioctl.Device, offset int64, n, prot int) (*Mapping, error) {
	mem, err := dev.Mmap(offset, n, prot)
	if err != nil {
		return nil, err
	}
	return newMapping(mem, dev.Name()), nil
}

// Anon maps n bytes of zeroed private memory, page aligned. An errno comes
// back as it is.
func Anon(n int) (*Mapping, error) { return anonymous(n, 0) }

// Huge is Anon in huge pages of 2 MiB, as many as hold n bytes. They are taken
// from those that the system has set aside (vm.nr_hugepages): ENOMEM when there
// are not enough.
func Huge(n int) (*Mapping, error) {
	const page = 2 << 20
	return anonymous((n+page-1)&^(page-1), unix.MAP_HUGETLB|unix.MAP_HUGE_2MB)
}

func anonymous(n, flags int) (*Mapping, error) {
	mem, err := ioctl.Pages(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|flags)
	if err != nil {
		return nil, err
	}
	return newMapping(mem, "anonymous"), nil
}

// Lend makes a Mapping of memory that is the program's. Retire leaves it as it
// is; free gets it back when the Mapping is not reachable any more, in a
// goroutine of the runtime's.
func Lend(b []byte, free func([]byte)) *Mapping {
	m := &Mapping{mem: b, lent: true, ticket: leak.Track("mapping of", "the program's memory")}
	runtime.AddCleanup(m, free, b)
	return m
}

func newMapping(mem []byte, name string) *Mapping {
	m := &Mapping{mem: mem, ticket: leak.Track("mapping of", name)}
	// The slice is not Go memory, so handing it to the cleanup does not keep
	// the Mapping reachable.
	runtime.AddCleanup(m, unmap, mem)
	return m
}

func unmap(mem []byte) {
	// The range is one that was mapped as a whole, so there is nothing to fail.
	_ = ioctl.Unmap(mem)
}

// Bytes returns the mapped memory. The slice stays addressable for as long as
// the Mapping is reachable, also after Retire.
func (m *Mapping) Bytes() []byte { return m.mem }

// Retire replaces the memory by zero pages in place and lets go of what was
// mapped there. Goroutines may read and write the memory meanwhile. Further
// calls return nil; a call that failed may be repeated.
func (m *Mapping) Retire() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.retired {
		return nil
	}
	if !m.lent {
		if err := overlay(m.mem); err != nil {
			return err
		}
	}
	m.retired = true
	m.ticket.Done()
	return nil
}
