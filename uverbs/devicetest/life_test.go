package devicetest

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestDeviceCloseWithChildren checks that objects cannot be closed before their children, and can
// be in the right order.
func TestDeviceCloseWithChildren(t *testing.T) {
	l := newLoop(t, nil)
	for _, c := range []interface{ Close() error }{l.pd, l.a.cq} {
		if err := c.Close(); !errors.Is(err, uverbs.ErrBusy) || !errors.Is(err, unix.EBUSY) {
			t.Fatalf("Close of %v with children: %v", c, err)
		}
	}
	for _, e := range []end{l.a, l.b} {
		for _, c := range []interface{ Close() error }{e.qp, e.cq, e.mr} {
			check(t, c.Close())
			check(t, c.Close())
		}
		if _, err := e.qp.PostSend(uverbs.SendWR{}); !errors.Is(err, uverbs.ErrClosed) || !errors.Is(err, os.ErrClosed) {
			t.Fatalf("PostSend after Close: %v", err)
		}
		if _, err := e.qp.PostRecv(uverbs.RecvWR{}); !errors.Is(err, uverbs.ErrClosed) {
			t.Fatalf("PostRecv after Close: %v", err)
		}
		b := e.qp.StartSend()
		b.Send(0, 0)
		if err := b.Submit(); !errors.Is(err, uverbs.ErrClosed) {
			t.Fatalf("Submit after Close: %v", err)
		}
		if _, err := e.cq.Poll(make([]uverbs.WC, 1)); !errors.Is(err, uverbs.ErrClosed) {
			t.Fatalf("Poll after Close: %v", err)
		}
		if err := e.cq.Wait(context.Background()); !errors.Is(err, uverbs.ErrClosed) {
			t.Fatalf("Wait after Close: %v", err)
		}
		if err := e.qp.Modify(uverbs.QPAttr{}, uverbs.MaskState); !errors.Is(err, uverbs.ErrClosed) {
			t.Fatalf("Modify after Close: %v", err)
		}
	}
	check(t, l.pd.Close())
	if _, err := l.pd.Alloc(1, 0); !errors.Is(err, uverbs.ErrClosed) {
		t.Fatalf("Alloc on a closed PD: %v", err)
	}
	check(t, l.dev.Close())
	if _, err := l.dev.AllocPD(); !errors.Is(err, uverbs.ErrClosed) {
		t.Fatalf("AllocPD after Close: %v", err)
	}
	if _, err := l.dev.QueryDevice(); !errors.Is(err, uverbs.ErrClosed) {
		t.Fatalf("QueryDevice after Close: %v", err)
	}
}

