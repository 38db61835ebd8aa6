package mmio_test

import "unsafe"

// register is 64 bits of memory in place of a device register.
type register struct{ word uint64 }

func (r *register) p32() *uint32    { return (*uint32)(unsafe.Pointer(&r.word)) }
func (r *register) p16() *uint16    { return (*uint16)(unsafe.Pointer(r)) }
func (r *register) p8() *uint8      { return (*uint8)(unsafe.Pointer(r)) }
func (r *register) p64() *uint64    { return &r.word }
func (r *register) bytes() *[8]byte { return (*[8]byte)(unsafe.Pointer(&r.word)) }

// word returns the first 8 bytes of a register.
func word(b *[256]byte) *uint64 { return (*uint64)(unsafe.Pointer(b)) }

func bytes32(p *uint32) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(p)), 4) }
