package mlx5

import (
	"errors"
	"math/bits"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
)

func init() { driver.Register(mlx5Provider{}) }

// mlx5Provider implements driver.Provider.
type mlx5Provider struct{}

func (mlx5Provider) DriverID() uint32 { return uapi.RDMA_DRIVER_MLX5 }

func (mlx5Provider) ABI() (lowest, highest uint64) {
	return uapi.MLX5_IB_UVERBS_ABI_VERSION, uapi.MLX5_IB_UVERBS_ABI_VERSION
}

func (mlx5Provider) Open(dev *ioctl.Device, get driver.Command) (provider.Context, error) {
	set, err := environment()
	if err != nil {
		return nil, err
	}
	return openContext(dev, get, set)
}

// limits are the limits of the device.
type limits struct {
	sqDesc   int // bytes of a send WQE
	rqDesc   int // bytes of a receive WQE
	sqBlocks int // blocks of a send queue
	recvWR   int
	srqWR    int
	header   int // bytes of a frame that must be inline in its request
}

// deviceContext implements driver.Context.
type deviceContext struct {
	dev     *ioctl.Device
	set     settings
	limits  limits
	indexed bool   // CQEs name queues by an index that we chose, not by number
	dmac    bool   // CREATE_AH returns the MAC address
	dynamic bool   // we allocate the register pages
	ece     bool   // QPs have ECE options
	null    uint32 // key of the null MR, or 0 if the device has none

	memory  *driver.MRs
	uars    uars
	records records
	targets table // by index, or by QPN
	srqs    table // by SRQN, unless indexed
	clock   clock
	wall    wallClock

	reserved reservedQPNs

	mu      sync.Mutex
	ports   map[uint8]portKind
	general []byte // the device's general capabilities, once they have been queried
}

// maxSegments is the size of the largest send request, in segments.
const maxSegments = 63

const maxCQEVersion = 1

func openContext(dev *ioctl.Device, get driver.Command, set settings) (*deviceContext, error) {
	resp, err := getContext(get, set)
	if err != nil {
		return nil, err
	}
	return setUp(dev, resp, set)
}

// setUp creates the provider's part of a context from the kernel's reply.
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
		return nil, provider.Join(err, c.Retire())
	}
	return c, nil
}

// getContext allocates the context, with a user context of DevX if the device has one for it. Older
// kernels refuse a request that is longer than the one they know, so it retries with shorter requests.
func getContext(get driver.Command, set settings) (*uapi.Mlx5IbAllocUcontextResp, error) {
	req := &uapi.Mlx5IbAllocUcontextReqV2{
		TotalNumBfregs: uint32(set.registers), NumLowLatencyBfregs: uint32(min(set.exclusive, set.registers-1)),
		Flags: uapi.MLX5_IB_ALLOC_UCTX_DEVX, MaxCqeVersion: maxCQEVersion,
		LibCaps: uapi.MLX5_LIB_CAP_4K_UAR | uapi.MLX5_LIB_CAP_DYN_UAR}
	full := ioctl.BytesOf(req)
	resp := new(uapi.Mlx5IbAllocUcontextResp)
	if _, err := get(full, ioctl.BytesOf(resp)); err == nil {
		return resp, nil
	}
	req.Flags = 0 // as libmlx5 does after any error: the device may have no DevX, or no more user contexts
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
			break // the length is not the reason
		}
	}
	return nil, first
}

// Sizes of the request before it was extended.
const (
	beforeLibCaps    = 24
	beforeCQEVersion = 16
)

// learn checks and stores the device properties that the kernel reports.
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
		sqBlocks: int(min(r.MaxSendWqebb, maxIndex/2)), recvWR: int(min(r.MaxRecvWr, maxIndex/2)),
		srqWR: int(min(r.MaxSrqRecvWr, maxIndex)), header: headerOf(r.EthMinInline),
	}
	if c.limits.sqDesc < blockSize || c.limits.rqDesc < segmentSize {
		return badABI("requests of %d and %d bytes", r.MaxSqDescSz, r.MaxRqDescSz)
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
	c.uars = uars{dev: c.dev, set: c.set, split: split, per: per, bell: c.dev.Doorbells()}
	c.records.line = cacheLine(int(r.CacheLineSize))
	return nil
}

// maxIndex is the number of requests that the device's 16-bit counters can distinguish. A full
// ring of that many would look empty to the device, so rings have at most half. Slots of an SRQ
// are named one by one, and one slot is never filled.
const maxIndex = 1 << 16

// cacheLine returns n if it is a plausible cache line size, and otherwise a size that is
// sufficient everywhere.
func cacheLine(n int) int {
	if n < 32 || n > 1024 || bits.OnesCount(uint(n)) != 1 {
		return 128
	}
	return n
}

// AllocPD implements driver.Context. The kernel returns the device's number of the PD,
// which is not needed for posting.
func (c *deviceContext) AllocPD(alloc driver.Command) (driver.Reply, error) {
	return alloc(nil, ioctl.BytesOf(new(uapi.Mlx5IbAllocPdResp)))
}

// NullKey implements driver.NullMR.
func (c *deviceContext) NullKey() (uint32, bool) { return c.null, c.null != 0 }

// Retire implements driver.Context.
func (c *deviceContext) Retire() error {
	return provider.Join(c.uars.retire(), c.clock.mem.Retire(), c.wall.mem.Retire(), c.records.retire())
}