// TestDeviceLimits checks that the error of a request for more than the device supports names the
// number and the limit. For limits that depend on the type of queue, mlx5 accepts more than its
// attributes report.
func TestDeviceLimits(t *testing.T) {
	dev := openDevice(t)
	attr := must(dev.QueryDevice())(t)
	pd := must(dev.AllocPD())(t)
	cq := must(dev.CreateCQ(uverbs.CQConfig{Entries: 16}))(t)
	qp := func(adjust func(*uverbs.QPConfig)) error {
		cfg := uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: 1}
		adjust(&cfg)
		_, err := pd.CreateQP(cfg)
		return err
	}
	_, errCQ := dev.CreateCQ(uverbs.CQConfig{Entries: attr.MaxCQE + 1})
	_, errNone := dev.CreateCQ(uverbs.CQConfig{})
	_, errPort := dev.QueryPort(dev.Device().Ports + 1)
	_, errGID := dev.GIDs(0)
	_, errVector := dev.CreateCQ(uverbs.CQConfig{Entries: 1, Vector: dev.CompVectors()})
	for name, err := range map[string]error{
		"Entries must be at least 1": errNone,
		"the device accepts":         errCQ,
		"the device has ports 1 to":  errPort,
		"port 0 is out of range":     errGID,
		"completion vectors":         errVector,
		"MaxSendWR is":               qp(func(c *uverbs.QPConfig) { c.MaxSendWR = 4*attr.MaxQPWR + 1 }),
		"MaxRecvWR is":               qp(func(c *uverbs.QPConfig) { c.MaxRecvWR = 4*attr.MaxQPWR + 1 }),
		"MaxSendSGE is":              qp(func(c *uverbs.QPConfig) { c.MaxSendSGE = 4*attr.MaxSGE + 1 }),
		"MaxRecvSGE is":              qp(func(c *uverbs.QPConfig) { c.MaxRecvSGE = 4*attr.MaxSGE + 1 }),
		"MaxInline is":               qp(func(c *uverbs.QPConfig) { c.MaxInline = 1 << 20 }),
	} {
		if !errors.Is(err, uverbs.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestDeviceModifyExplained checks the errors of transitions that the kernel refuses.
func TestDeviceModifyExplained(t *testing.T) {
	dev := openDevice(t)
	needEndpoints(t, dev)
	pd := must(dev.AllocPD())(t)
	cq := must(dev.CreateCQ(uverbs.CQConfig{Entries: 16}))(t)
	qp := must(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: 1}))(t)
	refused := func(want string, a uverbs.QPAttr, m uverbs.QPMask) {
		t.Helper()
		err := qp.Modify(a, m)
		if !errors.Is(err, uverbs.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	if _, err := qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend}); !errors.Is(err, uverbs.ErrState) {
		t.Errorf("PostSend in RESET: %v", err)
	}
	if _, err := qp.PostRecv(uverbs.RecvWR{}); !errors.Is(err, uverbs.ErrState) {
		t.Errorf("PostRecv in RESET: %v", err)
	}
	refused("RESET, which does not go to RTS", uverbs.QPAttr{State: uverbs.StateRTS}, uverbs.MaskState)
	refused("also needs PKeyIndex, Port", uverbs.QPAttr{State: uverbs.StateInit}, uverbs.MaskState|uverbs.MaskAccess)
	refused("Port is 9", uverbs.QPAttr{State: uverbs.StateInit, Port: 9},
		uverbs.MaskState|uverbs.MaskAccess|uverbs.MaskPKeyIndex|uverbs.MaskPort)
	check(t, qp.Init())
	if _, err := qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend}); !errors.Is(err, uverbs.ErrState) {
		t.Errorf("PostSend in INIT: %v", err)
	}
	if n, err := qp.PostRecv(uverbs.RecvWR{}); n != 1 || err != nil {
		t.Errorf("PostRecv in INIT: %d, %v", n, err)
	}
	toRTR := uverbs.MaskState | uverbs.MaskAV | uverbs.MaskPathMTU | uverbs.MaskDestQPN | uverbs.MaskRQPSN |
		uverbs.MaskMaxDestRdAtomic | uverbs.MaskMinRNRTimer
	refused("also needs MinRNRTimer", uverbs.QPAttr{State: uverbs.StateRTR}, toRTR&^uverbs.MaskMinRNRTimer)
	av := uverbs.AHAttr{IsGlobal: true, Port: 1, SGIDIndex: 200, HopLimit: 1}
	refused("SGIDIndex is 200", uverbs.QPAttr{State: uverbs.StateRTR, AV: av, PathMTU: uverbs.MTU1024}, toRTR)
	check(t, qp.Modify(uverbs.QPAttr{State: uverbs.StateErr}, uverbs.MaskState))
	wc := make([]uverbs.WC, 1)
	if n, err := cq.PollWait(context.Background(), wc); n != 1 || err != nil || wc[0].Status != uverbs.WCWRFlushErr {
		t.Errorf("flush of the posted receive: %d, %v, %+v", n, err, wc[0])
	}
}

// TestDeviceGIDs checks the GID and P_Key tables against sysfs.
func TestDeviceGIDs(t *testing.T) {
	dev := openDevice(t)
	gids := must(dev.GIDs(1))(t)
	if len(gids) == 0 {
		t.Fatal("the GID table is empty")
	}
	for _, g := range gids {
		base := "/sys/class/infiniband/" + dev.Name() + "/ports/1/"
		read := func(file string) string {
			b, err := os.ReadFile(base + file)
			check(t, err)
			return strings.TrimSpace(string(b))
		}
		idx := strings.TrimSpace(itoa(g.Index))
		if got := netip.MustParseAddr(read("gids/" + idx)); got != netip.AddrFrom16(g.GID) {
			t.Errorf("GID %d is %v, sysfs has %v", g.Index, g.GID, got)
		}
		if typ := read("gid_attrs/types/" + idx); typ != g.Type.String() &&
			!(typ == "IB/RoCE v1" && g.Type != uverbs.GIDTypeRoCEv2) {
			t.Errorf("GID %d is of type %v, sysfs has %q", g.Index, g.Type, typ)
		}
		if ndev := read("gid_attrs/ndevs/" + idx); ndev != g.Netdev {
			t.Errorf("GID %d belongs to %q, sysfs has %q", g.Index, g.Netdev, ndev)
		}
	}
	best := must(dev.SelectGID(0, netip.Addr{}))(t)
	peer := must(dev.SelectGID(1, best.GID.Addr()))(t)
	if peer.Index != best.Index {
		t.Errorf("GID %d for its own address, %d in general", peer.Index, best.Index)
	}
	if keys := must(dev.PKeys(1))(t); !rnic(dev) && (len(keys) == 0 || keys[0] != 0xffff) {
		t.Errorf("P_Keys %#x", keys)
	}
}

