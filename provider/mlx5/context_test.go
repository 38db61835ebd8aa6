package mlx5

import (
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

func TestDriver(t *testing.T) {
	if low, high := (mlx5Provider{}).ABI(); (mlx5Provider{}).DriverID() != uapi.RDMA_DRIVER_MLX5 || low != 1 || high != 1 {
		t.Errorf("driver %d, ABI %d to %d", mlx5Provider{}.DriverID(), low, high)
	}
}

// TestLadder checks that getContext requests a user context of DevX, and sends shorter requests to older kernels, which
// reject the longer ones.
func TestLadder(t *testing.T) {
	set := standard().set
	for _, c := range []struct {
		takes int // bytes
		err   error
		asked []int
	}{
		{32, nil, []int{32}},
		{24, unix.EINVAL, []int{32, 32, 24}},
		{16, unix.EOPNOTSUPP, []int{32, 32, 24, 16}},
		{0, unix.EINVAL, []int{32, 32, 24, 16}},
		{0, unix.EPERM, []int{32, 32}},
		{0, unix.EIO, []int{32, 32}},
	} {
		var asked []int
		_, err := getContext(func(in, out []byte) (driver.Reply, error) {
			asked = append(asked, len(in))
			if len(in) > c.takes {
				return driver.Reply{}, c.err
			}
			return driver.Reply{}, nil
		}, set)
		if !slices.Equal(asked, c.asked) || c.takes > 0 != (err == nil) || c.takes == 0 && !errors.Is(err, c.err) {
			t.Errorf("a kernel that takes %d bytes was asked for %v: %v", c.takes, asked, err)
		}
	}
}

// TestNoUserContext checks that a context is allocated without DevX if the device has no user contexts.
func TestNoUserContext(t *testing.T) {
	var flags []uint32
	_, err := getContext(func(in, out []byte) (driver.Reply, error) {
		flags = append(flags, binary.NativeEndian.Uint32(in[8:]))
		if flags[len(flags)-1] != 0 {
			return driver.Reply{}, unix.ENOMEM
		}
		return driver.Reply{}, nil
	}, standard().set)
	if want := []uint32{uapi.MLX5_IB_ALLOC_UCTX_DEVX, 0}; err != nil || !slices.Equal(flags, want) {
		t.Errorf("flags %d, want %d: %v", flags, want, err)
	}
}

// TestStrangeAnswers checks that invalid replies of the kernel are errors, and that no part of the context remains.
func TestStrangeAnswers(t *testing.T) {
	for name, change := range map[string]func(*uapi.Mlx5IbAllocUcontextResp){
		"CQE version":      func(r *uapi.Mlx5IbAllocUcontextResp) { r.CqeVersion = 2 },
		"no send requests": func(r *uapi.Mlx5IbAllocUcontextResp) { r.MaxSqDescSz = 32 },
		"no receives":      func(r *uapi.Mlx5IbAllocUcontextResp) { r.MaxRqDescSz = 0 },
		"odd registers":    func(r *uapi.Mlx5IbAllocUcontextResp) { r.BfRegSize = 500 },
		"small registers":  func(r *uapi.Mlx5IbAllocUcontextResp) { r.BfRegSize = 64 },
		"large registers":  func(r *uapi.Mlx5IbAllocUcontextResp) { r.BfRegSize = 1 << 20 },
		"pages within a page": func(r *uapi.Mlx5IbAllocUcontextResp) {
			r.NumUarsPerPage = uint32(unix.Getpagesize()/uarSize) + 1
		},
		"clock out of its page": func(r *uapi.Mlx5IbAllocUcontextResp) { r.CompMask, r.HcaCoreClockOffset = 1, 1<<20 },
	} {
		k := standard()
		k.resp = change
		s := newSoft(t, k)
		if c, err := s.tryOpen(k); !errors.Is(err, uverbs.ErrABI) {
			t.Errorf("%s: %v, %v", name, c, err)
		}
		s.Close(t)
	}
}

// TestEndlessQueues checks that a device that supports longer queues than 16-bit request numbers allow can be opened,
// and that its queues are limited to what the numbers allow.
func TestEndlessQueues(t *testing.T) {
	for _, n := range []uint32{1<<16 + 1, 1 << 20, 1 << 31, ^uint32(0)} {
		k := standard()
		k.resp = func(r *uapi.Mlx5IbAllocUcontextResp) { r.MaxSendWqebb, r.MaxRecvWr, r.MaxSrqRecvWr = n, n, n }
		d := newDesk(t, k)
		if l := d.s.ctx.limits; l.sqBlocks != 1<<15 || l.recvWR != 1<<15 || l.srqWR != 1<<16 {
			t.Errorf("queues of %d: %+v", n, l)
		}
		d.s.Set(func() { d.s.Device.MaxSrqWr, d.s.Device.MaxQpWr = 1<<20, 1<<20 })
		cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
		for name, err := range map[string]error{
			"sends":    second(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1<<15 + 1})),
			"receives": second(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxRecvWR: 1<<15 + 1})),
			"an SRQ":   second(d.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 1 << 16})),
		} {
			if !errors.Is(err, uverbs.ErrInvalid) || !strings.Contains(err.Error(), "at most") {
				t.Errorf("too many %s: %v", name, err)
			}
		}
		q := d.loop(t, uverbs.QPConfig{SendCQ: cq})
		d.write(t, q, 1)
		poll(t, cq, 1)
	}
}

