package mlx5

import (
	"encoding/binary"
	"math/bits"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/mmio"
)

// A deviceMemory implements driver.DM: a write-combining mapping of memory of the adapter (MEMIC).
type deviceMemory struct {
	ctx    *deviceContext
	handle uint32
	mem    *provider.Mapping
	words  []uint32 // the memory, from its first byte on
	ops    memoryOps
}

// AllocDM implements driver.DMs.
func (c *deviceContext) AllocDM(n, align int) (driver.DM, uint32, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_DM, uapi.UVERBS_METHOD_DM_ALLOC)
	cmd.NewHandle(uapi.UVERBS_ATTR_ALLOC_DM_HANDLE)
	cmd.Uint64(uapi.UVERBS_ATTR_ALLOC_DM_LENGTH, uint64(n))
	cmd.Uint32(uapi.UVERBS_ATTR_ALLOC_DM_ALIGNMENT, uint32(bits.Len(uint(max(align, 1)))-1))
	start := ioctl.OutOf[uint64](cmd, uapi.MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET)
	page := ioctl.OutOf[uint16](cmd, uapi.MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX)
	if err := c.dev.Do(cmd); err != nil {
		return nil, 0, err
	}
	handle := cmd.Made(uapi.UVERBS_ATTR_ALLOC_DM_HANDLE)
	mem, b, err := c.mapDM(*start, *page, n)
	if err != nil {
		return nil, 0, provider.Join(err, c.freeDM(handle))
	}
	return &deviceMemory{ctx: c, handle: handle, mem: mem, words: uint32sOf(b)}, handle, nil
}

// ImportDM implements driver.DMs.
func (c *deviceContext) ImportDM(handle uint32) (driver.DM, int, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_DM, uapi.MLX5_IB_METHOD_DM_QUERY)
	cmd.Handle(uapi.MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE, handle)
	start := ioctl.OutOf[uint64](cmd, uapi.MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET)
	page := ioctl.OutOf[uint16](cmd, uapi.MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX)
	length := ioctl.OutOf[uint64](cmd, uapi.MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH)
	if err := c.dev.Do(cmd); err != nil {
		return nil, 0, err
	}
	if *length == 0 || *length > maxDeviceMemory {
		return nil, 0, badABI("%d bytes of device memory", *length)
	}
	n := int(*length)
	mem, b, err := c.mapDM(*start, *page, n)
	if err != nil {
		return nil, 0, err
	}
	return &deviceMemory{ctx: c, handle: handle, mem: mem, words: uint32sOf(b)}, n, nil
}

// maxDeviceMemory is larger than the memory of any device, and fits an int.
const maxDeviceMemory = 1 << 30

// mapDM maps n bytes of device memory, b, which begin at an offset of the device.
func (c *deviceContext) mapDM(start uint64, page uint16, n int) (mem *provider.Mapping, b []byte, err error) {
	in := int(start % uint64(unix.Getpagesize()))
	if mem, err = provider.Map(c.dev, deviceMemoryOffset(page), pages(in+n)); err != nil {
		return nil, nil, kernelError("map device memory", c.dev.Name(), err, "")
	}
	return mem, mem.Bytes()[in:][:n], nil
}

func (c *deviceContext) freeDM(handle uint32) error {
	return c.dev.Destroy(uapi.UVERBS_OBJECT_DM, uapi.UVERBS_METHOD_DM_FREE, uapi.UVERBS_ATTR_FREE_DM_HANDLE, handle)
}

// deviceMemoryOffset returns the offset at which the kernel maps device memory. The index has 16
// bits, and the bits of the command divide it.
func deviceMemoryOffset(index uint16) int64 {
	const low = 1<<mmapCommandShift - 1
	return mmapOffset(uapi.MLX5_IB_MMAP_DEVICE_MEM, int(index)&low|int(index)>>mmapCommandShift<<(2*mmapCommandShift))
}

// ReadAt implements driver.DM. The device permits accesses of 4 bytes.
func (m *deviceMemory) ReadAt(p []byte, off int) {
	for i := range len(p) / 4 {
		binary.NativeEndian.PutUint32(p[4*i:], atomic.LoadUint32(&m.words[off/4+i]))
	}
	runtime.KeepAlive(m) // and with it the mapping: see package provider
}

// WriteAt implements driver.DM.
func (m *deviceMemory) WriteAt(p []byte, off int) {
	for i := range len(p) / 4 {
		mmio.Store32(&m.words[off/4+i], binary.NativeEndian.Uint32(p[4*i:]))
	}
	mmio.FlushWrites() // before the doorbell of a request that reads the bytes
	runtime.KeepAlive(m)
}

// Retire implements driver.DM.
func (m *deviceMemory) Retire() error { return provider.Join(m.ops.retire(), m.mem.Retire()) }
