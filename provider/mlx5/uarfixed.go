package mlx5

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A kernel that cannot allocate single register pages allocates them with the context, and
// chooses the register of each QP itself.

// Part of the offset at which such pages are mapped.
const mmapCommandShift = 8

// mmapOffset returns the offset at which the kernel maps the page of a command and an index.
func mmapOffset(command, index int) int64 { return offsetOf(command, index, unix.Getpagesize()) }

func offsetOf(command, index, pageSize int) int64 {
	return int64(command<<mmapCommandShift|index) * int64(pageSize)
}

// openFixed maps the pages of the given number of registers.
func (u *uars) openFixed(registers int) error {
	if uarSend+uarRegisters*2*u.split > uarSize {
		return badABI("%d registers of %d bytes in a page", uarRegisters, 2*u.split)
	}
	command := uapi.MLX5_IB_MMAP_REGULAR_PAGE
	if !u.set.blueFlame {
		command = uapi.MLX5_IB_MMAP_NC_PAGE
	}
	pages := max(registers/(u.per*uarUsable), 1)
	for i := range pages {
		mem, err := provider.Map(u.dev, mmapOffset(command, i), unix.Getpagesize())
		if err != nil {
			return kernelError("map a register page", u.dev.Name(), err, "")
		}
		p := &uarPage{mem: mem, id: uint32(i * u.per)}
		u.pages = append(u.pages, p)
		for _, r := range u.registersOf(p, uarRegisters) {
			r.shared = true
			u.fixed = append(u.fixed, r)
		}
	}
	u.use(u.pages[0])
	// The first register is not used for bursts, so all QPs can use it without a lock.
	first := u.fixed[0]
	first.toggle, first.most, first.shared = 0, 0, false
	u.plain = first
	return nil
}
