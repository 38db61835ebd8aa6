package ether

import (
	_ "unsafe" // for go:linkname

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// newContext is uverbs.newContext. It creates a Context on a fake kernel, which the public API cannot do.
//
//go:linkname newContext github.com/goverbs/goverbs/uverbs.newContext
func newContext(dev *ioctl.Device, device uverbs.Device, p provider.Provider) (*uverbs.Context, error)

// markDeviceGone is uverbs.Context.markDeviceGone.
//
//go:linkname markDeviceGone github.com/goverbs/goverbs/uverbs.(*Context).markDeviceGone
func markDeviceGone(c *uverbs.Context)
