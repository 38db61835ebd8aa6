package engine

import "slices"

// A DeviceMemory is memory of the device that programs can map, at an offset of
// BAR 0: MEMIC in commands.
type DeviceMemory struct {
	Start uint64 // offset in BAR 0, a multiple of 4 KiB
	Bytes []byte
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

// device visits device memory. The addresses of its keys begin at 0.
func (w *walker) device(k *MKey, va, n uint64) bool {
	p := w.hca.config.DeviceMemory.view(k.Start+va, n)
	if p == nil {
		return false
	}
	w.f(p)
	return true
}
