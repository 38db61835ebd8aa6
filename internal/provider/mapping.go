package provider

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/leak"
)

// A Mapping is memory outside the Go heap that is shared with a device or the
// kernel: a ring or a page of registers. Its methods are safe for concurrent use.
type Mapping struct {
	mem      []byte
	external bool // the memory belongs to the program: see MappingOf

	mu      sync.Mutex
	retired bool
	ticket  *leak.Ticket
}

// Map maps n bytes of dev's node, shared, for reading and writing. offset is one
// that the kernel has returned. An errno is returned unchanged.
func Map(dev *ioctl.Device, offset int64, n int) (*Mapping, error) {
	return mapped(dev, offset, n, unix.PROT_READ|unix.PROT_WRITE)
}

// Map is like the function Map, for a zero Mapping that is a part of a larger
// object. After Retire, the address range is then unmapped when the object is
// unreachable.
func (m *Mapping) Map(dev *ioctl.Device, offset int64, n int) error {
	return m.mapNode(dev, offset, n, unix.PROT_READ|unix.PROT_WRITE)
}

// MapToRead is like Map, for memory that the kernel allows only to be read, such as
// a clock.
func MapToRead(dev *ioctl.Device, offset int64, n int) (*Mapping, error) {
	return mapped(dev, offset, n, unix.PROT_READ)
}

func mapped(dev *ioctl.Device, offset int64, n, prot int) (*Mapping, error) {
	m := new(Mapping)
	if err := m.mapNode(dev, offset, n, prot); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *Mapping) mapNode(dev *ioctl.Device, offset int64, n, prot int) error {
	mem, err := dev.Mmap(offset, n, prot)
	if err == nil {
		m.mem, m.ticket = mem, leak.Track("mapping of", dev.Name())
	}
	return err
}

// Anon maps n bytes of zeroed private memory, aligned to a page. An errno is
// returned unchanged.
func Anon(n int) (*Mapping, error) { return anonymous(n, 0) }

// Huge is like Anon, but uses as many huge pages of 2 MiB as n bytes need. They
// must have been reserved (vm.nr_hugepages): Huge returns ENOMEM if there are not
// enough.
func Huge(n int) (*Mapping, error) {
	const page = 2 << 20
	return anonymous((n+page-1)&^(page-1), unix.MAP_HUGETLB|unix.MAP_HUGE_2MB)
}

func anonymous(n, flags int) (*Mapping, error) {
	mem, err := ioctl.Pages(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|flags)
	if err != nil {
		return nil, err
	}
	return &Mapping{mem: mem, ticket: leak.Track("mapping of", "anonymous")}, nil
}

// MappingOf creates a Mapping of memory that belongs to the program. Retire does not
// change this memory. When the Mapping is unreachable, free is called with b in a
// goroutine of the runtime.
func MappingOf(b []byte, free func([]byte)) *Mapping {
	m := &Mapping{mem: b, external: true, ticket: leak.Track("mapping of", "the program's memory")}
	runtime.AddCleanup(m, free, b)
	return m
}

func unmap(mem []byte) {
	// The range was mapped as a whole, so unmapping it cannot fail.
	_ = ioctl.Unmap(mem)
}

// Bytes returns the mapped memory. The slice is valid until Unmap, and after Retire
// as long as the Mapping is reachable.
func (m *Mapping) Bytes() []byte { return m.mem }

// Retire replaces the memory with zero pages at the same address and releases what
// was mapped there. Other goroutines may read and write the memory meanwhile. After
// success, further calls return nil, as for a nil Mapping. After an error, Retire may be called again.
func (m *Mapping) Retire() error {
	return m.end(func() error {
		err := overlay(m.mem)
		if err == nil {
			// The slice is not Go memory, so passing it to the cleanup does not keep the
			// Mapping reachable.
			runtime.AddCleanup(m, unmap, m.mem)
		}
		return err
	})
}

// Unmap unmaps the memory. The caller ensures that no goroutine accesses it any
// more. After Retire or Unmap, and for a nil Mapping, Unmap does nothing. After an error, it may be called
// again.
func (m *Mapping) Unmap() error { return m.end(func() error { return ioctl.Unmap(m.mem) }) }

// end calls f unless the Mapping is nil, its memory belongs to the program, or f has succeeded before.
func (m *Mapping) end(f func() error) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.retired {
		return nil
	}
	if !m.external {
		if err := f(); err != nil {
			return err
		}
	}
	m.retired = true
	m.ticket.Done()
	return nil
}

// Release is Retire if other goroutines may still access the memory, and Unmap
// otherwise, which takes half as long.
func (m *Mapping) Release(inUse bool) error {
	if inUse {
		return m.Retire()
	}
	return m.Unmap()
}
