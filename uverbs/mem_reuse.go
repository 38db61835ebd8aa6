package uverbs

import (
	"math/bits"
	"sync"

	"golang.org/x/sys/unix"
)

// spares has memory of deregistered MRs of verbs.AllocReused, by size. It stays mapped: a slice that the program still
// has does not fault, but shows zeros or what is stored there next. So the process has as much address space for it as
// it has had such MRs at the same time.
var spares = struct {
	sync.Mutex
	bySize   map[int][]spare
	resident int // bytes of those that have their pages
}{bySize: map[int][]spare{}}

type spare struct {
	b        []byte
	resident bool
}

// mostResident is how many bytes keep their pages, so that connections which come and go do not cause page faults. The
// kernel gets the pages of the others.
const mostResident = 16 << 20

// reusedSize rounds n up to whole pages, and to one of eight sizes between two powers of two, so that memory fits
// again.
func reusedSize(n int) int {
	step := max(int(pages(1)), 1<<max(bits.Len(uint(n-1))-4, 0))
	return (n + step - 1) / step * step
}

// takeSpare returns memory of a size of reusedSize.
func takeSpare(size int) ([]byte, error) {
	if b := oldSpare(size); b != nil {
		return b, nil
	}
	return mapPages(size) // without the lock: the kernel may wait for page faults of other threads
}

func oldSpare(size int) []byte {
	spares.Lock()
	defer spares.Unlock()
	all := spares.bySize[size]
	if len(all) == 0 {
		return nil
	}
	last := len(all) - 1
	s := all[last]
	spares.bySize[size] = all[:last]
	if s.resident {
		spares.resident -= size
	}
	return s.b
}

// putSpare makes b available to takeSpare.
func putSpare(b []byte) {
	spares.Lock()
	s := spare{b, spares.resident+len(b) <= mostResident}
	if s.resident {
		spares.resident += len(b)
	}
	spares.Unlock()
	// After mlockall(MCL_FUTURE) the pages are locked, and only stay. A failure of either call only costs memory.
	if !s.resident && unix.Munlock(b) == nil {
		_ = unix.Madvise(b, unix.MADV_DONTNEED)
	}
	spares.Lock()
	defer spares.Unlock()
	spares.bySize[len(b)] = append(spares.bySize[len(b)], s)
}