// TestDeviceKilled kills a process in the middle of transfers, and checks that the kernel releases
// all of its objects.
func TestDeviceKilled(t *testing.T) {
	if os.Getenv("GOVERBS_TEST_VICTIM") == "1" {
		victim(t)
	}
	before := must(nldev.Resources(deviceName(t)))(t)
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestDeviceKilled$", "-test.v")
		cmd.Env = append(os.Environ(), "GOVERBS_TEST_VICTIM=1")
		out := must(cmd.StdoutPipe())(t)
		check(t, cmd.Start())
		var line [6]byte
		if n, err := out.Read(line[:]); err != nil { // the victim is running
			t.Fatalf("the victim said %q: %v", line[:n], err)
		}
		check(t, cmd.Process.Kill())
		if err := cmd.Wait(); err == nil {
			t.Fatal("the victim survived")
		}
	}
	// When Wait returns, the process has ended and its descriptors are closed.
	after := must(nldev.Resources(deviceName(t)))(t)
	for kind, n := range after {
		if n != before[kind] {
			t.Errorf("%d %s are left, %d were there before", n, kind, before[kind])
		}
	}
}

func victim(t *testing.T) {
	l := newLoop(t, nil)
	os.Stdout.WriteString("ready\n")
	for {
		post(t, l.a.qp, uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
			SGL: []uverbs.SGE{l.a.mr.SGE(0, bufSize)}, RemoteAddr: l.b.mr.Addr(), RKey: l.b.mr.RKey()})
		check(t, l.completionOf(l.a))
	}
}

func (l *loop) completionOf(e end) error {
	var wcs [1]uverbs.WC
	_, err := e.cq.PollWait(context.Background(), wcs[:])
	return errors.Join(err, wcs[0].Err())
}

// TestDeviceMemlock registers more memory than an ordinary user may lock, and checks the error.
func TestDeviceMemlock(t *testing.T) {
	if !asUser(t) {
		return
	}
	check(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: 64 << 10}))
	dev := openDevice(t)
	pd := must(dev.AllocPD())(t)
	mr := must(pd.RegMR(make([]byte, 32<<10), 0))(t)
	_, err := pd.Alloc(1<<20, uverbs.LocalWrite)
	if !errors.Is(err, uverbs.ErrMemlock) || !errors.Is(err, unix.ENOMEM) {
		t.Fatalf("Alloc over the limit: %v", err)
	}
	for _, want := range []string{"1048576 bytes are needed", "RLIMIT_MEMLOCK is 65536 bytes", "ulimit -l",
		"CAP_IPC_LOCK"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	check(t, mr.Close())
	mr = must(pd.Alloc(60<<10, 0))(t) // the failed call has pinned nothing
	check(t, mr.Close())
}

// TestDeviceMemlockOfQueue creates a queue whose ring is larger than an ordinary user may lock, on
// a device whose driver pins it, and checks the error.
func TestDeviceMemlockOfQueue(t *testing.T) {
	if !asUser(t) {
		return
	}
	check(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: 64 << 10}))
	dev := openDevice(t)
	cq, err := dev.CreateCQ(uverbs.CQConfig{Entries: 4000, NoEvents: true})
	if dev.Device().Driver() != "mlx5" { // the kernel allocates the rings
		check(t, err)
		check(t, cq.Close())
		return
	}
	if !errors.Is(err, uverbs.ErrMemlock) || !strings.Contains(err.Error(), "RLIMIT_MEMLOCK is 65536 bytes") {
		t.Errorf("a CQ of 4000 entries: %v", err)
	}
}

// TestDeviceAllocations checks that no call of the data path allocates, with literals at the call
// site.
func TestDeviceAllocations(t *testing.T) {
	l := newLoop(t, func(c *uverbs.QPConfig) { c.RecvCQ = nil })
	a, b := l.a, l.b
	var wcs [64]uverbs.WC
	drain := func(e end, n int) {
		for n > 0 {
			got, err := e.cq.Poll(wcs[:])
			check(t, err)
			n -= got
		}
	}
	zero := func(name string, f func()) {
		t.Helper()
		if n := testing.AllocsPerRun(50, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	zero("PostSend by SGE", func() {
		_, err := a.qp.PostSend(uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
			SGL: []uverbs.SGE{a.mr.SGE(0, 32), a.mr.SGE(64, 32)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
		check(t, err)
		drain(a, 1)
	})
	zero("PostSend inline", func() {
		_, err := a.qp.PostSend(uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
			Inline: []byte{1, 2, 3, 4}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
		check(t, err)
		drain(a, 1)
	})
	zero("batch of 32", func() {
		batch := a.qp.StartSend()
		for i := range 32 {
			batch.Write(uint64(i), uverbs.Signaled, b.mr.Addr(), b.mr.RKey())
			if i%2 == 0 {
				batch.SGE(a.mr.SGE(i, 32))
			} else {
				batch.Inline([]byte{5, 6, 7})
			}
		}
		check(t, batch.Submit())
		drain(a, 32)
	})
	zero("PostRecv and SEND", func() {
		_, err := b.qp.PostRecv(uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{b.mr.SGE(0, 64)}})
		check(t, err)
		_, err = a.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
			SGL: []uverbs.SGE{a.mr.SGE(0, 64)}})
		check(t, err)
		drain(a, 1)
		drain(b, 1)
	})
	zero("Arm", func() { check(t, a.cq.Arm(false)) })
	zero("Poll of nothing", func() {
		_, err := a.cq.Poll(wcs[:])
		check(t, err)
	})
}
