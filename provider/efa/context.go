package efa

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

func init() { driver.Register(efaProvider{}) }

// efaProvider implements driver.Provider.
type efaProvider struct{}

func (efaProvider) DriverID() uint32 { return uapi.RDMA_DRIVER_EFA }

func (efaProvider) ABI() (lowest, highest uint64) {
	return uapi.EFA_UVERBS_ABI_VERSION, uapi.EFA_UVERBS_ABI_VERSION
}

// Open tells the kernel that this package heeds the limits of batches and of the size of send queues.
func (efaProvider) Open(dev *ioctl.Device, get driver.Command) (provider.Context, error) {
	c := &deviceContext{dev: dev, bells: dev.Doorbells()}
	req := &uapi.EfaIbvAllocUcontextCmd{SupportedCaps: uapi.EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH |
		uapi.EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR}
	if _, err := get(ioctl.BytesOf(req), ioctl.BytesOf(&c.limits)); err != nil {
		return nil, err
	}
	if c.limits.CmdsSuppUdataMask&uapi.EFA_USER_CMDS_SUPP_UDATA_CREATE_AH == 0 {
		return nil, &uverbs.Error{Op: "open", Kind: uverbs.ErrNotSupported, Errno: unix.EOPNOTSUPP,
			Detail: "the kernel's efa driver does not number address handles, which every request needs: use Linux 5.2 or newer"}
	}
	if n := c.limits.SubCqsPerCq; n == 0 || n > maxSubs {
		return nil, provider.BadABI("open", "%d rings in a CQ", n)
	}
	if err := c.query(); err != nil {
		return nil, err
	}
	return c, nil
}

// maxSubs bounds the rings of a CQ.
const maxSubs = 64

// deviceContext implements driver.Context.
type deviceContext struct {
	dev     *ioctl.Device
	bells   ioctl.Doorbells // is notified of stores to registers; nil with a real device
	limits  uapi.EfaIbvAllocUcontextResp
	attr    uapi.EfaIbvExQueryDeviceResp
	rdmaSGE int // of a READ or WRITE
	qps     table
}

// query asks for the attributes of the device. A kernel that does not know them leaves them zero.
func (c *deviceContext) query() error {
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.WriteEx[uapi.IbUverbsExQueryDeviceResp](cmd, uapi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
		&uapi.IbUverbsExQueryDevice{})
	var ofDriver []byte
	if c.limits.CmdsSuppUdataMask&uapi.EFA_USER_CMDS_SUPP_UDATA_QUERY_DEVICE != 0 {
		ofDriver = cmd.UHW(nil, ioctl.SizeOf[uapi.EfaIbvExQueryDeviceResp]())
	}
	if err := c.dev.Do(cmd); err != nil {
		return provider.KernelError("query device", "", err)
	}
	copy(ioctl.BytesOf(&c.attr), ofDriver)
	c.rdmaSGE = int(min(resp.Base.MaxSgeRd, maxRDMASGE))
	return nil
}

func (c *deviceContext) has(capability uint32) bool { return c.attr.DeviceCaps&capability != 0 }

// SupportsSRD implements driver.SRDs.
func (c *deviceContext) SupportsSRD() {}

// AllocPD implements driver.Context.
func (c *deviceContext) AllocPD(alloc driver.Command) (driver.Reply, error) {
	return alloc(nil, ioctl.BytesOf(new(uapi.EfaIbvAllocPdResp)))
}

// CreateAH stores the device's number of the AH.
func (c *deviceContext) CreateAH(
	attr *uverbs.AHAttr, _ *driver.AHEnv, av *driver.AV, create driver.Command,
) (driver.Reply, error) {
	if !attr.IsGlobal {
		return driver.Reply{}, &uverbs.Error{Op: "create AH", Kind: uverbs.ErrInvalid, Errno: unix.EINVAL,
			Detail: "IsGlobal is false, and an address on an EFA needs a GID: set it, and DGID"}
	}
	resp := new(uapi.EfaIbvCreateAhResp)
	reply, err := create(nil, ioctl.BytesOf(resp))
	av[0] = uint64(resp.EfaAddressHandle)
	return reply, err
}

// CreateSRQ implements driver.Context.
func (c *deviceContext) CreateSRQ(*driver.SRQConfig, driver.Command) (provider.SRQ, driver.Reply, error) {
	return nil, driver.Reply{}, &uverbs.Error{Op: "create SRQ", Kind: uverbs.ErrNotSupported,
		Errno: unix.EOPNOTSUPP, Detail: "an EFA has no shared receive queues: post receives to the QPs"}
}

// Retire does nothing: registers belong to queues.
func (c *deviceContext) Retire() error { return nil }