// TestLongestSRQ checks that the longest SRQ has as many slots as 16 bits can number.
func TestLongestSRQ(t *testing.T) {
	r := newSRQRigOf(t, 1<<16, 1<<16-1, 1)
	for lap := range 3 {
		for i := range 1<<16 - 1 {
			if _, ok := r.post(t); !ok {
				t.Fatalf("lap %d: receive %d is refused", lap, i)
			}
		}
		if _, ok := r.post(t); ok {
			t.Fatalf("lap %d: the SRQ takes more than it holds", lap)
		}
		r.taken[0], r.posted = append(r.taken[0], r.posted...), nil
		for range 1<<16 - 1 {
			r.complete(0)
		}
	}
}

// TestLies checks that the refusal of a device that reports higher limits than it supports is returned as an error, and
// that no objects remain. Queues within the supported limits work.
func TestLies(t *testing.T) {
	for name, change := range map[string]func(*uapi.Mlx5IbAllocUcontextResp){
		"requests of 32 KiB": func(r *uapi.Mlx5IbAllocUcontextResp) { r.MaxSqDescSz, r.MaxRqDescSz = 1<<15, 1<<15 },
		"queues of 2^16": func(r *uapi.Mlx5IbAllocUcontextResp) {
			r.MaxSendWqebb, r.MaxRecvWr, r.MaxSrqRecvWr = 1<<16, 1<<16, 1<<16
		},
		"no bursts": func(r *uapi.Mlx5IbAllocUcontextResp) { r.BfRegSize = 0 },
		"no pages": func(r *uapi.Mlx5IbAllocUcontextResp) {
			r.NumUarsPerPage, r.LogUarSize, r.NumDynBfregs = 0, 0, 0
		},
		"other pages":      func(r *uapi.Mlx5IbAllocUcontextResp) { r.LogUarSize, r.NumDynBfregs = 31, 1<<31 },
		"cache lines of 7": func(r *uapi.Mlx5IbAllocUcontextResp) { r.CacheLineSize = 7 },
		"no cache lines":   func(r *uapi.Mlx5IbAllocUcontextResp) { r.CacheLineSize = 0 },
		"an inline mode":   func(r *uapi.Mlx5IbAllocUcontextResp) { r.EthMinInline = 255 },
		"all of everything": func(r *uapi.Mlx5IbAllocUcontextResp) {
			r.QpTabSize, r.NumPorts = 1<<31, 1<<15
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := standard()
			k.resp = change
			d := newDesk(t, k)
			cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
			check(t, d.loop(t, uverbs.QPConfig{SendCQ: cq}).Close()) // the registers stay allocated
			before := d.s.Live()
			d.s.Set(func() {
				d.s.Refuse = map[string]unix.Errno{"QP.CREATE": unix.EINVAL, "SRQ.CREATE": unix.EINVAL, "CQ.CREATE": unix.EINVAL}
			})
			largest := uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: int(d.s.Reply.MaxSendWqebb) / 64, MaxSendSGE: 16,
				MaxRecvWR: int(d.s.Reply.MaxRecvWr), MaxRecvSGE: min(int(d.s.Reply.MaxRqDescSz)/16, 64)}
			if q, err := d.pd.CreateQP(largest); !errors.Is(err, uverbs.ErrInvalid) {
				t.Errorf("a QP: %v, %v", q, err)
			}
			if q, err := d.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: int(d.s.Reply.MaxSrqRecvWr) - 1,
				MaxSGE: 3}); !errors.Is(err, uverbs.ErrInvalid) {
				t.Errorf("an SRQ: %v, %v", q, err)
			}
			if q, err := d.c.CreateCQ(uverbs.CQConfig{Entries: 1 << 12}); !errors.Is(err, uverbs.ErrInvalid) {
				t.Errorf("a CQ: %v, %v", q, err)
			}
			d.s.Set(func() { d.s.Refuse = nil })
			if after := d.s.Live(); !slices.Equal(after, before) {
				t.Errorf("the kernel has %v, it had %v", after, before)
			}
			q := d.loop(t, uverbs.QPConfig{SendCQ: cq})
			for id := range uint64(40) {
				d.write(t, q, id)
				poll(t, cq, id)
			}
		})
	}
}

