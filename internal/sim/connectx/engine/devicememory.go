package engine

import "slices"

// A DeviceMemory is memory of the device that programs can map, at an offset of
// BAR 0: MEMIC in commands.
type DeviceMemory struct {
	Start uint64 // offset in BAR 0, a multiple of 4 KiB
	Bytes []byte
	// Operations is the offset in BAR 0 of the windows of the MemoryOps, each as large as the memory:
	// an access of an address in a window executes the operation on the memory.
	Operations uint64
}

// A MemoryOp is an atomic operation of the host on device memory. It is on one byte.
type MemoryOp uint8

const (
	Increment  MemoryOp = iota // a store adds its value
	TestAndSet                 // a load returns the byte, and sets it to 1
	MemoryOps                  // number of operations
)

// String returns the name of the operation.
func (o MemoryOp) String() string {
	return [...]string{"increment", "test and set", "unknown operation"}[min(o, MemoryOps)]
}

// operation returns the operation whose window has an offset of BAR 0, and the offset in Bytes.
func (m *DeviceMemory) operation(at uint64) (op MemoryOp, in uint64, ok bool) {
	size := uint64(len(m.Bytes))
	if m.Operations == 0 || at < m.Operations || at-m.Operations >= size*uint64(MemoryOps) {
		return 0, 0, false
	}
	at -= m.Operations
	return MemoryOp(at / size), at % size, true
}

// view returns n bytes at an offset of BAR 0, or nil if they are not device
// memory.
func (m *DeviceMemory) view(at, n uint64) []byte {
	size := uint64(len(m.Bytes))
	if at < m.Start || at-m.Start > size || n > size-(at-m.Start) {
		return nil
	}
	return m.Bytes[at-m.Start:][:n]
}

// A memoryPart is allocated device memory. Users are the keys that refer to it.
type memoryPart struct {
	start, size uint64
	users       int
	ops         [MemoryOps]bool // those with an address
}

func (p *memoryPart) contains(start, n uint64) bool {
	return start >= p.start && start-p.start <= p.size && n <= p.size-(start-p.start)
}

// MaxLogAlignment is the largest alignment of device memory, as the logarithm
// of the number of units.
const MaxLogAlignment = 6

// DeviceMemoryUnit is the unit of sizes and alignments of device memory, in
// bytes.
const DeviceMemoryUnit = 64

// AllocDeviceMemory allocates size bytes at the beginning of a range of BAR 0
// that is not in use, and returns their offset in BAR 0.
func (h *HCA) AllocDeviceMemory(start, length, size uint64, logAlignment uint8) (uint64, error) {
	if logAlignment > MaxLogAlignment {
		return 0, failf(ErrParam, "an alignment of 64 << %d bytes, the limit is 64 << %d", logAlignment, MaxLogAlignment)
	}
	if size == 0 || size%DeviceMemoryUnit != 0 {
		return 0, failf(ErrParam, "%d bytes of device memory, not a multiple of %d", size, DeviceMemoryUnit)
	}
	unit := uint64(DeviceMemoryUnit) << logAlignment
	at := (start + unit - 1) &^ (unit - 1)
	if at < start || at-start > length || size > length-(at-start) || h.config.DeviceMemory.view(at, size) == nil {
		return 0, failf(ErrParam, "%d bytes of device memory in %d at %#x of BAR 0", size, length, start)
	}
	for _, p := range h.memory {
		if at < p.start+p.size && p.start < at+size {
			return 0, failf(ErrBusy, "the device memory at %#x is allocated", at)
		}
	}
	h.memory = append(h.memory, &memoryPart{start: at, size: size})
	return at, nil
}

// FreeDeviceMemory frees what AllocDeviceMemory returned.
func (h *HCA) FreeDeviceMemory(start, size uint64) error {
	i := slices.IndexFunc(h.memory, func(p *memoryPart) bool { return p.start == start && p.size == size })
	if i < 0 {
		return failf(ErrResource, "there is no device memory of %d bytes at %#x", size, start)
	}
	if n := h.memory[i].users; n > 0 {
		return failf(ErrBusy, "%d keys refer to the device memory at %#x", n, start)
	}
	if h.memory[i].ops != [MemoryOps]bool{} {
		return failf(ErrBusy, "operations of the device memory at %#x have addresses", start)
	}
	h.memory = slices.Delete(h.memory, i, i+1)
	return nil
}

