package irdma

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/mmio"
)

// A doorbell has the registers that all queues of a Context share.
type doorbell struct {
	sq, cq *uint32 // new requests of a QP; arm a CQ
	mem    *provider.Mapping

	// With the kernel in memory.
	bells ioctl.Doorbells
	posts ioctl.Posts
	page  uint32
}

// cqAt is the offset of the register that arms CQs.
const cqAt = 64

// numberMask bounds the numbers of QPs and CQs.
const numberMask = 1<<24 - 1

func (c *deviceContext) mapDoorbell() error {
	const op = "map the doorbell page"
	page := unix.Getpagesize()
	m, err := provider.Map(c.dev, int64(c.limits.DbMmapKey), page)
	if err != nil {
		return provider.KernelError(op, "", err)
	}
	c.bell = doorbell{sq: registerAt(m, 0), cq: registerAt(m, cqAt), mem: m, bells: c.dev.Doorbells(),
		page: uint32(c.limits.DbMmapKey / uint64(page))}
	c.bell.posts, _ = c.bell.bells.(ioctl.Posts)
	return nil
}

// ringSQ says that a QP has new requests.
func (d *doorbell) ringSQ(number uint32) { d.store(d.sq, 0, number) }

// ringCQ arms a CQ as its shadow area says.
func (d *doorbell) ringCQ(number uint32) { d.store(d.cq, cqAt, number) }

func (d *doorbell) store(to *uint32, offset, v uint32) {
	mmio.ToDevice()
	mmio.Store32(to, v)
	if d.bells != nil {
		d.bells.Doorbell(d.page, offset, binary.LittleEndian.AppendUint32(nil, v))
	}
}
