package perftest

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// hugePages is what /proc/meminfo says about huge pages of the default size.
type hugePages struct {
	size        uint64 // bytes of a page
	total, free uint64 // pages; reserved ones are not free
}

func readHugePages(file string) (p hugePages, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return p, err
	}
	var reserved uint64
	for _, f := range []struct {
		field string
		value *uint64
	}{{"Hugepagesize", &p.size}, {"HugePages_Total", &p.total}, {"HugePages_Free", &p.free},
		{"HugePages_Rsvd", &reserved}} {
		if *f.value, err = meminfo(string(text), f.field); err != nil {
			return p, fmt.Errorf("%s: %w: the kernel has no huge pages", file, err)
		}
	}
	p.size <<= 10
	p.free -= min(reserved, p.free)
	return p, nil
}

// checkHugePages returns an error if there are not enough huge pages for n regions of some bytes.
func (o *Options) checkHugePages(file string, n, bytes int) error {
	p, err := readHugePages(file)
	if err != nil {
		return &Error{Side: Here, Option: "--use_hugepages", Err: err}
	}
	need := uint64(n) * p.pages(bytes)
	if need <= p.free {
		return nil
	}
	return here("--use_hugepages", "the buffers take %d huge pages of %d KiB, and %d are free: write %d to "+
		"/proc/sys/vm/nr_hugepages, or choose a smaller -s or -q", need, p.size>>10, p.free, p.total-p.free+need)
}

// pages returns how many pages some bytes take.
func (p hugePages) pages(bytes int) uint64 { return (uint64(bytes) + p.size - 1) / p.size }

// mapHugePages returns bytes of memory that is mapped from huge pages until close.
func (e *endpoint) mapHugePages(bytes int) ([]byte, error) {
	p, err := readHugePages("/proc/meminfo")
	if err != nil {
		return nil, &Error{Side: Here, Option: "--use_hugepages", Err: err}
	}
	b, err := unix.Mmap(-1, 0, int(p.pages(bytes)*p.size), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_HUGETLB)
	if err != nil {
		return nil, &Error{Side: Here, Option: "--use_hugepages", Err: err, Detail: fmt.Sprintf("mapping %d huge pages of "+
			"%d KiB, of which %d were free", p.pages(bytes), p.size>>10, p.free)}
	}
	e.huge = append(e.huge, b)
	return b[:bytes], nil
}

// unmapHugePages unmaps what mapHugePages has mapped.
func (e *endpoint) unmapHugePages() error {
	var errs []error
	for _, b := range e.huge {
		errs = append(errs, unix.Munmap(b))
	}
	return errors.Join(errs...)
}
