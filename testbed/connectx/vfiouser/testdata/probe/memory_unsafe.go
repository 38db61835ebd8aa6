package main

import (
	"encoding/binary"
	"errors"
	"os"
	"sync/atomic"
	"unsafe"
)

func word32(b []byte, at int) *uint32 { return (*uint32)(unsafe.Pointer(&b[at : at+4][0])) }
func word64(b []byte, at int) *uint64 { return (*uint64)(unsafe.Pointer(&b[at : at+8][0])) }

// Loads are atomic, so that each is one load.
func load32(b []byte, at int) uint32 { return atomic.LoadUint32(word32(b, at)) }
func load64(b []byte, at int) uint64 { return atomic.LoadUint64(word64(b, at)) }

// physicalAddress returns the physical address of a page of memory.
func physicalAddress(page []byte) (uint64, error) {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var entry [8]byte
	if _, err := f.ReadAt(entry[:], int64(uintptr(unsafe.Pointer(&page[0]))/4096*8)); err != nil {
		return 0, err
	}
	v := binary.LittleEndian.Uint64(entry[:])
	if v>>63 == 0 {
		return 0, errors.New("the page is not in memory")
	}
	return v << 9 >> 9 * 4096, nil
}