// TestRegistersRunOut lets register pages run out at each number of queue pairs, and checks that later queue pairs
// share the existing registers, that a thread domain is refused, and that all objects can be closed.
func TestRegistersRunOut(t *testing.T) {
	for left := range 4 {
		t.Run(strconv.Itoa(left), func(t *testing.T) { runOut(t, newDesk(t, standard()), left) })
	}
}

func runOut(t *testing.T, d *desk, left int) {
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 63}))(t)
	var all []*uverbs.QP
	for i := range 12 {
		if i == left {
			d.s.Set(func() { d.s.Refuse = map[string]unix.Errno{"UAR.ALLOC": unix.ENOMEM} })
		}
		all = append(all, d.loop(t, uverbs.QPConfig{SendCQ: cq}))
	}
	for i, q := range all {
		d.write(t, q, uint64(i))
		poll(t, cq, uint64(i))
	}
	if td, err := d.c.AllocTD(); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("%d pages: a thread domain is %v, %v", left, td, err)
	}
	for _, q := range all {
		check(t, q.Close())
	}
	d.s.Set(func() { d.s.Refuse = nil })
	check(t, good(d.c.AllocTD())(t).Close())
	d.s.quiet()
}

func TestNoRegisterPage(t *testing.T) {
	k := standard()
	for _, errno := range []unix.Errno{unix.ENOMEM, unix.EOPNOTSUPP, unix.EIO} {
		s := newSoft(t, k)
		s.Refuse = map[string]unix.Errno{"UAR.ALLOC": errno}
		if c, err := s.tryOpen(k); !errors.Is(err, errno) {
			t.Errorf("%v: %v, %v", errno, c, err)
		}
		s.Close(t)
	}
}

// TestFixedRegistersTooLarge checks the registers of a kernel without dynamic register pages. It uses four registers
// per page, which must fit into the page.
func TestFixedRegistersTooLarge(t *testing.T) {
	k := standard()
	k.resp = func(r *uapi.Mlx5IbAllocUcontextResp) { r.BfRegSize, r.TotBfregs = 1024, 16 }
	s := newSoft(t, k)
	s.Refuse = map[string]unix.Errno{"UAR.ALLOC": unix.EOPNOTSUPP}
	if c, err := s.tryOpen(k); !errors.Is(err, uverbs.ErrABI) {
		t.Errorf("%v, %v", c, err)
	}
	s.Close(t)
}

