package mlx5

import (
	"encoding/binary"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/connectx/engine"
	"github.com/goverbs/goverbs/internal/connectx/loop"
	"github.com/goverbs/goverbs/internal/connectx/roce"
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/ioctl/ioctltest"
	"github.com/goverbs/goverbs/internal/leak/leaktest"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A soft is mlx5_ib and a ConnectX in this process: a fake kernel and the engine of the software
// ConnectX. Commands go to both.
type soft struct {
	*ioctltest.Kernel
	t    testing.TB
	loop loop.Loop
	hca  *engine.HCA
	ctx  *deviceContext
	node int    // the device's node number
	uar  []byte // all register pages
	resp uapi.Mlx5IbAllocUcontextResp

	spansMu    sync.RWMutex
	spans      []span
	pds        map[uint32]uint32 // by handle, like the following maps
	cqs        map[uint32]*softCQ
	srqs       map[uint32]*engine.SRQ
	xrcds      map[uint32]uint32
	qps        map[uint32]*softQP
	mrs        map[uint32]*engine.MKey
	mws        map[uint32]*engine.MKey
	ownPD      uint32 // the PD of the kernel
	eth        softEthernet
	violations []engine.Violation
	async      []engine.AsyncEvent
	broken     engine.Rule      // the rule to violate on purpose
	heard      func(ioctl.Call) // called with every command before it runs; may be nil
	stores     int              // number of stores to registers seen by the device
	bursts     int              // number of stores that were bursts
}

type softCQ struct {
	*engine.CQ
	handle    uint32
	buf       uint64 // address of its entries when it was created
	log, size int
}

type softQP struct {
	*engine.QP
	attr engine.QPAttr
}

// A kit describes a soft device.
type kit struct {
	set        settings
	cqeVersion uint8
	noBursts   bool
	ethernet   bool
	uarBase    uint32 // see ioctltest.Kernel
	registers  uint32 // registers that an old kernel allocates with the context; 0: the kernel is not an old one
	resp       func(*uapi.Mlx5IbAllocUcontextResp)
}

func standard() kit {
	set, err := readSettings(func(string) string { return "" }, 4096)
	if err != nil {
		panic(err)
	}
	return kit{set: set, cqeVersion: 1, ethernet: true}
}

func newSoft(t testing.TB, k kit) *soft {
	s := &soft{Kernel: ioctltest.NewKernel(uapi.RDMA_DRIVER_MLX5), t: t, pds: map[uint32]uint32{},
		cqs: map[uint32]*softCQ{}, srqs: map[uint32]*engine.SRQ{}, xrcds: map[uint32]uint32{}, qps: map[uint32]*softQP{},
		mrs: map[uint32]*engine.MKey{}, mws: map[uint32]*engine.MKey{}}
	s.NoBursts, s.UARBase = k.noBursts, k.uarBase
	s.resp = uapi.Mlx5IbAllocUcontextResp{QpTabSize: 1 << 17, CacheLineSize: 64, MaxSqDescSz: 1024, MaxRqDescSz: 512,
		MaxSendWqebb: 1 << 15, MaxRecvWr: 1 << 15, MaxSrqRecvWr: 1 << 15, NumPorts: 1, CqeVersion: k.cqeVersion,
		CmdsSuppUhw: 3, LogUarSize: 12, NumUarsPerPage: 1}
	if !k.noBursts {
		s.resp.BfRegSize = 512
	}
	if s.resp.TotBfregs = k.registers; k.registers > 0 {
		s.Refuse = map[string]unix.Errno{"UAR.ALLOC": unix.EOPNOTSUPP, "UAR.DESTROY": unix.EOPNOTSUPP}
	}
	if k.resp != nil {
		k.resp(&s.resp)
	}
	layer, version := engine.InfiniBand, roce.InfiniBand
	if k.ethernet {
		layer, version = engine.Ethernet, roce.V2
	} else {
		s.Ports[0].LinkLayer, s.Ports[0].Lid = 1, 1
	}
	s.hca = engine.New(engine.Config{Loop: &s.loop, Memory: s, Events: s, LinkLayer: layer, CQEVersion: int(k.cqeVersion),
		Strict: true, Violation: func(v engine.Violation) { s.violations = append(s.violations, v) }})
	s.loop.Run(func() {
		s.hca.SetLID(1)
		s.hca.SetMAC([6]byte{2, 0, 0, 0, 0, 1})
		s.hca.SetLink(s)
		s.hca.SetUp(true)
		for i, g := range s.GIDs {
			check(t, s.hca.SetGID(i, engine.GIDEntry{GID: g.Gid, Version: version, MAC: s.hca.MAC()}))
		}
	})
	return s
}

func (s *soft) Packet(*roce.Packet) {}
func (s *soft) Frame([]byte)        {}

func (s *soft) Completion(cq *engine.CQ) {
	for h, q := range s.cqs {
		if q.CQ == cq {
			_ = s.Complete(h) // the CQ may have been destroyed
		}
	}
}

func (s *soft) Async(e engine.AsyncEvent) { s.async = append(s.async, e) }

// open opens the device. When the test ends, it closes the device and checks that no objects remain and that no rule
// was violated.
func (s *soft) open(k kit) *uverbs.Context {
	s.t.Helper()
	c, err := s.tryOpen(k)
	check(s.t, err)
	s.t.Cleanup(func() {
		check(s.t, c.Close())
		s.Close(s.t)
		s.quiet()
	})
	return c
}

func (s *soft) tryOpen(k kit) (*uverbs.Context, error) {
	s.t.Helper()
	fd, err := unix.MemfdCreate("uverbs0", unix.MFD_CLOEXEC)
	check(s.t, err)
	s.node = fd
	n := int(mmapOffset(uapi.MLX5_IB_MMAP_CLOCK_INFO, 0)) + unix.Getpagesize()
	check(s.t, unix.Ftruncate(fd, int64(n)))
	s.uar, err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	check(s.t, err)
	s.t.Cleanup(func() { check(s.t, unix.Munmap(s.uar)) })
	return newContext(ioctl.NewFake(fd, "uverbs0", uapi.RDMA_DRIVER_MLX5, s),
		uverbs.Device{Name: "mlx5_0", Ports: 1, DriverID: uapi.RDMA_DRIVER_MLX5}, softDriver{k, s})
}

// softDriver is mlx5Provider with settings that do not come from the environment.
type softDriver struct {
	kit
	s *soft
}

func (softDriver) DriverID() uint32              { return mlx5Provider{}.DriverID() }
func (softDriver) ABI() (lowest, highest uint64) { return mlx5Provider{}.ABI() }
func (d softDriver) Open(dev *ioctl.Device, get driver.Command) (provider.Context, error) {
	c, err := openContext(dev, get, d.set)
	d.s.ctx = c
	if err != nil {
		return nil, err
	}
	return c, nil
}

// quiet fails the test if a rule was violated.
func (s *soft) quiet() {
	s.t.Helper()
	s.loop.Run(func() {
		for _, v := range s.violations {
			if v.Rule == s.broken {
				continue
			}
			s.t.Errorf("violation of %s: QP %#x CQ %#x index %#x: %s\n%x", v.Rule, v.QPN, v.CQN, v.Index, v.Text, v.WQE)
		}
		s.violations = nil
	})
}

// work notifies the device of the stores to registers since the last call. It must be called
// after every post, because of several stores to a register only the last one remains.
func (s *soft) work() {
	page := unix.Getpagesize()
	s.loop.Run(func() {
		for _, id := range s.mappings() {
			regs := s.uar[int(id)*page:][:uarSize]
			if arm := regs[uarArm:][:8]; !zero(arm) {
				s.store(s.UARNumber(id), uarArm, slices.Clone(arm))
				clear(arm)
			}
			for off := uarSend; off < uarSize; off += 256 {
				r := regs[off:][:256]
				if zero(r[:8]) {
					continue
				}
				n := 8
				if !zero(r[8:]) {
					n = align(int(r[7]&0x3f)*segmentSize, blockSize)
					s.bursts++
				}
				s.store(s.UARNumber(id), uint32(off), slices.Clone(r[:n]))
				clear(r)
			}
		}
	})
}

// mappings returns the numbers of the register pages, which are also their page offsets.
func (s *soft) mappings() (all []uint32) {
	first, n := uint32(ioctltest.FirstUAR), uint32(ioctltest.UARPages)
	if s.resp.TotBfregs > 0 {
		first, n = 0, s.resp.TotBfregs/uarUsable
	}
	for i := range n {
		all = append(all, first+i)
	}
	return all
}

func (s *soft) store(id, off uint32, b []byte) {
	s.stores++
	s.hca.Store(id, off, b)
}

func zero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func good[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

// pagesOf returns a buffer of the device, whose pages are at the addresses of this process.
func pagesOf(addr, n uint64) engine.Buffer {
	b := engine.Buffer{PageShift: 12, Offset: addr & 4095}
	for p := addr &^ 4095; p < addr+n; p += 4096 {
		b.Pages = append(b.Pages, p)
	}
	return b
}

func translations(b engine.Buffer) (list []byte) {
	for _, p := range b.Pages {
		list = binary.BigEndian.AppendUint64(list, p|3)
	}
	return list
}

// Import implements driver.Importer.
func (d softDriver) Import(dev *ioctl.Device, query driver.Command) (provider.Context, error) {
	return importContext(dev, query, d.set)
}
