package mlx5

import (
	"errors"
	"math/bits"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

func init() { uverbs.RegisterProvider(driver{}) }

// driver implements uverbs.Provider.
type driver struct{}

func (driver) DriverID() uint32 { return uapi.RDMA_DRIVER_MLX5 }

func (driver) ABI() (lowest, highest uint64) {
	return uapi.MLX5_IB_UVERBS_ABI_VERSION, uapi.MLX5_IB_UVERBS_ABI_VERSION
}

func (driver) Open(dev *ioctl.Device, get uverbs.ProviderCommand) (uverbs.ProviderContext, error) {
	set, err := environment()
	if err != nil {
		return nil, err
	}
	return openContext(dev, get, set)
}

// limits are what the device takes.
type limits struct {
	sqDesc   int // bytes of a send request
	rqDesc   int // and of a receive
	sqBlocks int // of a send queue
	recvWR   int
	srqWR    int
	header   int // bytes of a frame that must be in its request
}

// deviceContext implements uverbs.ProviderContext.
type deviceContext struct {
	dev     *ioctl.Device
	set     settings
	limits  limits
	indexed bool   // CQEs have an index of ours, not the device's numbers
	dmac    bool   // CREATE_AH answers with the MAC address
	dynamic bool   // we make the register pages
	ece     bool   // QPs have options of the vendor's
	null    uint32 // key of memory that there is not; 0: none

	memory  *uverbs.ProviderMRs
	uars    uars
	records records
	targets table // by index, or by QPN
	srqs    table // by SRQN, unless indexed
	clock   clock
	wall    wallClock

	mu    sync.Mutex
	ports map[uint8]portKind
}

// maxSegments is the size of the largest send request.
const maxSegments = 63

const maxCQEVersion = 1

func openContext(dev *ioctl.Device, get uverbs.ProviderCommand, set settings) (*deviceContext, error) {
	resp, err := getContext(get, set)
	if err != nil {
		return nil, err
	}
	return setUp(dev, resp, set)
}

// setUp makes the vendor's part of a context of which the kernel says resp.
func setUp(dev *ioctl.Device, resp *uapi.Mlx5IbAllocUcontextResp, set settings) (_ *deviceContext, err error) {
	c := &deviceContext{dev: dev, set: set}
	if err := c.learn(resp); err != nil {
		return nil, err
	}
	err = c.uars.open(int(resp.TotBfregs))
	if err == nil {
		err = c.clock.open(dev, resp)
	}
	if err == nil {
		err = c.wall.open(dev, resp)
	}
	if err != nil {
		return nil, errors.Join(err, c.Retire())
	}
	return c, nil
}

// getContext asks for the context, and less and less of it: older kernels refuse
// a request that is longer than the one they know.
func getContext(get uverbs.ProviderCommand, set settings) (*uapi.Mlx5IbAllocUcontextResp, error) {
	req := &uapi.Mlx5IbAllocUcontextReqV2{
		TotalNumBfregs: uint32(set.registers), NumLowLatencyBfregs: uint32(min(set.owned, set.registers-1)),
		MaxCqeVersion: maxCQEVersion, LibCaps: uapi.MLX5_LIB_CAP_4K_UAR | uapi.MLX5_LIB_CAP_DYN_UAR}
	full := ioctl.BytesOf(req)
	var first error
	for _, n := range []int{len(full), beforeLibCaps, beforeCQEVersion} {
		resp := new(uapi.Mlx5IbAllocUcontextResp)
		_, err := get(full[:n], ioctl.BytesOf(resp))
		if err == nil {
			return resp, nil
		}
		if first == nil {
			first = err
		}
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.EOPNOTSUPP) {
			break // it is not the length
		}
	}
	return nil, first
}

// Sizes that the request had before it grew.
const (
	beforeLibCaps    = 24
	beforeCQEVersion = 16
)

// learn takes over what the kernel says of the device, after a look at what the
// rest relies on.
func (c *deviceContext) learn(r *uapi.Mlx5IbAllocUcontextResp) error {
	if r.CqeVersion > maxCQEVersion {
		return badABI("CQE version %d", r.CqeVersion)
	}
	c.indexed = r.CqeVersion == maxCQEVersion
	c.dmac = r.CmdsSuppUhw&uapi.MLX5_USER_CMDS_SUPP_UHW_CREATE_AH != 0
	c.dynamic = r.TotBfregs == 0
	c.ece = r.CompMask&uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE != 0
	if r.CompMask&uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY != 0 {
		c.null = r.DumpFillMkey
	}
	c.limits = limits{
		sqDesc: int(r.MaxSqDescSz), rqDesc: int(r.MaxRqDescSz),
		sqBlocks: min(int(r.MaxSendWqebb), maxIndex/2), recvWR: min(int(r.MaxRecvWr), maxIndex/2), srqWR: int(r.MaxSrqRecvWr),
		header: headerOf(r.EthMinInline),
	}
	l := &c.limits
	if l.sqDesc < blockSize || l.rqDesc < segmentSize || uint64(r.MaxSendWqebb) > maxIndex ||
		uint64(r.MaxRecvWr) > maxIndex || uint64(r.MaxSrqRecvWr) > maxIndex {
		return badABI("requests of %d and %d bytes, queues of %d, %d and %d", r.MaxSqDescSz, r.MaxRqDescSz, r.MaxSendWqebb, r.MaxRecvWr, r.MaxSrqRecvWr)
	}
	split := int(r.BfRegSize) / 2
	if split != 0 && (bits.OnesCount(uint(split)) != 1 || split < blockSize || uarSend+uarUsable*2*split > uarSize) {
		return badABI("registers of %d bytes", r.BfRegSize)
	}
	if !c.set.blueFlame {
		split = 0
	}
	per := max(int(r.NumUarsPerPage), 1)
	if per*uarSize > unix.Getpagesize() {
		return badABI("%d register pages in a page of %d bytes", per, unix.Getpagesize())
	}
	c.uars = uars{dev: c.dev, set: c.set, split: split, per: per}
	c.records.line = cacheLine(int(r.CacheLineSize))
	return nil
}

// maxIndex is what fits the 16 bits in which the device counts requests. A ring of
// that many would be empty to it when it is full, so rings have half.
const maxIndex = 1 << 16

// cacheLine is n if it can be one, and else what is one everywhere.
func cacheLine(n int) int {
	if n < 32 || n > 1024 || bits.OnesCount(uint(n)) != 1 {
		return 128
	}
	return n
}

// AllocPD implements uverbs.ProviderContext. The kernel gives the number that the
// device has for the PD, which posting does not need.
func (c *deviceContext) AllocPD(alloc uverbs.ProviderCommand) (uverbs.ProviderReply, error) {
	return alloc(nil, ioctl.BytesOf(new(uapi.Mlx5IbAllocPdResp)))
}

// NullKey implements uverbs.ProviderNullMR.
func (c *deviceContext) NullKey() (uint32, bool) { return c.null, c.null != 0 }

// Retire implements uverbs.ProviderContext.
func (c *deviceContext) Retire() error {
	return errors.Join(c.uars.retire(), c.clock.retire(), c.wall.retire(), c.records.retire())
}
