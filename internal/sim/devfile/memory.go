package devfile

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/race"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
)

// A Memory is that of a program: of this process if Process is nil.
type Memory struct{ Process ioctltest.Process }

// Read fills b with the memory at an address. It returns false if the process has ended or has unmapped it.
func (m Memory) Read(addr uint64, b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if m.Process == nil {
		race.Copy(b, view(addr, len(b)))
		return true
	}
	from, err := m.Process.View(addr, len(b))
	copy(b, from)
	return err == nil
}

// Write writes b to an address.
func (m Memory) Write(addr uint64, b []byte) bool {
	if len(b) == 0 {
		return true
	}
	if m.Process == nil {
		race.Copy(view(addr, len(b)), b)
		return true
	}
	to, err := m.Process.View(addr, len(b))
	if err != nil {
		return false
	}
	copy(to, b)
	m.Process.Flush()
	return true
}

// Publish writes an entry of a CQ in the program's memory. Its last eight bytes are stored last, at once.
func (m Memory) Publish(addr uint64, entry []byte) bool {
	last := len(entry) - 8
	if m.Process == nil {
		to := view(addr, len(entry))
		Publish(to, to, entry, last)
		return true
	}
	return m.Write(addr, entry[:last]) && m.Write(addr+uint64(last), entry[last:])
}

// Admit checks that a program may have n bytes at an address pinned, in addition to those that its file has pinned.
func (m Memory) Admit(addr, n, pinned uint64, write bool) error {
	switch {
	case m.Process == nil:
		return nil
	case n > maxPinned || pinned+n > maxPinned:
		return unix.ENOMEM
	case !m.Process.Mapped(addr, n, write):
		return unix.EFAULT
	}
	return nil
}

// maxPinned is how much memory of another process one file can pin, in bytes.
const maxPinned = 1 << 30

// A Region is memory that was registered.
type Region struct {
	Memory
	Start  uint64 // its address in the program
	IOVA   uint64
	Length uint64
	Access uint32
}

// Within reports whether n bytes at an address are in the region, and the region has the rights.
func (r *Region) Within(addr, n uint64, access uint32) bool {
	off := addr - r.IOVA
	return off <= r.Length && n <= r.Length-off && r.Access&access == access
}

// At returns where an address of the region is in the program.
func (r *Region) At(addr uint64) uint64 { return addr - r.IOVA + r.Start }
