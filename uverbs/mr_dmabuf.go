package uverbs

import (
	"fmt"
	"os"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// RegDMABuf registers n bytes of a dma-buf, which is memory of another device, from offset off:
// ibv_reg_dmabuf_mr(3). iova is the address of the first byte in work requests. off and iova
// must have the same offset within their pages. The kernel keeps the buffer until the MR is
// closed, so fd may be closed earlier. Bytes returns nil.
//
// On mlx5, register the memory before you create the QPs that receive into it. For QPs of
// processes without such memory the device may leave it to the CPU to store short messages, and
// the CPU cannot access the dma-buf. See package provider/mlx5.
//
// The kernel accepts LocalWrite, RemoteRead, RemoteWrite, RemoteAtomic and RelaxedOrdering for such
// memory. On mlx5, a memory window can be bound to it without MWBindAccess.
//
// RegDMABuf returns [ErrNotSupported] if the device does not support such memory, as rxe does
// not, and [ErrInvalid] for another access.
func (p *PD) RegDMABuf(fd int, off uint64, n int, iova uint64, a Access) (*MR, error) {
	if fd < 0 || n <= 0 || off+uint64(n) < off || iova+uint64(n) < iova {
		return nil, invalid(opDMABuf, p.String(), fmt.Sprintf("descriptor %d, %d bytes from offset %#x, address %#x: "+
			"want an open descriptor and a range", fd, n, off, iova))
	}
	return newRegistration(p).register(func(r *registration) error { return r.regDMABuf(p, fd, off, n, iova, a) })
}

const opDMABuf = "register dma-buf"

func (r *registration) regDMABuf(p *PD, fd int, off uint64, n int, iova uint64, a Access) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_REG_DMABUF_MR)
	cmd.NewHandle(uapi.UVERBS_ATTR_REG_DMABUF_MR_HANDLE)
	cmd.Handle(uapi.UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, p.handle)
	cmd.Uint64(uapi.UVERBS_ATTR_REG_DMABUF_MR_OFFSET, off)
	cmd.Uint64(uapi.UVERBS_ATTR_REG_DMABUF_MR_LENGTH, uint64(n))
	cmd.Uint64(uapi.UVERBS_ATTR_REG_DMABUF_MR_IOVA, iova)
	cmd.Uint32(uapi.UVERBS_ATTR_REG_DMABUF_MR_FD, uint32(fd))
	cmd.Uint32(uapi.UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, r.ctx.accessFlags(a))
	lkey := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY)
	rkey := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY)
	if err := r.ctx.dev.Do(cmd); err != nil {
		return p.explainDMABuf(off, iova, a, err)
	}
	r.handle = cmd.Made(uapi.UVERBS_ATTR_REG_DMABUF_MR_HANDLE)
	r.number = r.handle
	r.view = &mrView{foreign: true, addr: iova, size: n, room: int64(n), access: a, onDemand: a&OnDemand != 0,
		lkey: *lkey, rkey: *rkey}
	return nil
}

func (p *PD) explainDMABuf(off, iova uint64, a Access, err error) error {
	const accepted = LocalWrite | RemoteRead | RemoteWrite | RemoteAtomic | RelaxedOrdering
	page := uint64(os.Getpagesize())
	detail := ""
	switch errno := errnoOf(err); {
	case errno == unix.EINVAL && a&^accepted != 0:
		detail = fmt.Sprintf("a dma-buf cannot have the access %v: leave it out", a&^accepted)
	case notSupported(err):
		detail = "the device or its driver accepts no memory of other devices"
	case errno == unix.EBADF || errno == unix.EINVAL && off%page == iova%page && a&(RemoteWrite|RemoteAtomic) == 0:
		detail = "the descriptor is not that of a dma-buf, or the range is not inside the buffer"
	case errno == unix.EINVAL && off%page != iova%page:
		detail = fmt.Sprintf("the address %#x lies %d bytes into its page, the offset %d: the two must be the same",
			iova, iova%page, off%page)
	case errno == unix.EINVAL:
		detail = "RemoteWrite and RemoteAtomic need LocalWrite beside them"
	}
	return p.ctx.wrap(opDMABuf, p.String(), err, detail)
}