// TestShortRegisterPage checks that a page that is too short for its registers is an error.
func TestShortRegisterPage(t *testing.T) {
	err := kernelError("make a register page", "", errors.Join(errShortPage, nil), "")
	if !errors.Is(err, uverbs.ErrABI) || errors.Is(err, uverbs.ErrClosed) {
		t.Error(err)
	}
}

// TestClock checks that the clock is read as two words at the offset that the kernel reports.
func TestClock(t *testing.T) {
	k := standard()
	k.resp = func(r *uapi.Mlx5IbAllocUcontextResp) { r.CompMask, r.HcaCoreClockOffset = 1, 0x24 }
	s := newSoft(t, k)
	c := s.open(k)
	at := int(mmapOffset(uapi.MLX5_IB_MMAP_CORE_CLOCK, 0)) + 0x24
	binary.BigEndian.PutUint64(s.uar[at:], 0x0102030405060708)
	if v, err := c.QueryClock(); v != 0x0102030405060708 || err != nil {
		t.Errorf("the clock says %#x, %v", v, err)
	}
	check(t, c.Close())
	if v, err := c.QueryClock(); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("a closed clock says %#x, %v", v, err)
	}
	k = standard()
	s = newSoft(t, k)
	if v, err := s.open(k).QueryClock(); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("no clock says %#x, %v", v, err)
	}
}

// TestNoClockPage checks that reading the clock is not supported if the kernel does not map a clock page. Other errors
// are reported.
func TestNoClockPage(t *testing.T) {
	for errno, none := range map[unix.Errno]bool{unix.EPERM: true, unix.EOPNOTSUPP: true, unix.EINVAL: true,
		unix.ENOMEM: false, unix.EIO: false} {
		if got := noPage(errno); got != none {
			t.Errorf("%v: there is no page: %t", errno, got)
		}
	}
	if noPage(nil) {
		t.Error("a page that was mapped is none")
	}
	fd := good(unix.Eventfd(0, unix.EFD_CLOEXEC))(t) // which cannot be mapped
	dev := ioctl.NewFake(fd, "uverbs0", uapi.RDMA_DRIVER_MLX5, newSoft(t, standard()))
	r := &uapi.Mlx5IbAllocUcontextResp{CompMask: uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_CORE_CLOCK_OFFSET,
		ClockInfoVersions: 1 << uapi.MLX5_IB_CLOCK_INFO_V1}
	for name, open := range map[string]func(*ioctl.Device, *uapi.Mlx5IbAllocUcontextResp) error{"clock": new(clock).open,
		"time": new(wallClock).open} {
		if err := open(dev, r); !errors.Is(err, unix.ENODEV) {
			t.Errorf("the page of the %s: %v", name, err)
		}
	}
	check(t, dev.Close())
}

// TestRegisters checks that each queue pair has a burst register while some are unused, and that later ones share. If
// the device has no burst registers, all queue pairs use the plain one.
func TestRegisters(t *testing.T) {
	k := standard()
	s := newSoft(t, k)
	u := &uars{dev: openFake(t, s), set: k.set, split: 256, per: 1}
	check(t, u.open(0))
	seen := map[*register]int{}
	var taken []*register
	for range 40 {
		r := u.get()
		seen[r]++
		taken = append(taken, r)
	}
	owned, shared, most := 0, 0, 0
	for r, n := range seen {
		if r.shared {
			shared++
		} else {
			owned++
		}
		most = max(most, n)
		if r.toggle != 256 || r.most != 4 || !r.shared && n > 1 {
			t.Errorf("a register was handed out %d times: %+v", n, r)
		}
	}
	if owned != 4 || shared != 12 || most != 3 {
		t.Errorf("%d registers with an owner, %d shared by %d at most; want 4, 12, 3", owned, shared, most)
	}
	for _, r := range taken {
		u.put(r, 0)
	}
	if r := u.get(); r.shared {
		t.Error("a register with no owner was not handed out again")
	}
	check(t, u.retire())
	s.Close(t)

	s = newSoft(t, k)
	s.NoBursts = true
	u = &uars{dev: openFake(t, s), set: k.set, split: 256, per: 1}
	check(t, u.open(0))
	for range 20 {
		if r := u.get(); r != u.plain || r.toggle != 0 {
			t.Errorf("a register where there is none: %+v", r)
		}
	}
	check(t, u.retire())
	s.Close(t)
}

