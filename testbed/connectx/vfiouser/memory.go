package vfiouser

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// memory is the client's memory by DMA address.
type memory struct {
	maps []mapping // by address, disjoint
	last int       // index of the last view
}

// A mapping is a range of the client's memory. It has no bytes if the client
// passed no descriptor, or a read-only one: a store to such bytes would kill
// the process.
type mapping struct {
	addr, size uint64
	bytes      []byte
}

// find returns the index of the first mapping that ends after an address.
func (m *memory) find(addr uint64) int {
	i, _ := slices.BinarySearchFunc(m.maps, addr, func(x mapping, addr uint64) int {
		if x.addr+x.size-1 < addr { // the end itself may be 2^64
			return -1
		}
		return 1
	})
	return i
}

// view is Host.View.
func (m *memory) view(addr uint64, n int) ([]byte, error) {
	i := m.last
	if i >= len(m.maps) || addr-m.maps[i].addr >= m.maps[i].size {
		i = m.find(addr)
	}
	if i == len(m.maps) || addr-m.maps[i].addr >= m.maps[i].size {
		return nil, notMapped(addr, n, "no memory there")
	}
	x := &m.maps[i]
	off := addr - x.addr
	switch {
	case n < 0 || uint64(n) > x.size-off:
		return nil, notMapped(addr, n, fmt.Sprintf("the memory there ends at %#x", x.addr+x.size))
	case x.bytes == nil:
		return nil, notMapped(addr, n, "the memory there is not writable, or no memory")
	}
	m.last = i
	return x.bytes[off : off+uint64(n) : off+uint64(n)], nil
}

func notMapped(addr uint64, n int, why string) error {
	return &Error{Kind: ErrNotMapped, Detail: fmt.Sprintf("%d bytes at %#x: %s", n, addr, why)}
}

// add maps a piece of memory: size bytes of fd from offset on, or nothing if fd
// is -1 or they are not to be written.
func (m *memory) add(addr, size uint64, fd int, offset uint64, writable bool) error {
	switch {
	case size == 0 || addr+size-1 < addr:
		return refused(unix.EINVAL, "%d bytes at %#x", size, addr)
	case (addr|size|offset)%pageSize != 0:
		return refused(unix.EINVAL, "address %#x, size %#x or offset %#x is not a multiple of %d", addr, size, offset,
			pageSize)
	case len(m.maps) == maxMaps:
		return refused(unix.ENOSPC, "too many mappings: %d", maxMaps)
	}
	i := m.find(addr)
	if i < len(m.maps) && m.maps[i].addr <= addr+size-1 {
		return refused(unix.EEXIST, "%#x bytes at %#x: there are %#x bytes at %#x", size, addr, m.maps[i].size,
			m.maps[i].addr)
	}
	x := mapping{addr: addr, size: size}
	if fd >= 0 && writable {
		var err error
		if x.bytes, err = mapFile(fd, offset, size); err != nil {
			return err
		}
	}
	m.maps = slices.Insert(m.maps, i, x)
	return nil
}

// mapFile maps a part of a file. A part beyond the file's end is refused,
// because an access would kill the process.
func mapFile(fd int, offset, size uint64) ([]byte, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, &Error{Kind: ErrRefused, Errno: unix.EINVAL, Detail: "fstat", Err: err}
	}
	if end := offset + size; end < offset || stat.Size < 0 || end > uint64(stat.Size) {
		return nil, refused(unix.EINVAL, "%#x bytes from %#x on of a file of %#x", size, offset, stat.Size)
	}
	b, err := unix.Mmap(fd, int64(offset), int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		errno := unix.EINVAL
		errors.As(err, &errno)
		return nil, &Error{Kind: ErrRefused, Errno: errno, Detail: "mmap", Err: err}
	}
	return b, nil
}

// remove removes the mapping with exactly this range.
func (m *memory) remove(addr, size uint64) error {
	i, found := slices.BinarySearchFunc(m.maps, addr,
		func(x mapping, addr uint64) int { return cmp.Compare(x.addr, addr) })
	if !found || m.maps[i].size != size {
		return refused(unix.ENOENT, "there is no mapping of %#x bytes at %#x", size, addr)
	}
	x := m.maps[i]
	m.maps = slices.Delete(m.maps, i, i+1)
	return x.unmap()
}

// close removes all mappings.
func (m *memory) close() error {
	var err error
	for _, x := range m.maps {
		err = errors.Join(err, x.unmap())
	}
	m.maps = nil
	return err
}

func (x mapping) unmap() error {
	if x.bytes == nil {
		return nil
	}
	if err := unix.Munmap(x.bytes); err != nil {
		return &Error{Kind: ErrRefused, Errno: unix.EIO, Detail: "munmap", Err: err}
	}
	return nil
}
