package uverbs

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"weak"

	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"golang.org/x/sys/unix"
)

// TestContextCloseOrder checks that Context.Close destroys children before parents, and that memory
// stays mapped until the kernel has released it.
func TestContextCloseOrder(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	r.meeting(t, b, false)
	addr := b.mr.Addr()
	r.k.Before = func(m *ioctltest.Msg) {
		if n := descriptors(r.k.Live()); n != 2 {
			t.Errorf("at %s %d event descriptors are open, want those of events and completions", m.Name, n)
		}
		if p := protection(t, addr); m.Name != "PD.DESTROY" && p != "rw-p" {
			t.Errorf("at %s the memory is %q", m.Name, p)
		}
	}
	before := len(r.k.Log())
	check(t, r.c.Close())
	want := []string{"QP.DESTROY", "QP.DESTROY", "AH.DESTROY", "SRQ.DESTROY", "CQ.DESTROY", "MR.DESTROY", "PD.DESTROY"}
	if got := r.k.Log()[before:]; !slices.Equal(got, want) {
		t.Errorf("Close issued %v, want %v", got, want)
	}
	if p := protection(t, addr); p != closedMemory {
		t.Errorf("after Close the memory is %q, want %q", p, closedMemory)
	}
	contexts.Lock()
	defer contexts.Unlock()
	if _, rooted := contexts.open[r.c]; rooted {
		t.Error("the closed context is still rooted")
	}
}

func descriptors(live []string) (n int) {
	for _, s := range live {
		if strings.HasPrefix(s, "event descriptor") {
			n++
		}
	}
	return n
}

