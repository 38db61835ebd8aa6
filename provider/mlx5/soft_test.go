package mlx5

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/sim/fakemlx5"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A soft is mlx5_ib and a ConnectX in this process, with one open file.
type soft struct {
	*fakemlx5.Kernel
	adapter *fakemlx5.Adapter
	t       testing.TB
	loop    loop.Loop
	hca     *engine.HCA
	ctx     *deviceContext
	node    int    // the device's node number
	uar     []byte // all register pages

	violations []engine.Violation
	broken     engine.Rule // the rule to violate on purpose

	addresses []uint64 // of memory that the device may use

	deferred bool // stores to registers are kept until work is called
	stores   []store
}

// A store is a store of n bytes to a register.
type store struct {
	page, offset uint32
	n            int
	b            [256]byte
}

// Doorbell implements ioctl.Doorbells.
func (s *soft) Doorbell(page, offset uint32, b []byte) {
	if !s.deferred {
		s.Kernel.Doorbell(page, offset, b)
		return
	}
	d := store{page: page, offset: offset, n: len(b)}
	copy(d.b[:], b)
	s.stores = append(s.stores, d)
}

// work makes the device notice the deferred stores.
func (s *soft) work() {
	for i := range s.stores {
		d := &s.stores[i]
		s.Kernel.Doorbell(d.page, d.offset, d.b[:d.n])
	}
	s.stores = s.stores[:0]
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
	s := &soft{t: t}
	core := ioctltest.NewKernel(uapi.RDMA_DRIVER_MLX5)
	core.NoBursts, core.UARBase = k.noBursts, k.uarBase
	core.Extended.MaxDmSize = uint64(softDeviceMemory)
	if !k.ethernet {
		core.Ports[0].LinkLayer, core.Ports[0].Lid = 1, 1
	}
	a := fakemlx5.NewAdapter(fakemlx5.Config{
		Loop:       &s.loop,
		InfiniBand: !k.ethernet,
		MAC:        [6]byte{2, 0, 0, 0, 0, 1},
		LID:        1,
		CQEVersion: k.cqeVersion,
		Violation:  func(v engine.Violation) { s.violations = append(s.violations, v) },
		Shared:     func(addr, _ uint64) { s.addresses = append(s.addresses, addr) },
		Problem:    func(err error) { t.Error(err) },
	})
	check(t, a.SetGIDs(core.GIDs))
	s.Kernel, s.adapter, s.hca = a.NewKernel(core), a, a.HCA
	if s.Reply.TotBfregs = k.registers; k.registers > 0 {
		core.Refuse = map[string]unix.Errno{"UAR.ALLOC": unix.EOPNOTSUPP, "UAR.DESTROY": unix.EOPNOTSUPP}
	}
	if k.resp != nil {
		k.resp(&s.Reply)
	}
	return s
}

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
	n := int(deviceMemoryOffset(0)) + softDeviceMemory
	check(s.t, unix.Ftruncate(fd, int64(n)))
	s.uar, err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	check(s.t, err)
	s.t.Cleanup(func() { check(s.t, unix.Munmap(s.uar)) })
	s.DeviceMemory = s.uar[deviceMemoryOffset(0):]
	return newContext(ioctl.NewFake(fd, "uverbs0", uapi.RDMA_DRIVER_MLX5, s),
		uverbs.Device{Name: "mlx5_0", Ports: 1, DriverID: uapi.RDMA_DRIVER_MLX5}, softDriver{k, s})
}

// softDeviceMemory is the size of the device memory.
var softDeviceMemory = 4 * os.Getpagesize()

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

func zero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

var check = errtest.Check

func good[T any](v T, err error) func(testing.TB) T { return errtest.Value(v, err) }

// Import implements driver.Importer.
func (d softDriver) Import(dev *ioctl.Device, query driver.Command) (provider.Context, error) {
	return importContext(dev, query, d.set)
}
