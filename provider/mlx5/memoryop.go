package mlx5

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/uverbs"
)

// A DMOp is an atomic operation on device memory that the device executes when the host accesses
// the memory at the operation's address. Devices have others than these, by their number.
type DMOp uint8

// The operations.
const (
	DMIncrement  DMOp = 0 // a store adds its value
	DMTestAndSet DMOp = 1 // a load returns the value and sets it to 1
)

// A DMOpAddr is device memory at the address of an operation. Any number of goroutines may use it:
// an access is one operation of the device, which is atomic.
type DMOpAddr struct {
	dm  *deviceMemory
	op  DMOp
	mem *provider.Mapping
	b   []byte
}

// MapDMOp maps device memory for an operation: mlx5dv_dm_map_op_addr(3). It is unmapped when the
// memory is closed.
//
// MapDMOp returns an error that matches [uverbs.ErrNotSupported] if the device or the kernel lacks
// the operation or the memory is another provider's, [uverbs.ErrInvalid] if it is nil, and
// [uverbs.ErrClosed] after its Close.
func MapDMOp(dm *uverbs.DM, op DMOp) (*DMOpAddr, error) {
	if dm == nil {
		return nil, invalid(opMapDM, "the memory is nil")
	}
	var a *DMOpAddr
	err := driver.WithDM(dm, opMapDM, func(impl driver.DM) (err error) {
		m, ok := impl.(*deviceMemory)
		if !ok {
			return notSupported(opMapDM, "the memory is not of an mlx5 device")
		}
		a, err = m.mapOp(op)
		return err
	})
	return a, err
}

const opMapDM = "map an operation on device memory"

func (m *deviceMemory) mapOp(op DMOp) (*DMOpAddr, error) {
	m.ops.mu.Lock()
	defer m.ops.mu.Unlock()
	if a := m.ops.addrs[op]; a != nil {
		return a, nil
	}
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_DM, uapi.MLX5_IB_METHOD_DM_MAP_OP_ADDR)
	cmd.Handle(uapi.MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE, m.handle)
	cmd.In(uapi.MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP, []byte{byte(op)})
	start := ioctl.OutOf[uint64](cmd, uapi.MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET)
	page := ioctl.OutOf[uint16](cmd, uapi.MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX)
	if err := m.ctx.dev.Do(cmd); err != nil {
		if err == unix.EOPNOTSUPP {
			err = kernelError(opMapDM, "", err, fmt.Sprintf("the device lacks operation %d", op))
		}
		return nil, err
	}
	mem, b, err := m.ctx.mapDM(*start, *page, 4*len(m.words))
	if err != nil {
		return nil, err
	}
	a := &DMOpAddr{dm: m, op: op, mem: mem, b: b}
	if m.ops.addrs == nil {
		m.ops.addrs = map[DMOp]*DMOpAddr{}
	}
	m.ops.addrs[op] = a
	return a, nil
}

// memoryOps are the mapped operations of device memory.
type memoryOps struct {
	mu      sync.Mutex
	addrs   map[DMOp]*DMOpAddr
	retired bool
}

// retire replaces the mappings with zero pages.
func (o *memoryOps) retire() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.retired = true
	var errs []error
	for _, op := range slices.Sorted(maps.Keys(o.addrs)) { // the kernel sends the device a command for each
		errs = append(errs, o.addrs[op].mem.Retire())
	}
	return provider.Join(errs...)
}

// Load loads p with one access of 1, 2, 4 or 8 bytes. The device determines which of these sizes
// the operation has; one byte is common. off must be a multiple of the size.
//
// Load returns [uverbs.ErrInvalid] if the size or off is not, or the range is not within the memory,
// and [uverbs.ErrClosed] after Close of the memory. After the removal of the device, loads return
// zeros.
func (a *DMOpAddr) Load(p []byte, off int64) error { return a.access("load", p, off, loadOnce) }

// Store stores p with one access. The errors are those of Load.
func (a *DMOpAddr) Store(p []byte, off int64) error {
	return a.access("store", p, off, func(p, b []byte) {
		storeOnce(b, p)
		mmio.FlushWrites() // two stores to a byte must not become one
	})
}

// access calls f with p and as much of the memory.
func (a *DMOpAddr) access(what string, p []byte, off int64, f func(p, b []byte)) error {
	n := int64(len(p))
	if n == 0 || n > 8 || n&(n-1) != 0 || off < 0 || off%n != 0 || off > int64(len(a.b))-n {
		return &uverbs.Error{Op: what + " at an operation's address", Object: a.dm.ctx.dev.Name(), Kind: uverbs.ErrInvalid,
			Errno: unix.EINVAL, Detail: fmt.Sprintf(
				"%d bytes at %d of %d: the size is 1, 2, 4 or 8, and the offset a multiple of it", n, off, len(a.b))}
	}
	a.dm.ops.mu.Lock()
	defer a.dm.ops.mu.Unlock()
	if a.dm.ops.retired {
		return &uverbs.Error{Op: what + " at an operation's address", Object: a.dm.ctx.dev.Name(), Kind: uverbs.ErrClosed,
			Errno: unix.EBADF, Detail: "the device memory has been closed"}
	}
	f(p, a.b[off:][:n])
	runtime.KeepAlive(a) // and with it the mapping: see package provider
	return nil
}
