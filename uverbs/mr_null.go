package uverbs

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
)

// AllocNullMR creates an MR without memory: ibv_alloc_null_mr(3). The device
// discards what it would write there, and reads zeros. Any offset is valid, and a
// request may have up to [MaxMessage] bytes. Peers cannot use the MR. It is useful
// for a receive that discards a part of the message. AllocNullMR returns
// [ErrNotSupported] if the device has no null MR, and [ErrClosed] after Close of
// the PD.
func (p *PD) AllocNullMR() (*MR, error) {
	const op = "allocate null MR"
	var key uint32
	have := false
	if n, ok := p.ctx.impl.(driver.NullMR); ok {
		key, have = n.NullKey()
	}
	if !have {
		return nil, &Error{Op: op, Object: p.String(), Kind: ErrNotSupported, Errno: unix.EOPNOTSUPP,
			Detail: "the device has no key for it: register memory that is not used otherwise"}
	}
	r := newRegistration(p)
	r.unregistered, r.external = "a null MR", true
	return r.register(func(r *registration) error {
		r.view = &mrView{size: maxRoom, room: maxRoom, access: LocalWrite, lkey: key}
		return nil
	})
}
