package ioctltest

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/uapi"
)

// A Process is another process whose programs use a device.
type Process interface {
	// View returns a copy of n bytes at an address. It is valid until the next call of View or Flush, which writes it
	// back if it has changed. Calls do not overlap.
	View(addr uint64, n int) ([]byte, error)
	Flush()
	// Mapped reports whether the process can read n bytes at an address, or write to them.
	Mapped(addr, n uint64, write bool) bool
}

// firstKey is the first key of an event descriptor of another process.
const firstKey = 1 << 30

// handOut keeps the ends of an event descriptor, and returns its key.
func (k *Kernel) handOut(theirs, mine int) (key int) {
	if k.handedOut == nil {
		k.handedOut = map[int]int{}
	}
	k.nextKey++
	key = firstKey + k.nextKey
	delete(k.waiting, mine) // of an earlier socket with the number
	k.handedOut[key], k.channels[key] = theirs, mine
	return key
}

// TakeDescriptor returns the event descriptor with a key, which the caller then owns.
func (k *Kernel) TakeDescriptor(key int) (fd int, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fd, ok = k.handedOut[key]
	delete(k.handedOut, key)
	return fd, ok
}

// Abandon removes all objects and event descriptors, as the kernel does when a process ends.
func (k *Kernel) Abandon() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unplugged = true // no command follows
	clear(k.objects)
	for key, theirs := range k.handedOut {
		_ = unix.Close(theirs) // a socket of this process that is open
		delete(k.handedOut, key)
	}
	for key, mine := range k.channels {
		_ = unix.Close(mine) // as above
		delete(k.waiting, mine)
		delete(k.channels, key)
	}
}

// ClassOf returns how the kernel reads an attribute of a method, or false if it does not know it.
func ClassOf(driver uint32, object, method, attr uint16) (Class, bool) {
	m := MethodOf(driver, object, method)
	r, known := m.rule(attr)
	return r.Class, known && Rules[m] != nil
}

// Check checks the attributes of a command of another process as decode does.
func Check(driver uint32, object, method uint16, attrs []uapi.IbUverbsAttr) unix.Errno {
	m := MethodOf(driver, object, method)
	if Rules[m] == nil {
		return unix.EPROTONOSUPPORT
	}
	there := map[uint16]bool{}
	for _, a := range attrs {
		r, known := m.rule(a.AttrId)
		switch n := int(a.Len); {
		case there[a.AttrId]:
			return unix.EINVAL
		case !known && a.Flags&uapi.UVERBS_ATTR_F_MANDATORY != 0:
			return unix.EPROTONOSUPPORT
		case !known:
		case r.Class != In && r.Class != Out:
			if n != 0 {
				return unix.EINVAL
			}
		case n < r.Min || r.Max >= 0 && n > r.Max && !r.Zeroes:
			return unix.EINVAL
		}
		there[a.AttrId] = true
	}
	for id, r := range Rules[m] {
		if r.Must && !there[id] {
			return unix.EINVAL
		}
	}
	return 0
}