// TestContextCloseWithRefusals checks that Close returns the errors of destroy commands that the
// kernel refuses, and that closing the descriptor destroys those objects.
func TestContextCloseWithRefusals(t *testing.T) {
	r := bareRig()
	var err error
	r.c, err = r.open(t)
	check(t, err)
	b := r.bundle(t, false)
	m := r.meeting(t, b, false)
	check(t, m.qp.AttachMcast(GID{0: 0xff, 15: 1}, 0))
	r.k.Set(func() {
		r.k.Refuse = map[string]unix.Errno{"QP.DESTROY": unix.EPERM, "CQ.DESTROY": unix.EPERM, "AH.DESTROY": unix.EPERM,
			"SRQ.DESTROY": unix.EPERM, "DETACH_MCAST": unix.EPERM, "MR.DESTROY": unix.EPERM}
	})
	if err := r.c.Close(); !errors.Is(err, unix.EPERM) {
		t.Errorf("Close: %v, want what the kernel said", err)
	}
	if p := protection(t, b.mr.Addr()); p != closedMemory {
		t.Errorf("the memory is %q", p)
	}
	for _, op := range []func() error{
		func() error { _, err := b.qp.PostSend(SendWR{}); return err },
		func() error { _, err := b.qp.PostRecv(RecvWR{}); return err },
		func() error { _, err := b.cq.Poll(make([]WC, 1)); return err },
		func() error { _, err := m.srq.PostRecv(RecvWR{}); return err },
		m.qp.Close, m.ah.Close, m.srq.Close, b.qp.Close, b.cq.Close, b.mr.Close, b.pd.Close,
	} {
		if err := op(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	if n := descriptors(r.k.Live()); n != 0 {
		t.Errorf("%d event descriptors are open", n)
	}
	// Unlike a real descriptor, the fake's does not destroy its objects.
	r.k.Unplug()
	r.k.Close(t)
}

func TestCloseWithChildren(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	ch := good(r.c.CreateCompChannel())(t)
	other := good(r.c.CreateCQ(CQConfig{Entries: 1, Channel: ch}))(t)
	if b.cq.users != 1 {
		t.Errorf("a CQ that one QP uses twice has %d users", b.cq.users)
	}
	for name, f := range map[string]func() error{"PD": b.pd.Close, "CQ": b.cq.Close, "channel": ch.Close} {
		if err := f(); !errors.Is(err, ErrBusy) || !errors.Is(err, unix.EBUSY) {
			t.Errorf("%s.Close with children: %v, want ErrBusy", name, err)
		}
	}
	// Children first, each twice. The parent works until its own Close.
	for _, f := range []func() error{b.qp.Close, b.cq.Close, b.mr.Close, other.Close, ch.Close, b.pd.Close} {
		check(t, f())
		check(t, f())
	}
	if n := r.k.Count("QP.DESTROY"); n != 1 {
		t.Errorf("a QP closed twice was destroyed %d times", n)
	}
}

func TestUseAfterClose(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	m := r.meeting(t, b, false)
	for _, f := range []func() error{m.qp.Close, m.ah.Close, m.srq.Close, b.qp.Close, b.cq.Close, b.mr.Close, b.pd.Close} {
		check(t, f())
	}
	ctx := context.Background()
	batch := b.qp.StartSend()
	batch.Send(1, 0)
	batch.SGE(b.mr.SGE(0, 1))
	batch.Inline(nil)
	batchErr := batch.Submit()
	for name, err := range map[string]error{
		"PostSend": second(b.qp.PostSend(SendWR{})),
		"PostRecv": second(b.qp.PostRecv(RecvWR{})),
		"Submit":   batchErr,
		"Submit 2": batch.Submit(),
		"Modify":   b.qp.Modify(QPAttr{}, MaskState),
		"Query":    second(b.qp.Query(MaskState)),
		"Connect":  b.qp.Connect(Endpoint{MTU: MTU1024}),
		"Poll":     second(b.cq.Poll(make([]WC, 1))),
		"PollWait": second(b.cq.PollWait(ctx, make([]WC, 1))),
		"Wait":     b.cq.Wait(ctx),
		"Arm":      b.cq.Arm(false),
		"Resize":   b.cq.Resize(10),
		"RegMR":    second(b.pd.RegMR(make([]byte, 1), 0)),
		"Alloc":    second(b.pd.Alloc(1, 0)),
		"CreateQP": second(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq})),
		"CreateAH": second(b.pd.CreateAH(somewhere)),

		"CreateSRQ":    second(b.pd.CreateSRQ(SRQConfig{MaxWR: 1})),
		"SRQ.PostRecv": second(m.srq.PostRecv(RecvWR{})),
		"SRQ.Modify":   m.srq.Modify(SRQAttr{Limit: 1}, SRQMaskLimit),
		"SRQ.Query":    second(m.srq.Query()),
		"Ready":        m.qp.Ready(),
		"AttachMcast":  m.qp.AttachMcast(GID{0: 0xff}, 0),
		"DetachMcast":  m.qp.DetachMcast(GID{0: 0xff}, 0),
	} {
		if !errors.Is(err, ErrClosed) || !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s after Close: %v, want ErrClosed", name, err)
		}
	}
	batch.Abort()
	check(t, r.c.Close())
	for name, err := range map[string]error{
		"QueryDevice": second(r.c.QueryDevice()),
		"QueryPort":   second(r.c.QueryPort(1)),
		"GIDs":        second(r.c.GIDs(1)),
		"SelectGID":   second(r.c.SelectGID(0, GID{}.Addr())),
		"AllocPD":     second(r.c.AllocPD()),
		"CreateCQ":    second(r.c.CreateCQ(CQConfig{Entries: 1})),
		"channel":     second(r.c.CreateCompChannel()),
		"from a WC":   second(r.c.AHAttrFromWC(1, &WC{Flags: WCGRH}, header4(0, "192.0.2.9", "192.0.2.1"))),
		"NextEvent":   second(r.c.NextEvent(ctx)),
	} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("%s after Context.Close: %v, want ErrClosed", name, err)
		}
	}
	check(t, r.c.Close())
	if r.c.ids.count() != 0 {
		t.Errorf("%d ids are left", r.c.ids.count())
	}
}

func second[T any](_ T, err error) error { return err }

// TestMapFailure checks that a queue that the kernel has created and that cannot be mapped is
// destroyed at once.
func TestMapFailure(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	cq := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
	before, ids := r.k.Live(), r.c.ids.count()
	r.p.mapError = unix.ENOMEM
	if _, err := r.c.CreateCQ(CQConfig{Entries: 1}); !errors.Is(err, unix.ENOMEM) {
		t.Error(err)
	}
	if _, err := pd.CreateQP(QPConfig{Type: RC, SendCQ: cq}); !errors.Is(err, unix.ENOMEM) {
		t.Error(err)
	}
	if _, err := pd.CreateSRQ(SRQConfig{MaxWR: 1}); !errors.Is(err, unix.ENOMEM) {
		t.Error(err)
	}
	if _, err := pd.CreateAH(somewhere); !errors.Is(err, unix.ENOMEM) {
		t.Error(err)
	}
	if after := r.k.Live(); !slices.Equal(before, after) {
		t.Errorf("in the kernel: %v before, %v after", before, after)
	}
	if r.c.ids.count() != ids {
		t.Errorf("%d ids, want %d", r.c.ids.count(), ids)
	}
}

// TestOpenFailure makes the provider fail after the kernel's context was created.
func TestOpenFailure(t *testing.T) {
	r := bareRig()
	r.p.openFail = &Error{Op: "map UAR", Errno: unix.EAGAIN, Kind: ErrNotSupported, Detail: "no register page"}
	_, err := r.open(t)
	if !errors.Is(err, unix.EAGAIN) || !errors.Is(err, ErrNotSupported) {
		t.Errorf("%v: the provider's error is lost", err)
	}
	r.k.Close(t)
}

