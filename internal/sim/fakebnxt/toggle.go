package fakebnxt

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/devfile"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A toggle is the counter of the events of a CQ or SRQ, modulo four. The driver copies it to a page that the program
// maps, and the device ignores a doorbell that arms with another one.
type toggle struct {
	count uint32
	page  devfile.Ring // of a device without such counters, it has no bytes
}

// newToggle allocates the page.
func (k *kernel) newToggle() (t toggle, err error) {
	if k.dev.fabric.cfg.Toggle {
		t.page, err = k.File.NewRing(uint64(unix.Getpagesize()))
	}
	return t, err
}

// event counts an event.
func (t *toggle) event() {
	if t.page.Bytes != nil {
		t.count = (t.count + 1) % 4
		binary.LittleEndian.PutUint32(t.page.Bytes, t.count)
	}
}

// getToggle is bnxt_re's method GET_TOGGLE_MEM.
func (k *kernel) getToggle(c ioctl.Call) error {
	number := uint32(call.Num(c, uapi.BNXT_RE_TOGGLE_MEM_RES_ID))
	var t *toggle
	switch q, s := k.dev.cqs[number], k.dev.srqs[number]; call.Num(c, uapi.BNXT_RE_TOGGLE_MEM_TYPE) {
	case uapi.BNXT_RE_CQ_TOGGLE_MEM:
		if q != nil && q.kernel == k {
			t = &q.toggle
		}
	case uapi.BNXT_RE_SRQ_TOGGLE_MEM:
		if s != nil && s.kernel == k {
			t = &s.toggle
		}
	default:
		return unix.EOPNOTSUPP
	}
	if t == nil || t.page.Bytes == nil {
		return unix.EINVAL
	}
	length, zero := uint32(len(t.page.Bytes)), uint32(0)
	call.Reply(c, uapi.BNXT_RE_TOGGLE_MEM_MMAP_PAGE, &t.page.Key)
	call.Reply(c, uapi.BNXT_RE_TOGGLE_MEM_MMAP_LENGTH, &length)
	call.Reply(c, uapi.BNXT_RE_TOGGLE_MEM_MMAP_OFFSET, &zero)
	return nil
}
