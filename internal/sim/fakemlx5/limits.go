package fakemlx5

import (
	"os"

	"golang.org/x/sys/unix"
)

// Limits bound what all programs together may use of an adapter. Zero means no limit.
type Limits struct {
	Memlock uint64 // bytes that the kernel may pin: RLIMIT_MEMLOCK
	// Contexts and Objects are hca_handle and hca_object of the rdma cgroup.
	Contexts, Objects int
	// Kinds has the device's limits by the kernel's name of the kind, such as "QP".
	Kinds map[string]int
}

// A Usage is what programs use of an adapter.
type Usage struct {
	Pinned            uint64 // bytes
	Contexts, Objects int
}

// SetLimits replaces the limits. Objects that exist remain.
func (a *Adapter) SetLimits(l Limits) { a.loop.Run(func() { a.limits = l }) }

// Limits returns the limits, and what is in use.
func (a *Adapter) Limits() (l Limits, u Usage) {
	a.loop.Run(func() {
		l = a.limits
		u.Pinned = a.pinned
		u.Contexts, u.Objects, _ = a.count()
	})
	return l, u
}

// count counts the open contexts and the objects of all files.
func (a *Adapter) count() (contexts, objects int, kinds map[string]int) {
	kinds = map[string]int{}
	for k := range a.kernels {
		if k.opened {
			contexts++
		}
		for kind, n := range k.Objects() {
			kinds[kind] += int(n)
			objects += int(n)
		}
	}
	return contexts, objects, kinds
}

// creates has the kind of the object that each command creates.
var creates = map[string]string{"ALLOC_PD": "PD", "CQ.CREATE": "CQ", "QP.CREATE": "QP", "OPEN_QP": "QP",
	"SRQ.CREATE": "SRQ", "REG_MR": "MR", "MR.REG_DMABUF": "MR", "MR.REG_DM": "MR", "DM.ALLOC": "DM", "ALLOC_MW": "MW",
	"CREATE_AH": "AH", "OPEN_XRCD": "XRCD", "UAR.ALLOC": "UAR", "WQ.CREATE": "WQ", "CREATE_RWQ_IND_TBL_EX": "table",
	"CREATE_FLOW_EX": "flow"}

const openContext = "DEVICE.GET_CONTEXT"

// full returns a function that returns the errno of a command, by its name, that would exceed a
// limit, or 0. The rdma cgroup's limits are checked first, as in the kernel. The function needs no
// locks.
func (a *Adapter) full() func(command string) unix.Errno {
	l := &a.limits
	if l.Contexts == 0 && l.Objects == 0 && len(l.Kinds) == 0 {
		return nil
	}
	contexts, objects, kinds := a.count()
	return func(command string) unix.Errno {
		kind := creates[command]
		switch {
		case command == openContext && l.Contexts > 0 && contexts >= l.Contexts,
			kind != "" && l.Objects > 0 && objects >= l.Objects:
			return unix.EAGAIN
		case kind != "" && l.Kinds[kind] > 0 && kinds[kind] >= l.Kinds[kind]:
			return unix.ENOMEM
		}
		return 0
	}
}

// limit makes the commands of the file subject to the limits, after the tests' own failures.
func (k *Kernel) limit() {
	planned := k.Kernel.Fail
	k.Kernel.Fail = func(command string) unix.Errno {
		if planned != nil {
			if errno := planned(command); errno != 0 {
				return errno
			}
		}
		if k.full != nil {
			return k.full(command)
		}
		return 0
	}
}

// A span is a range of this process's memory that the device may use.
type span struct {
	addr, n uint64
	record  bool // a doorbell record, whose page the driver pins once for all records on it
	// unpinned means that the pages no longer count, although the device may use them until the
	// object is destroyed.
	unpinned bool
	readOnly bool // the device does not write to it
}

func pages(addr, n uint64) span { return span{addr: addr, n: n} }
func record(addr uint64) span   { return span{addr: addr, n: 8, record: true} }

// page returns the first page of the span, and the size of all its pages.
func (s span) page() (addr, size uint64) {
	mask := uint64(os.Getpagesize()) - 1
	return s.addr &^ mask, (s.addr+s.n+mask)&^mask - s.addr&^mask
}

// pin permits the device to use the spans, whose pages the kernel pins. It fails if they exceed the
// limit on locked memory.
func (k *Kernel) pin(spans ...span) ([]span, error) {
	if k.space != 0 {
		if err := k.admit(spans); err != nil {
			return nil, err
		}
	}
	for i, s := range spans {
		if k.charge(s); k.adapter.limits.Memlock > 0 && k.adapter.pinned > k.adapter.limits.Memlock {
			for _, s := range spans[:i+1] {
				k.uncharge(s)
			}
			return nil, unix.ENOMEM
		}
	}
	return k.share(spans...), nil
}

// unpin is the reverse of pin.
func (k *Kernel) unpin(spans []span) {
	for _, s := range spans {
		k.uncharge(s)
	}
	k.unshare(spans)
}

func (k *Kernel) charge(s span) {
	page, size := s.page()
	if s.record {
		if k.records[page]++; k.records[page] > 1 {
			return
		}
	}
	k.adapter.pinned += size
	k.pinned += size
}

func (k *Kernel) uncharge(s span) {
	if s.unpinned {
		return
	}
	page, size := s.page()
	if s.record {
		if k.records[page]--; k.records[page] > 0 {
			return
		}
		delete(k.records, page)
	}
	k.adapter.pinned -= size
	k.pinned -= size
}
