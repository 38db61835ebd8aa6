package bnxt_re

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// What the kernel says of a device is checked. The index of a doorbell, which is that of an entry, has 24 bits.
func TestDeviceChecked(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*uapi.BnxtReUctxResp)
		want   error
	}{
		"as it is":       {func(*uapi.BnxtReUctxResp) {}, nil},
		"largest CQs":    {func(l *uapi.BnxtReUctxResp) { l.MaxCqd = 1<<24 - 1 }, nil},
		"too large CQs":  {func(l *uapi.BnxtReUctxResp) { l.MaxCqd = 1 << 24 }, uverbs.ErrABI},
		"no CQs":         {func(l *uapi.BnxtReUctxResp) { l.MaxCqd = 0 }, uverbs.ErrABI},
		"size of a CQE":  {func(l *uapi.BnxtReUctxResp) { l.CqeSz = 64 }, uverbs.ErrABI},
		"size of a page": {func(l *uapi.BnxtReUctxResp) { l.PgSize *= 2 }, uverbs.ErrABI},
		"no chip":        {func(l *uapi.BnxtReUctxResp) { l.CompMask = 0 }, uverbs.ErrNotSupported},
	} {
		d := &deviceContext{limits: uapi.BnxtReUctxResp{CompMask: uapi.BNXT_RE_UCNTX_CMASK_HAVE_CCTX, ChipId0: 0x1760,
			CqeSz: entrySize, PgSize: uint32(unix.Getpagesize()), MaxCqd: 1}}
		c.change(&d.limits)
		if err := d.check(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}