// partOf returns the allocated device memory with n bytes at an offset of BAR 0.
func (h *HCA) partOf(start, n uint64) (*memoryPart, error) {
	for _, p := range h.memory {
		if p.contains(start, n) {
			return p, nil
		}
	}
	return nil, failf(ErrParam, "%d bytes at %#x of BAR 0 are not allocated device memory", n, start)
}

// StoreDeviceMemory stores p at an offset of BAR 0, for the host. It reports
// whether the offset is in device memory.
func (h *HCA) StoreDeviceMemory(at uint64, p []byte) bool {
	to := h.config.DeviceMemory.view(at, uint64(len(p)))
	copy(to, p)
	return to != nil
}

// LoadDeviceMemory fills p from an offset of BAR 0, for the host. It reports
// whether the offset is in device memory.
func (h *HCA) LoadDeviceMemory(at uint64, p []byte) bool {
	from := h.config.DeviceMemory.view(at, uint64(len(p)))
	copy(p, from)
	return from != nil
}

// AddMemoryOp gives an operation on allocated device memory, which begins at start, an address, and
// returns its offset in BAR 0.
func (h *HCA) AddMemoryOp(start uint64, op MemoryOp) (uint64, error) {
	p, err := h.partForOp(start, op)
	if err != nil {
		return 0, err
	}
	if p.ops[op] {
		return 0, failf(ErrState, "%v of the device memory at %#x has an address", op, start)
	}
	p.ops[op] = true
	m := &h.config.DeviceMemory
	return m.Operations + uint64(op)*uint64(len(m.Bytes)) + start - m.Start, nil
}

// RemoveMemoryOp is the reverse of AddMemoryOp.
func (h *HCA) RemoveMemoryOp(start uint64, op MemoryOp) error {
	p, err := h.partForOp(start, op)
	if err != nil {
		return err
	}
	if !p.ops[op] {
		return failf(ErrState, "%v of the device memory at %#x has no address", op, start)
	}
	p.ops[op] = false
	return nil
}

func (h *HCA) partForOp(start uint64, op MemoryOp) (*memoryPart, error) {
	if op >= MemoryOps || h.config.DeviceMemory.Operations == 0 {
		return nil, failf(ErrParam, "operation %d on device memory", op)
	}
	i := slices.IndexFunc(h.memory, func(p *memoryPart) bool { return p.start == start })
	if i < 0 {
		return nil, failf(ErrResource, "no device memory begins at %#x", start)
	}
	return h.memory[i], nil
}

// OperateDeviceMemory executes an access of the host to an operation's address: a store of p, or a
// load into p. ok is false if the offset of BAR 0 is not one of an operation. An access without
// effect is an error.
func (h *HCA) OperateDeviceMemory(at uint64, p []byte, store bool) (ok bool, err error) {
	m := &h.config.DeviceMemory
	op, in, ok := m.operation(at)
	if !ok {
		return false, nil
	}
	part, err := h.partOf(m.Start+in, 1)
	switch {
	case err != nil:
		return true, err
	case !part.ops[op]:
		return true, failf(ErrState, "%v of the device memory at %#x has no address", op, part.start)
	case len(p) != 1 || store != (op == Increment):
		return true, failf(ErrParam, "%v of device memory by a load or store (%t) of %d bytes", op, store, len(p))
	}
	if b := &m.Bytes[in]; op == Increment {
		*b += p[0]
	} else {
		p[0], *b = *b, 1
	}
	return true, nil
}

// device visits device memory. The addresses of its keys begin at 0.
func (w *walker) device(k *MKey, va, n uint64) bool {
	p := w.hca.config.DeviceMemory.view(k.Start+va, n)
	if p == nil {
		return false
	}
	w.f(p)
	return true
}