// TestOpenOldKernel checks the error on a kernel that has no ioctl that creates a context.
func TestOpenOldKernel(t *testing.T) {
	r := bareRig()
	r.k.Refuse = map[string]unix.Errno{"DEVICE.GET_CONTEXT": unix.ENOTTY}
	_, err := r.open(t)
	if !errors.Is(err, ErrNotSupported) || !errors.Is(err, unix.ENOTTY) {
		t.Errorf("%v, want ErrNotSupported and ENOTTY", err)
	}
	r.k.Close(t)
}

// TestUnplugged checks that objects can be closed after the removal of their device, which destroys
// them.
func TestUnplugged(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	m := r.meeting(t, b, false)
	check(t, m.qp.AttachMcast(GID{0: 0xff, 15: 1}, 0))
	wait := make(chan error)
	go func() { wait <- second(b.cq.PollWait(context.Background(), make([]WC, 1))) }()
	r.k.Unplug()
	if err := <-wait; !errors.Is(err, ErrDeviceGone) || !errors.Is(err, unix.EIO) {
		t.Errorf("PollWait: %v, want ErrDeviceGone", err)
	}
	if _, err := r.c.NextEvent(context.Background()); !errors.Is(err, ErrDeviceGone) {
		t.Errorf("NextEvent: %v, want ErrDeviceGone", err)
	}
	if _, err := r.c.QueryDevice(); !errors.Is(err, ErrDeviceGone) {
		t.Errorf("QueryDevice: %v, want ErrDeviceGone", err)
	}
	for _, f := range []func() error{m.qp.Close, m.ah.Close, m.srq.Close, b.qp.Close, b.cq.Close, b.mr.Close, b.pd.Close} {
		check(t, f())
	}
}

// TestDroppedMemoryStays checks that registered memory of the Go heap stays until the Context is
// closed, even if the program drops all references.
func TestDroppedMemoryStays(t *testing.T) {
	r := newRig(t)
	p := func() weak.Pointer[[1 << 16]byte] {
		b := new([1 << 16]byte)
		pd := good(r.c.AllocPD())(t)
		good(pd.RegMR(b[:], LocalWrite))(t)
		return weak.Make(b)
	}()
	collect()
	if p.Value() == nil {
		t.Fatal("the device's memory was collected")
	}
	r.k.Before = func(m *ioctltest.Msg) {
		if collect(); p.Value() == nil && m.Name == "MR.DESTROY" {
			t.Error("the memory was collected before the kernel let go of it")
		}
	}
	check(t, r.c.Close())
	if collect(); p.Value() != nil {
		t.Error("the memory is held after Close")
	}
}

// TestSharedContextKeepsMemory checks that memory which the kernel refuses to deregister stays
// after Close of the Context, if the kernel's context has another descriptor: the device may still
// write to it.
func TestSharedContextKeepsMemory(t *testing.T) {
	for _, name := range []string{"imported", "exported"} {
		t.Run(name, func(t *testing.T) {
			r := bareRig()
			defer r.k.Close(t)
			defer r.k.Unplug() // the fake's descriptors do not destroy their objects
			c := good(r.open(t))(t)
			if name == "imported" {
				defer func(creator *Context) { check(t, creator.Close()) }(c)
				c = good(importContext(r.k.Open(t, "uverbs0"), c.Device(), r.p))(t)
			} else {
				check(t, unix.Close(good(c.ExportFD())(t))) // another process may have a copy
			}
			var own uint64
			p := func() weak.Pointer[[1 << 16]byte] {
				b := new([1 << 16]byte)
				pd := good(c.AllocPD())(t)
				good(pd.RegMR(b[:], LocalWrite))(t)
				own = good(pd.Alloc(8, LocalWrite))(t).Addr()
				return weak.Make(b)
			}()
			r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"MR.DESTROY": unix.ENOMEM} })
			err := c.Close()
			r.k.Set(func() { r.k.Refuse = nil })
			if !errors.Is(err, unix.ENOMEM) {
				t.Errorf("Close: %v, want ENOMEM", err)
			}
			c = nil
			if collect(); p.Value() == nil {
				t.Error("memory that the kernel still has was collected")
			}
			if p := protection(t, own); p != "rw-p" {
				t.Errorf("memory that the kernel still has, and that was allocated by Alloc, is %q", p)
			}
		})
	}
}

func collect() {
	for range 3 {
		runtime.GC()
	}
}