// TestRegistersComeBack checks that the QP rings the plain register if the allocation of a register page fails. A QP
// that is created later, when the device has pages again, has a register that accepts bursts.
func TestRegistersComeBack(t *testing.T) {
	d := newDesk(t, standard())
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 63}))(t)
	d.s.Set(func() { d.s.Refuse = map[string]unix.Errno{"UAR.ALLOC": unix.ENOMEM} })
	first := d.loop(t, uverbs.QPConfig{SendCQ: cq})
	if r := d.registerOfQP(t, first); r != d.s.ctx.uars.plain.reg {
		t.Error("a QP without a register page does not ring the plain register")
	}
	d.s.Set(func() { d.s.Refuse = nil })
	if r := d.registerOfQP(t, d.loop(t, uverbs.QPConfig{SendCQ: cq})); r == d.s.ctx.uars.plain.reg {
		t.Error("a QP that was created after the failure rings the plain register")
	}
	check(t, first.Close())
}

// TestRegistersOfLargePages checks that there are as many registers of each kind as with libmlx5 if a CPU page holds
// several register pages: all of the first page of each kind are used. Each register has the number of its register
// page.
func TestRegistersOfLargePages(t *testing.T) {
	for _, c := range []struct{ page, owned, shared int }{{4096, 4, 12}, {16384, 8, 16}, {65536, 32, 32}} {
		set := good(readSettings(func(string) string { return "" }, c.page))(t)
		s := newSoft(t, kit{set: set, cqeVersion: 1})
		s.UARLength, s.UARBase = c.page, 1<<16
		per := c.page / uarSize
		u := &uars{dev: openFake(t, s), set: set, split: 256, per: per}
		check(t, u.open(0))
		owned, shared, places := 0, 0, map[*register]int{}
		for range 100 {
			r := u.get()
			places[r]++
			switch {
			case r == u.plain:
				t.Fatal("a QP has no register for bursts")
			case r.shared:
				shared++
			default:
				owned++
			}
			at := offsetIn(r.mem.Bytes(), r.reg)
			if r.uar < s.UARNumber(ioctltest.FirstUAR) || int(r.uar)%per != at/uarSize || at%uarSize < uarSend ||
				at%uarSize >= uarSend+uarUsable*512 {
				t.Errorf("a register of page %d at %#x", r.uar, at)
			}
		}
		if owned != c.owned || len(places)-owned != c.shared || shared != 100-owned {
			t.Errorf("pages of %d bytes: %d QPs own a register, %d share %d; want %d, and %d", c.page, owned, shared,
				len(places)-owned, c.owned, c.shared)
		}
		check(t, u.retire())
		s.Close(t)
	}
}

func openFake(t *testing.T, s *soft) *ioctl.Device {
	t.Helper()
	fd := good(unix.MemfdCreate("uverbs0", unix.MFD_CLOEXEC))(t)
	check(t, unix.Ftruncate(fd, 1<<24))
	d := ioctl.NewFake(fd, "uverbs0", uapi.RDMA_DRIVER_MLX5, s)
	t.Cleanup(func() { check(t, d.Close()) })
	return d
}

// TestSpots checks the places of registers in mappings of CPUs with small and with large pages.
func TestSpots(t *testing.T) {
	for _, c := range []struct {
		per, n, size int
		want         []spot
	}{
		{1, 2, 512, []spot{{0x800, 0}, {0xa00, 0}}},
		{1, 2, 256, []spot{{0x800, 0}, {0x900, 0}}},
		{1, 4, 512, []spot{{0x800, 0}, {0xa00, 0}, {0xc00, 0}, {0xe00, 0}}},
		{4, 2, 512, []spot{{0x800, 0}, {0xa00, 0}, {0x1800, 1}, {0x1a00, 1}, {0x2800, 2}, {0x2a00, 2}, {0x3800, 3},
			{0x3a00, 3}}}, // 16 KiB
	} {
		if got := spots(c.per, c.n, c.size); !slices.Equal(got, c.want) {
			t.Errorf("%d pages of %d registers of %d bytes: %+v, want %+v", c.per, c.n, c.size, got, c.want)
		}
	}
	// 64 KiB
	if all := spots(16, 2, 512); len(all) != 32 || all[31] != (spot{0xfa00, 15}) {
		t.Errorf("in 64 KiB: %+v", all)
	}
	if all := spots(16, 4, 512); len(all) != 64 || all[4] != (spot{0x1800, 1}) || all[63] != (spot{0xfe00, 15}) {
		t.Errorf("in 64 KiB, all: %+v", all)
	}
}

