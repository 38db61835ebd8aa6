package irdma

import (
	"errors"
	"fmt"
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

func init() { driver.Register(irdmaProvider{}) }

// irdmaProvider implements driver.Provider.
type irdmaProvider struct{}

func (irdmaProvider) DriverID() uint32 { return uapi.RDMA_DRIVER_IRDMA }

func (irdmaProvider) ABI() (lowest, highest uint64) { return uapi.IRDMA_ABI_VER, uapi.IRDMA_ABI_VER }

// deviceContext implements driver.Context.
type deviceContext struct {
	dev    *ioctl.Device
	limits uapi.IrdmaAllocUcontextResp
	raw    bool   // the kernel computes the sizes of queues
	minWQ  uint32 // the smallest size of a queue, in requests
	bell   doorbell
	pd     uint32 // for the memory of CQs
	hasPD  bool
	qps    provider.Table[qp]
}

// Open tells the kernel that create commands have the sizes that the program asks for.
func (irdmaProvider) Open(dev *ioctl.Device, get driver.Command) (provider.Context, error) {
	c := &deviceContext{dev: dev}
	req := &uapi.IrdmaAllocUcontextReq{UserspaceVer: uapi.IRDMA_ABI_VER, CompMask: uapi.IRDMA_ALLOC_UCTX_USE_RAW_ATTR}
	if _, err := get(ioctl.BytesOf(req), ioctl.BytesOf(&c.limits)); err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := c.query(); err != nil {
		return nil, err
	}
	if err := c.mapDoorbell(); err != nil {
		return nil, err
	}
	if err := c.allocPD(); err != nil {
		return nil, provider.Join(err, c.Retire())
	}
	return c, nil
}

// Generations of adapters.
const (
	gen1 = 1 // X722
	gen2 = 2 // E810, E82x
)

// minRequests is the smallest size of a queue if the kernel does not say it.
const minRequests = 8

// Bounds of what the kernel says.
const (
	mostQuanta  = 1 << 15 // of a ring: completions have indices of 15 bits
	mostEntries = 1<<20 - 1
	mostSGEs    = 13
	mostInline  = 8 + 7*inlineStep
	clearQuanta = 128 // of a page
)

// check checks what the kernel says of the device.
func (c *deviceContext) check() error {
	const op = "open"
	l := &c.limits
	switch {
	case l.HwRev == 0 || l.HwRev == gen1:
		return provider.NotSupported(op, "the adapter is an X722, which has iWARP only: this library supports the "+
			"driver's generation 2 (E810, E82x)")
	case l.HwRev != gen2:
		return provider.NotSupported(op, fmt.Sprintf("this library supports the driver's generation 2 (E810, E82x), "+
			"and the adapter is of generation %d", l.HwRev))
	}
	c.raw, c.minWQ = l.CompMask&uapi.IRDMA_ALLOC_UCTX_USE_RAW_ATTR != 0, minRequests
	if l.CompMask&uapi.IRDMA_ALLOC_UCTX_MIN_HW_WQ_SIZE != 0 {
		c.minWQ = uint32(l.MinHwWqSize)
	}
	for _, x := range []struct {
		what           string
		v, least, most uint32
	}{{"SGEs of a request", l.MaxHwWqFrags, 1, mostSGEs}, {"SGEs of a READ", l.MaxHwReadSges, 1, l.MaxHwWqFrags},
		{"bytes of inline data", l.MaxHwInline, 0, mostInline}, {"quanta of a send queue", l.MaxHwWqQuanta, 512, mostQuanta},
		{"quanta of a receive queue", l.MaxHwRqQuanta, 64, mostQuanta}, {"entries of a CQ", l.MaxHwCqSize, 4, mostEntries},
		{"quanta of a chunk", uint32(l.MaxHwSqChunk), maxQuanta, clearQuanta},
		{"requests of the smallest queue", c.minWQ, 1, 64}} {
		if x.v < x.least || x.v > x.most {
			return provider.BadABI(op, "%d %s", x.v, x.what)
		}
	}
	if !powerOfTwo(uint32(l.MaxHwSqChunk)) || !powerOfTwo(c.minWQ) {
		return provider.BadABI(op, "a chunk of %d quanta, or a smallest queue of %d requests", l.MaxHwSqChunk, c.minWQ)
	}
	return nil
}

func powerOfTwo(n uint32) bool { return bits.OnesCount32(n) == 1 }

// query refuses a device that has no P_Keys: it is in iWARP mode.
func (c *deviceContext) query() error {
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.WriteEx[uapi.IbUverbsExQueryDeviceResp](cmd, uapi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
		&uapi.IbUverbsExQueryDevice{})
	if err := c.dev.Do(cmd); err != nil {
		return provider.KernelError("query device", "", err)
	}
	if resp.Base.MaxPkeys == 0 {
		return errIWARP("open")
	}
	return nil
}

// errIWARP returns the error of a device in iWARP mode.
func errIWARP(op string) error {
	return provider.NotSupported(op, "the adapter is in iWARP mode, and this library supports RoCEv2: set the parameter "+
		"enable_roce of the interface (devlink dev param set), or roce_ena of the module")
}

// allocPD allocates the PD of the memory of CQs.
func (c *deviceContext) allocPD() error {
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.Write[uapi.IbUverbsAllocPdResp](cmd, uapi.IB_USER_VERBS_CMD_ALLOC_PD, &uapi.IbUverbsAllocPd{})
	cmd.UHW(nil, ioctl.SizeOf[uapi.IrdmaAllocPdResp]())
	if err := c.dev.Do(cmd); err != nil {
		return provider.KernelError("allocate the PD of CQs", "", err)
	}
	c.pd, c.hasPD = resp.PdHandle, true
	return nil
}

// AllocPD implements driver.Context, as do the methods below.
func (c *deviceContext) AllocPD(alloc driver.Command) (driver.Reply, error) {
	return alloc(nil, ioctl.BytesOf(new(uapi.IrdmaAllocPdResp)))
}

// CreateSRQ refuses: the generation has none.
func (c *deviceContext) CreateSRQ(*driver.SRQConfig, driver.Command) (provider.SRQ, driver.Reply, error) {
	return nil, driver.Reply{}, provider.NotSupported("create SRQ", "an E810 has no shared receive queues")
}

// CreateAH stores the device's number of the AH.
func (c *deviceContext) CreateAH(
	_ *uverbs.AHAttr, _ *driver.AHEnv, av *driver.AV, create driver.Command,
) (driver.Reply, error) {
	resp := new(uapi.IrdmaCreateAhResp)
	reply, err := create(nil, ioctl.BytesOf(resp))
	if err == nil && resp.AhId > ahMask {
		err = provider.BadABI("create AH", "AH %d", resp.AhId)
	}
	av[0] = uint64(resp.AhId)
	return reply, err
}

// MaxInline implements driver.Inliner.
func (c *deviceContext) MaxInline() int { return int(c.limits.MaxHwInline) }

// RegMRParts implements driver.MRExtender: memory of a program has type 0.
func (c *deviceContext) RegMRParts() (in []byte, out int) { return programMemory[:], 0 }

var programMemory = [8]byte{}

// Retire implements driver.Context. If a queue has not been destroyed, the kernel deallocates the PD of CQs with the
// descriptor.
func (c *deviceContext) Retire() error {
	err := c.bell.mem.Retire()
	if c.hasPD {
		failure := c.dev.Destroy(uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY,
			uapi.UVERBS_ATTR_DESTROY_PD_HANDLE, c.pd)
		if failure != nil && !errors.Is(failure, unix.EBUSY) {
			err = provider.Join(err, provider.KernelError("deallocate the PD of CQs", "", failure))
		}
		c.hasPD = false
	}
	return err
}
