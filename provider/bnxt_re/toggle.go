package bnxt_re

import (
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A toggle is the kernel's counter of the events of a CQ or SRQ, which a doorbell that arms it contains. Without a
// page, as on P5, it is 0.
type toggle struct{ page *provider.Mapping }

const toggleMask = 3

// value returns the field of the doorbell.
func (t *toggle) value() uint32 {
	if t.page == nil {
		return 0
	}
	return uint32(atomic.LoadUint64(&wordsOf(t.page, 0, 1)[0])) & toggleMask
}

// mapToggle maps the page of the CQ or SRQ with a number. The kernel's object is needed only for that.
func (c *deviceContext) mapToggle(kind uint64, number uint32) (t toggle, err error) {
	const op = "map the counter of events"
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.BNXT_RE_OBJECT_GET_TOGGLE_MEM, uapi.BNXT_RE_METHOD_GET_TOGGLE_MEM)
	cmd.NewHandle(uapi.BNXT_RE_TOGGLE_MEM_HANDLE)
	cmd.Uint64(uapi.BNXT_RE_TOGGLE_MEM_TYPE, kind)
	cmd.Uint32(uapi.BNXT_RE_TOGGLE_MEM_RES_ID, number)
	page := ioctl.OutOf[uint64](cmd, uapi.BNXT_RE_TOGGLE_MEM_MMAP_PAGE)
	offset := ioctl.OutOf[uint32](cmd, uapi.BNXT_RE_TOGGLE_MEM_MMAP_OFFSET)
	length := ioctl.OutOf[uint32](cmd, uapi.BNXT_RE_TOGGLE_MEM_MMAP_LENGTH)
	if err := c.dev.Do(cmd); err != nil {
		return t, provider.KernelError(op, "", err)
	}
	handle := cmd.Made(uapi.BNXT_RE_TOGGLE_MEM_HANDLE)
	if *offset != 0 {
		err = provider.BadABI(op, "a counter at %d of a page", *offset)
	} else {
		t.page, err = c.mapToRead(op, *page, *length)
	}
	return t, provider.Join(err, c.destroy(uapi.BNXT_RE_OBJECT_GET_TOGGLE_MEM, uapi.BNXT_RE_METHOD_RELEASE_TOGGLE_MEM,
		uapi.BNXT_RE_RELEASE_TOGGLE_MEM_HANDLE, handle))
}
