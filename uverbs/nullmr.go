package uverbs

import "golang.org/x/sys/unix"

// A ProviderNullMR is a [ProviderContext] of a device that may have a key of
// memory that there is not.
type ProviderNullMR interface {
	// NullKey is the key, if the device has it.
	NullKey() (lkey uint32, ok bool)
}

// AllocNullMR makes an MR of memory that there is not: ibv_alloc_null_mr(3).
// What arrives in it is thrown away, and it reads as zeros. Any offset and length
// will do, up to [MaxMessage] bytes in a request; peers cannot name it. A receive
// may so take part of a message and leave the rest. [ErrNotSupported] where the
// device has none, [ErrClosed] after Close of the PD.
func (p *PD) AllocNullMR() (*MR, error) {
	const op = "allocate null MR"
	var key uint32
	have := false
	if n, ok := p.ctx.impl.(ProviderNullMR); ok {
		key, have = n.NullKey()
	}
	if !have {
		return nil, &Error{Op: op, Object: p.String(), Kind: ErrNotSupported, Errno: unix.EOPNOTSUPP,
			Detail: "the device has no key for it: register memory that nobody looks at"}
	}
	r := newRegistration(p)
	r.unregistered = "a null MR"
	r.destroy = func() error { return nil }
	return r.register(func(r *registration) error {
		r.view = &mrView{size: maxRoom, room: maxRoom, access: LocalWrite, lkey: key}
		return nil
	})
}
