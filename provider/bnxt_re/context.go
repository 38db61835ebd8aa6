package bnxt_re

import (
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

func init() { driver.Register(bnxtProvider{}) }

// bnxtProvider implements driver.Provider.
type bnxtProvider struct{}

func (bnxtProvider) DriverID() uint32 { return uapi.RDMA_DRIVER_BNXT_RE }

func (bnxtProvider) ABI() (lowest, highest uint64) {
	return uapi.BNXT_RE_ABI_VERSION, uapi.BNXT_RE_ABI_VERSION
}

// deviceContext implements driver.Context.
type deviceContext struct {
	dev      *ioctl.Device
	limits   uapi.BnxtReUctxResp
	attr     uapi.IbUverbsQueryDeviceResp
	variable bool // requests of the send queues have different sizes
	msn      bool // the table of PSNs is by message
	pow2     bool // sizes of queues are powers of two
	bell     doorbell
	shared   *provider.Mapping // a page in which the kernel stores the numbers of AHs
	ahs      sync.Mutex        // of its contents
	qps      provider.Table[qp]
}

// Open tells the kernel that this package supports sizes that are no powers of two, and requests of different sizes.
func (bnxtProvider) Open(dev *ioctl.Device, get driver.Command) (provider.Context, error) {
	c := &deviceContext{dev: dev}
	req := &uapi.BnxtReUctxReq{CompMask: uapi.BNXT_RE_COMP_MASK_REQ_UCNTX_POW2_SUPPORT |
		uapi.BNXT_RE_COMP_MASK_REQ_UCNTX_VAR_WQE_SUPPORT}
	if _, err := get(ioctl.BytesOf(req), ioctl.BytesOf(&c.limits)); err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := c.query(); err != nil {
		return nil, err
	}
	var err error
	if c.shared, err = provider.Map(dev, 0, unix.Getpagesize()); err != nil {
		return nil, provider.KernelError("map the page shared with the kernel", "", err)
	}
	if err = c.mapDoorbell(); err == nil && c.limits.CompMask&uapi.BNXT_RE_UCNTX_CMASK_DBR_PACING_ENABLED != 0 {
		c.bell.pacer, err = c.newPacer()
	}
	if err != nil {
		return nil, provider.Join(err, c.Retire())
	}
	return c, nil
}

// The chips whose rings this package knows, by number.
var chips = map[uint32]bool{0x1750: true, 0x1751: true, 0x1752: true, // P5: BCM57508, BCM57504, BCM57502
	0xd818: true, 0x1760: true} // P7: BCM58818, BCM57608

// check checks what the kernel says of the device.
func (c *deviceContext) check() error {
	l := &c.limits
	flag := func(f uint64) bool { return l.CompMask&f != 0 }
	chip := l.ChipId0 & 0xffff
	switch {
	case !flag(uapi.BNXT_RE_UCNTX_CMASK_HAVE_CCTX) || !chips[chip]:
		return provider.NotSupported("open", fmt.Sprintf("this library supports Broadcom adapters of the generations P5 and "+
			"P7 (BCM57502, BCM57504, BCM57508, BCM57608, BCM58818), and this one is another: chip %#x", chip))
	case l.CqeSz != entrySize:
		return provider.BadABI("open", "entries of CQs with %d bytes", l.CqeSz)
	case l.PgSize != uint32(unix.Getpagesize()):
		return provider.BadABI("open", "pages of %d bytes", l.PgSize)
	case l.MaxCqd < 1 || l.MaxCqd > indexMask: // a ring has one entry more
		return provider.BadABI("open", "CQs of %d entries", l.MaxCqd)
	}
	c.variable = flag(uapi.BNXT_RE_UCNTX_CMASK_HAVE_MODE) && l.Mode == uapi.BNXT_QPLIB_WQE_MODE_VARIABLE
	c.msn = flag(uapi.BNXT_RE_UCNTX_CMASK_MSN_TABLE_ENABLED)
	c.pow2 = !flag(uapi.BNXT_RE_UCNTX_CMASK_POW2_DISABLED)
	return nil
}

// query asks for the limits of the device.
func (c *deviceContext) query() error {
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.WriteEx[uapi.IbUverbsExQueryDeviceResp](cmd, uapi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
		&uapi.IbUverbsExQueryDevice{})
	if err := c.dev.Do(cmd); err != nil {
		return provider.KernelError("query device", "", err)
	}
	c.attr = resp.Base
	return nil
}

// AllocPD implements driver.Context.
func (c *deviceContext) AllocPD(alloc driver.Command) (driver.Reply, error) {
	return alloc(nil, ioctl.BytesOf(new(uapi.BnxtRePdResp)))
}

// CreateAH stores the device's number of the AH, which the kernel writes to the shared page.
func (c *deviceContext) CreateAH(
	_ *uverbs.AHAttr, _ *driver.AHEnv, av *driver.AV, create driver.Command,
) (driver.Reply, error) {
	c.ahs.Lock()
	defer c.ahs.Unlock()
	reply, err := create(nil, nil)
	if err == nil {
		word := &wordsOf(c.shared, uapi.BNXT_RE_AVID_OFFT, 1)[0]
		av[0] = atomic.LoadUint64(word) & numberMask
	}
	return reply, err
}

// MaxInline implements driver.Inliner.
func (c *deviceContext) MaxInline() int { return maxInline }

// Retire implements driver.Context.
func (c *deviceContext) Retire() error {
	return provider.Join(c.shared.Retire(), c.bell.mem.Retire(), c.bell.pacer.retire())
}

// ringMemory returns n bytes for a ring.
func (c *deviceContext) ringMemory(memory driver.Memory, op string, n int) (*provider.Mapping, error) {
	n = pages(n)
	b, free, err := memory.Get(op, n)
	if err != nil {
		return nil, err
	}
	if b != nil {
		return provider.MappingOf(b, free), nil
	}
	m, err := provider.Anon(n)
	if err != nil {
		return nil, provider.KernelError(op, "", err)
	}
	return m, nil
}

// pages rounds n bytes up to pages.
func pages(n int) int { return (n + unix.Getpagesize() - 1) &^ (unix.Getpagesize() - 1) }
