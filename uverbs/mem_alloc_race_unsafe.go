//go:build race

package uverbs

import "unsafe"

// largestOnHeap is the size from which memory is mapped even for the race detector, because the Go
// heap has no error for memory that the system does not have.
const largestOnHeap = 1 << 30

// alloc allocates n zero bytes in pages that hold nothing else, for [PD.Alloc].
func (mem *backing) alloc(n int) error {
	if n > largestOnHeap {
		b, err := mapPages(n)
		mem.buf, mem.own = b, true
		return err
	}
	align := int(pages(1))
	if n >= hugePage {
		align = hugePage
	}
	b := make([]byte, int(pages(n))+align)
	lead := -int(uintptr(unsafe.Pointer(&b[0]))) & (align - 1)
	mem.keep(b[lead:][:n:n])
	return nil
}

// allocReused allocates at least n bytes for verbs.AllocReused: on the heap, where a slice also keeps its memory.
func (mem *backing) allocReused(n int) error {
	mem.keep(make([]byte, n))
	return nil
}
