package fakemlx5

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
)

// MaxPinned is how much memory of another process one file can pin, in bytes.
const MaxPinned = 1 << 30

// A space is the upper part of the adapter's addresses of a process's memory. That of this process is 0.
type space uint64

const (
	spaceShift = 48 // addresses of programs have 47 bits
	maxSpace   = 1 << 14
)

// spaces has the other processes.
type spaces struct {
	loop      *loop.Loop
	processes map[space]ioctltest.Process
	last      space
	dirty     map[space]bool // those that a step flushes
}

// add returns a new space. It returns 0 if there are too many.
func (s *spaces) add(p ioctltest.Process) space {
	if s.processes == nil {
		s.processes, s.dirty = map[space]ioctltest.Process{}, map[space]bool{}
	}
	for range maxSpace {
		if s.last = s.last%maxSpace + 1; s.processes[s.last] == nil {
			s.processes[s.last] = p
			return s.last
		}
	}
	return 0
}

// view returns memory of another process. What the adapter writes is in the process's memory before a later step
// reports an event.
func (s *spaces) view(addr uint64, n int) ([]byte, error) {
	at := space(addr >> spaceShift)
	p := s.processes[at]
	if p == nil {
		return nil, fmt.Errorf("no memory at %#x", addr)
	}
	if n > pageSize { // only a rule for programs in Go reads more than a page, with each packet
		return nil, fmt.Errorf("%d bytes at %#x are not contiguous", n, addr)
	}
	if !s.dirty[at] {
		s.dirty[at] = true
		s.loop.Post(func() {
			delete(s.dirty, at)
			p.Flush()
		})
	}
	return p.View(addr&(1<<spaceShift-1), n)
}

// UseProcess makes the file that of a program in another process. It must be called before the first command. Raw
// packets and objects of DevX are for programs of this process.
func (k *Kernel) UseProcess(p ioctltest.Process) error {
	k.adapter.loop.Run(func() { k.space = k.adapter.memory.other.add(p) })
	if k.space == 0 {
		return unix.EMFILE
	}
	k.Kernel.Set(func() { k.Foreign, k.NetRaw, k.Raw = true, false, false })
	return nil
}

// nowhere is an address without memory.
const nowhere = 1<<64 - 2*pageSize

// locate replaces addresses of the program by those of the adapter.
func (k *Kernel) locate(addrs ...*uint64) {
	if k.space == 0 {
		return
	}
	for _, a := range addrs {
		if *a >= 1<<(spaceShift-1) {
			*a = nowhere
		} else {
			*a |= uint64(k.space) << spaceShift
		}
	}
}

// admit checks memory that the adapter may be permitted to use.
func (k *Kernel) admit(spans []span) error {
	p, total := k.adapter.memory.other.processes[k.space], k.pinned
	for _, s := range spans {
		if s.addr >= nowhere {
			return unix.EFAULT
		}
		if s.n > MaxPinned {
			return unix.ENOMEM
		}
		if total += s.n; total > MaxPinned {
			return unix.ENOMEM
		}
		if !p.Mapped(s.addr&(1<<spaceShift-1), s.n, !s.readOnly) {
			return unix.EFAULT
		}
	}
	return nil
}

// abandon destroys the device's objects of a process that has ended, as the kernel does.
func (k *Kernel) abandon() {
	hca := k.adapter.HCA
	for h, q := range k.QPs {
		hca.LeaveGroups(q.Number)
		k.check(k.destroyQP(h))
	}
	for h := range k.dcts {
		k.check(k.destroyDCT(h))
	}
	for h := range k.SRQs {
		k.check(k.destroySRQ(h))
	}
	for h := range k.CQs {
		k.check(k.destroyCQ(h))
	}
	for h := range k.mws {
		k.check(k.deallocMW(h))
	}
	for h := range k.mrs {
		k.check(k.deregMR(h))
	}
	for h := range k.dms {
		k.check(k.freeDM(h))
	}
	for h := range k.XRCDs {
		k.check(destroyDomain(k.XRCDs, h, hca.DestroyXRCD))
	}
	for h := range k.PDs {
		k.check(destroyDomain(k.PDs, h, hca.DestroyPD))
	}
	k.Kernel.Abandon()
	k.adapter.loop.Post(func() { delete(k.adapter.memory.other.processes, k.space) }) // after its flush
}