// TestMapOffsets checks that mapping offsets are counted in pages of the CPU, as the kernel does.
func TestMapOffsets(t *testing.T) {
	for _, c := range []struct {
		command, index, page int
		want                 int64
	}{
		{uapi.MLX5_IB_MMAP_REGULAR_PAGE, 0, 4096, 0}, {uapi.MLX5_IB_MMAP_REGULAR_PAGE, 3, 4096, 0x3000},
		{uapi.MLX5_IB_MMAP_NC_PAGE, 1, 4096, 0x301000}, {uapi.MLX5_IB_MMAP_NC_PAGE, 1, 16384, 0xc04000},
		{uapi.MLX5_IB_MMAP_NC_PAGE, 7, 65536, 0x3070000}, {uapi.MLX5_IB_MMAP_CORE_CLOCK, 0, 65536, 0x5000000},
	} {
		if got := offsetOf(c.command, c.index, c.page); got != c.want {
			t.Errorf("command %d, index %d, pages of %d bytes: %#x, want %#x", c.command, c.index, c.page, got, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	var tab table
	var all []*target
	for i := range uint32(3 << pageBits) {
		v := new(target)
		if n := tab.add(v); n != i || tab.find(n) != v || v.key != n {
			t.Fatalf("the %d-th is %d", i, n)
		}
		all = append(all, v)
	}
	if tab.find(5<<pageBits) != nil {
		t.Error("there is something in a page that was never made")
	}
	tab.remove(all[5], true)
	tab.remove(all[5], true) // a second time has no effect
	if tab.find(5) != nil {
		t.Error("what was removed is still there")
	}
	if n := tab.add(all[5]); n != 5 {
		t.Errorf("the number of what was removed did not come again: %d", n)
	}
	if n := tab.add(new(target)); n != uint32(len(all)) {
		t.Errorf("the number of what was removed came twice: %d", n)
	}
	tab.put(0xabcdef, all[0])
	if tab.find(0xabcdef) != all[0] {
		t.Error("what was put is not there")
	}
	tab.remove(&target{key: 0xabcdef}, false)
	if tab.find(0xabcdef) != all[0] {
		t.Error("what has the number of another took that out")
	}
	tab.next = noNumber - 2
	if n := tab.add(new(target)); n != noNumber-2 {
		t.Errorf("the last number but the kernel's is %d", n)
	}
	if n := tab.add(new(target)); n != noNumber {
		t.Errorf("a number where there is none left: %d", n)
	}
}

func TestRecords(t *testing.T) {
	for _, line := range []int{64, 128, 1024} {
		r := records{line: line}
		seen := map[uint64]bool{}
		var all []record
		for range 3 * unix.Getpagesize() / line {
			c := good(r.get())(t)
			if seen[c.addr] || c.addr%uint64(line) != 0 {
				t.Fatalf("record %d at %#x", len(seen), c.addr)
			}
			seen[c.addr] = true
			c.words[0], c.words[1] = 7, 7
			all = append(all, c)
		}
		if len(r.pages) != 3 {
			t.Errorf("%d pages", len(r.pages))
		}
		for _, c := range all {
			check(t, r.put(c))
		}
		if len(r.pages) != 1 {
			t.Errorf("%d pages are left when all is given back", len(r.pages))
		}
		if c := good(r.get())(t); *c.words != [2]uint32{} {
			t.Errorf("a record that is not clear: %v", *c.words)
		}
		check(t, r.retire())
	}
}
