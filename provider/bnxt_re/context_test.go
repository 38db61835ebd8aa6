package bnxt_re

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/provider"
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

// The error of a send queue that is too large for the 16 bits of completions says how many requests fit.
func TestLargestSendQueue(t *testing.T) {
	for name, c := range map[string]struct {
		variable, pow2 bool
		cfg            uverbs.QPConfig
		most           int
	}{
		"P5":              {false, false, uverbs.QPConfig{MaxSendSGE: 6}, 65407},
		"P5, old driver":  {false, true, uverbs.QPConfig{MaxSendSGE: 6}, 65407},
		"P7":              {true, false, uverbs.QPConfig{MaxSendSGE: 13}, 65536/15 - 129},
		"P7, inline data": {true, false, uverbs.QPConfig{MaxSendSGE: 1, MaxInline: 96}, 65536/8 - 129},
	} {
		d := &deviceContext{variable: c.variable, pow2: c.pow2}
		d.attr.MaxQpWr, d.attr.MaxSge = 65535, 13
		c.cfg.Type, c.cfg.MaxSendWR = uverbs.RC, 65535
		_, _, err := d.CreateQP(&c.cfg, provider.QPEnv{}, nil)
		if !errors.Is(err, uverbs.ErrInvalid) ||
			!strings.Contains(err.Error(), fmt.Sprintf("MaxSendWR is 65535, and the device supports up to %d:", c.most)) ||
			c.variable != strings.Contains(err.Error(), "with this MaxSendSGE") {
			t.Errorf("%s: %v, want up to %d", name, err, c.most)
		}
		for more := range 2 {
			if size, _ := d.sizeOfSQ(&c.cfg, c.most+more); size > maxRequests != (more == 1) {
				t.Errorf("%s: a send queue of %d requests has size %d", name, c.most+more, size)
			}
		}
	}
}
