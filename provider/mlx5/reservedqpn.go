package mlx5

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/firmware"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/uverbs"
)

// A ReservedQPN is a QP number of the device that no QP has. A program that connects by rdma_cm and has one DCT for
// many connections gives one to each connection in place of the DCT's number, because rdma_cm does not accept a number
// twice.
type ReservedQPN struct {
	qpn   uint32
	block *reservedBlock
	from  *reservedQPNs
	done  bool // guarded by from.mu
}

// reservedQPNs has the blocks of reserved numbers of a context. A block is an object of DevX.
type reservedQPNs struct {
	mu   sync.Mutex
	last *reservedBlock // of which numbers are taken, in ascending order
}

// A reservedBlock is a block of numbers. It is destroyed when all numbers were taken and returned: a number is not used
// again before, so that peers do not take a new connection for an old one. The kernel destroys the others with the
// context, which may be closed while it has some.
type reservedBlock struct {
	dev         *ioctl.Device
	first       uint32
	handle      uint32
	taken, size uint32
	returned    uint32
}

// The commands of general objects, the type of reserved QP numbers, and where the fields are.
const (
	opCreateGeneral = 0xa00
	generalSize     = 16
	generalType     = 6
	generalRange    = 12 // log2 of the number of QPNs, 5 bits
	generalNumber   = 8  // of the reply
	objectReserved  = 0x2c
	objectCaps      = 0x10 + 0x80          // general_obj_types, 64 bits
	reservedLogByte = 0x10 + 0x12          // log_reserved_qpn_granularity of the capabilities 2
	reservedLogMask = 0x1f                 // its bits
	currentCap2     = 0x20<<1 | currentCap // op_mod
	opAllocReserved = "allocate a reserved QP number"
)

// AllocReservedQPN allocates a QP number that no QP has: mlx5dv_reserved_qpn_alloc(3).
//
// AllocReservedQPN returns an error that matches [uverbs.ErrNotSupported] if the device, its firmware or the kernel has
// no such numbers, [uverbs.ErrInvalid] if the context is nil, and [uverbs.ErrClosed] after its Close.
func AllocReservedQPN(ctx *uverbs.Context) (n *ReservedQPN, err error) {
	err = withContext(ctx, opAllocReserved, func(c *deviceContext) error {
		size, err := c.reservedSize()
		if err != nil {
			return err
		}
		n, err = c.reserved.take(c.dev, size)
		return err
	})
	return n, err
}

// QPN returns the number.
func (n *ReservedQPN) QPN() uint32 { return n.qpn }

// Close returns the number to the device: mlx5dv_reserved_qpn_dealloc(3). It is idempotent. Close of the Context
// returns all numbers.
func (n *ReservedQPN) Close() error {
	n.from.mu.Lock()
	defer n.from.mu.Unlock()
	if n.done {
		return nil
	}
	b := n.block
	if b.returned+1 == b.size {
		if err := firmware.Destroy(b.dev, b.handle); err != nil && !gone(err) {
			return kernelError("return a reserved QP number", b.dev.Name(), err, "")
		}
		if n.from.last == b {
			n.from.last = nil
		}
	}
	b.returned++
	n.done = true
	return nil
}

// take takes the next number of the last block, or the first of a new block with size numbers.
func (r *reservedQPNs) take(dev *ioctl.Device, size uint32) (*ReservedQPN, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil || r.last.taken == r.last.size {
		b := &reservedBlock{dev: dev, size: size}
		if err := b.create(); err != nil {
			return nil, err
		}
		r.last = b
	}
	b := r.last
	n := &ReservedQPN{qpn: b.first + b.taken, block: b, from: r}
	b.taken++
	return n, nil
}

// reservedSize returns how many numbers a block has.
func (c *deviceContext) reservedSize() (uint32, error) {
	general, err := c.generalCaps(opAllocReserved)
	if err != nil {
		return 0, err
	}
	if binary.BigEndian.Uint64(general[objectCaps:])>>objectReserved&1 == 0 {
		return 0, notSupported(opAllocReserved, "the device or its firmware has none")
	}
	more, err := c.queryCaps(opAllocReserved, currentCap2)
	if err != nil {
		return 0, err
	}
	return 1 << (more[reservedLogByte] & reservedLogMask), nil
}

func (b *reservedBlock) create() error {
	in, out := make([]byte, generalSize), make([]byte, generalSize)
	binary.BigEndian.PutUint16(in, opCreateGeneral)
	binary.BigEndian.PutUint16(in[generalType:], objectReserved)
	in[generalRange] = log2(int(b.size))
	handle, err := firmware.Create(b.dev, opAllocReserved, in, out)
	b.handle, b.first = handle, binary.BigEndian.Uint32(out[generalNumber:])
	return err
}

// gone reports whether an object cannot be destroyed because the context is closed or the device is removed. The kernel
// has destroyed it then.
func gone(err error) bool { return errors.Is(err, os.ErrClosed) || errors.Is(err, unix.EIO) }
