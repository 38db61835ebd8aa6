package devfile

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// size is the size of a file, most of which is never used.
const size = 1 << 38

// A File is an open node of a device. Its methods must not be called concurrently.
type File struct {
	fd     int
	next   uint64            // the first byte of the file that was never used
	ranges map[uint64]uint64 // lengths of what can be mapped, by offset
	bells  map[uint32]Bell   // by the page's number
}

// A Bell is called with a store to a register page, at an offset. It returns false if the page has no such register.
type Bell func(offset uint32, b []byte) bool

// Open creates a file. fd is another descriptor of it, for ioctl.NewFake.
func Open(name string) (f *File, fd int, err error) {
	if fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING); err != nil {
		return nil, -1, err
	}
	own := -1
	if err = unix.Ftruncate(fd, size); err == nil {
		// A program in another process may have the descriptor, but cannot make the file shorter.
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err == nil {
		own, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	if err != nil {
		return nil, -1, errors.Join(err, unix.Close(fd))
	}
	return &File{fd: own, next: 1 << 20, ranges: map[uint64]uint64{}, bells: map[uint32]Bell{}}, fd, nil
}

// Close closes the file. Its rings must have been freed.
func (f *File) Close() error { return unix.Close(f.fd) }

// A Ring is memory of the file that the device and the program share.
type Ring struct {
	Key   uint64 // the offset in the file, at which the program maps it
	Bytes []byte
}

func pages(n uint64) uint64 {
	page := uint64(unix.Getpagesize())
	return (n + page - 1) &^ (page - 1)
}

// NewRing allocates n bytes. An offset of the file is used once.
func (f *File) NewRing(n uint64) (Ring, error) {
	key := f.next
	if key+pages(n) > size {
		return Ring{}, unix.ENOMEM
	}
	r, err := f.NewRingAt(key, n)
	if err == nil {
		f.next += uint64(len(r.Bytes))
	}
	return r, err
}

// NewRingAt allocates n bytes at an offset of the first MiB of the file.
func (f *File) NewRingAt(key, n uint64) (r Ring, err error) {
	n = pages(n)
	r.Key = key
	if r.Bytes, err = unix.Mmap(f.fd, int64(key), int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return Ring{}, err
	}
	f.ranges[key] = n
	return r, nil
}

// FreeRing frees a ring, which may be a zero one.
func (f *File) FreeRing(r Ring) error {
	if r.Bytes == nil {
		return nil
	}
	const hole = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	n := int64(len(r.Bytes))
	err := errors.Join(unix.Munmap(r.Bytes), unix.Fallocate(f.fd, hole, int64(r.Key), n))
	delete(f.ranges, r.Key)
	return err
}

// NewBell allocates a register page, and returns the offset at which the program maps it.
func (f *File) NewBell(b Bell) (key uint64) {
	page := uint64(unix.Getpagesize())
	key = f.next
	f.next += page
	f.ranges[key], f.bells[uint32(key/page)] = page, b
	return key
}

// FreeBell frees a register page.
func (f *File) FreeBell(key uint64) {
	delete(f.ranges, key)
	delete(f.bells, uint32(key/uint64(unix.Getpagesize())))
}

// Mapping returns what is at an offset of the file, for a program of another process: a register page with a
// number, or bytes of the file.
func (f *File) Mapping(offset, length uint64) (page uint32, register bool, errno unix.Errno) {
	if n, ok := f.ranges[offset]; !ok || n != length {
		return 0, false, unix.EINVAL
	}
	page = uint32(offset / uint64(unix.Getpagesize()))
	_, register = f.bells[page]
	return page, register, 0
}

// Store carries out a store to a register page.
func (f *File) Store(page, offset uint32, b []byte) error {
	if bell, ok := f.bells[page]; !ok || !bell(offset, b) {
		return fmt.Errorf("a store of %d bytes at %#x of page %d", len(b), offset, page)
	}
	return nil
}
