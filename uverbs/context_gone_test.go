package uverbs

import (
	"errors"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"golang.org/x/sys/unix"
)

// TestGone checks that after the kernel has reported that the device has failed, posts return
// ErrDeviceGone, waits end, and the objects can be closed without an error.
func TestGone(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	fresh := good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq, MaxSendWR: 1, MaxRecvWR: 1}))(t)
	r.k.Set(func() { r.k.Raw = true })
	srq := good(b.pd.CreateSRQ(SRQConfig{MaxWR: 1}))(t)
	waited := make(chan error, 1)
	go func() { waited <- b.cq.Wait(t.Context()) }()
	until(func() bool { return b.cq.impl.(*fakeCQ).armings() > 0 })
	check(t, r.k.Async(1, uint32(EventDeviceFatal)))
	if e := good(r.c.NextEvent(t.Context()))(t); e.Type != EventDeviceFatal {
		t.Fatalf("event %v", e.Type)
	}
	check(t, <-waited) // Wait returns nil: the next poll returns the error
	for name, post := range map[string]func() error{
		"PostSend":           func() error { return second(b.qp.PostSend(SendWR{Opcode: OpSend})) },
		"PostRecv":           func() error { return second(b.qp.PostRecv(RecvWR{})) },
		"PostRecv in RESET":  func() error { return second(fresh.PostRecv(RecvWR{})) },
		"PostRecv of an SRQ": func() error { return second(srq.PostRecv(RecvWR{})) },
		"Poll":               func() error { return second(b.cq.Poll(make([]WC, 1))) },
		"an empty list":      func() error { return second(b.qp.PostSend()) },
		"PostSend in RTS now": func() error {
			check(t, fresh.Connect(good(b.qp.Endpoint())(t)))
			return second(fresh.PostSend(SendWR{}))
		},
		"a batch": func() error {
			s := b.qp.StartSend()
			s.Send(1, 0)
			return s.Submit()
		},
	} {
		if err := post(); !errors.Is(err, ErrDeviceGone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	late := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
	if _, err := late.Poll(make([]WC, 1)); !errors.Is(err, ErrDeviceGone) {
		t.Errorf("Poll of a CQ that was made since: %v", err)
	}
	check(t, b.qp.Close())
	if _, err := b.qp.PostSend(SendWR{Opcode: OpSend}); !errors.Is(err, ErrClosed) {
		t.Errorf("PostSend after Close: %v", err)
	}
	check(t, r.c.Close())
}

// TestWaitWhenGone removes the device while goroutines wait. Wait and WaitEvent return nil in each order of reports,
// and Poll returns the completions that remain and then ErrDeviceGone.
func TestWaitWhenGone(t *testing.T) {
	removed := map[string]unix.Errno{"QUERY_DEVICE": unix.EIO}
	for name, remove := range map[string]func(r *rig, q *CQ) error{
		"the event": func(r *rig, _ *CQ) error { r.c.markDeviceGone(); return nil },
		"the channel": func(r *rig, q *CQ) error {
			r.k.Set(func() { r.k.Refuse = removed })
			return r.k.Break(q.handle)
		},
		"the channel, before the goroutine that marks the queues reaches this one": func(r *rig, q *CQ) error {
			r.c.deviceGone.Store(true)
			return r.k.Break(q.handle)
		},
	} {
		for call, wait := range map[string]func(*CQ) error{
			"Wait":      func(q *CQ) error { return q.Wait(t.Context()) },
			"WaitEvent": func(q *CQ) error { return q.WaitEvent(t.Context()) },
		} {
			r := newRig(t)
			q := good(r.c.CreateCQ(CQConfig{Entries: 4}))(t)
			waited := make(chan error, 2)
			for range cap(waited) {
				go func() { waited <- wait(q) }()
			}
			until(func() bool { return q.waiters.Load() == 2 && q.channel.reader.Load() == q })
			check(t, remove(r, q))
			for range cap(waited) {
				if err := <-waited; err != nil {
					t.Errorf("%s reports it first: %s: %v, want nil", name, call, err)
				}
			}
			check(t, q.Wait(t.Context()))
			if _, err := q.Poll(make([]WC, 1)); !errors.Is(err, ErrDeviceGone) {
				t.Errorf("%s reports it first: Poll after %s: %v, want ErrDeviceGone", name, call, err)
			}
			r.k.Set(func() { r.k.Refuse = nil })
		}
	}
}

// TestArmWhenGone checks that Wait returns nil if arming the queue reports that the device was removed.
func TestArmWhenGone(t *testing.T) {
	r := newRig(t)
	q := good(r.c.CreateCQ(CQConfig{Entries: 4}))(t)
	q.impl.(*fakeCQ).beforeArm = func() { r.c.deviceGone.Store(true) }
	q.impl.(*fakeCQ).armError = unix.EIO
	check(t, q.Wait(t.Context()))
	if _, err := q.Poll(make([]WC, 1)); !errors.Is(err, ErrDeviceGone) {
		t.Errorf("Poll: %v, want ErrDeviceGone", err)
	}
}

// A hooked provider calls a function in the middle of creating a CQ.
type hooked struct {
	providerContext
	hook func()
}

func (h hooked) CreateCQ(cfg *driver.CQConfig, create driver.CQCommand) (providerCQ, driver.Reply, error) {
	q, r, err := h.providerContext.CreateCQ(cfg, create)
	h.hook()
	return q, r, err
}

// TestGoneUnderCreateCQ makes the device fail while a CQ is being created.
func TestGoneUnderCreateCQ(t *testing.T) {
	r := newRig(t)
	r.c.impl = hooked{r.c.impl, r.c.markDeviceGone}
	cq := good(r.c.CreateCQ(CQConfig{Entries: 4}))(t)
	if _, err := cq.Poll(make([]WC, 1)); !errors.Is(err, ErrDeviceGone) {
		t.Error(err)
	}
}

// TestDestroyFails checks that an object stays open with its memory if its destroy command fails on
// a working device, and that Close may be called again.
func TestDestroyFails(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EIO, unix.ENODEV, unix.ENOLINK} {
		r := newRig(t)
		b := r.bundle(t, false)
		buf := make([]byte, 4096)
		heap := good(b.pd.RegMR(buf, LocalWrite|RemoteWrite))(t)
		m := r.meeting(t, b, false)
		for name, closing := range map[string]func() error{
			"MR.DESTROY": heap.Close, "QP.DESTROY": b.qp.Close, "AH.DESTROY": m.ah.Close,
		} {
			r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{name: errno} })
			err := closing()
			if !errors.Is(err, errno) || errors.Is(err, ErrDeviceGone) {
				t.Errorf("%s refused with %v: Close returns %v", name, errno, err)
			}
		}
		if heap.reg.closed || len(heap.reg.backings) != 1 {
			t.Error("the memory is not held any more")
		}
		r.k.Set(func() { r.k.Refuse = nil })
		check(t, second(b.qp.PostSend(SendWR{Opcode: OpSend, SGL: []SGE{heap.SGE(0, 8)}})))
		before := len(r.k.Live())
		check(t, heap.Close())
		check(t, b.qp.Close())
		check(t, m.ah.Close())
		if n := len(r.k.Live()); n != before-3 {
			t.Errorf("%d objects in the kernel, %d before", n, before)
		}
	}
}

// TestDestroyDuringRemoval removes the device while the driver fails a destroy command. When the
// command is repeated, the kernel itself destroys the object.
func TestDestroyDuringRemoval(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	mr := good(pd.RegMR(make([]byte, 4096), LocalWrite))(t)
	fails := len(r.k.Log()) + 1
	r.k.Set(func() {
		r.k.FailAt, r.k.FailWith = fails, unix.EIO
		r.k.Before = func(m *ioctltest.Msg) {
			if m.Name == "QUERY_DEVICE" {
				r.k.Unplug()
			}
		}
	})
	check(t, mr.Close())
	if n := r.k.Count("MR.DESTROY"); n != 2 {
		t.Errorf("%d destroy commands, want 2", n)
	}
}

// TestErrnoIsNotDeviceGone checks that errnos which can result from the removal of a device are not
// sufficient evidence of it.
func TestErrnoIsNotDeviceGone(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EIO, unix.ENODEV, unix.ENOLINK} {
		r := newRig(t)
		b := r.bundle(t, false)
		fresh := good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq, MaxSendWR: 1}))(t)
		r.k.Set(func() {
			r.k.Refuse = map[string]unix.Errno{"CREATE_AH": errno, "MODIFY_QP": errno, "REG_MR": errno, "QP.CREATE": errno}
		})
		for name, err := range map[string]error{
			"CreateAH": second(b.pd.CreateAH(somewhere)),
			"Modify":   fresh.Modify(QPAttr{State: StateRTR, AV: somewhere}, MaskState|MaskAV),
			"RegMR":    second(b.pd.RegMR(make([]byte, 1), 0)),
			"CreateQP": second(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq})),
			"doorbell": b.qp.doorbellError(&Error{Op: "ring the doorbell", Errno: errno}),
		} {
			if !errors.Is(err, errno) || errors.Is(err, ErrDeviceGone) {
				t.Errorf("%s refused with %v: %v", name, errno, err)
			}
		}
		check(t, second(b.qp.PostSend(SendWR{Opcode: OpSend})))
		check(t, second(b.cq.Poll(make([]WC, 1))))
		r.k.Set(func() { r.k.Refuse = nil })
	}
}

// TestEvidenceOfDeviceGone checks that each kind of evidence that the device is gone makes all
// queues report it.
func TestEvidenceOfDeviceGone(t *testing.T) {
	for name, refuse := range map[string]map[string]unix.Errno{
		"removed":           {"MODIFY_QP": unix.EIO, "QUERY_DEVICE": unix.EIO},
		"removed, by a way": {"MODIFY_QP": unix.ENODEV, "QUERY_DEVICE": unix.EIO},
		"firmware failed":   {"MODIFY_QP": unix.ENOLINK, "DEVICE.QUERY_PORT": unix.ENOLINK},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			b := r.bundle(t, false)
			r.k.Set(func() { r.k.Refuse = refuse })
			if err := b.qp.Modify(QPAttr{State: StateErr}, MaskState); !errors.Is(err, ErrDeviceGone) {
				t.Errorf("Modify: %v, want ErrDeviceGone", err)
			}
			if _, err := b.qp.PostSend(SendWR{Opcode: OpSend}); !errors.Is(err, ErrDeviceGone) {
				t.Errorf("PostSend: %v, want ErrDeviceGone", err)
			}
			if err := b.qp.doorbellError(&Error{Op: "ring the doorbell", Errno: unix.EIO}); !errors.Is(err, ErrDeviceGone) {
				t.Errorf("a doorbell: %v, want ErrDeviceGone", err)
			}
			r.k.Set(func() { r.k.Refuse = nil })
		})
	}
}

// TestChannelOutlivesItsCQ checks that a completion channel can be closed only after its last CQ
// has been finalized. Then no goroutine waits on it, and its end is not mistaken for the
// removal of the device.
func TestChannelOutlivesItsCQ(t *testing.T) {
	r := newRig(t)
	ch := good(r.c.CreateCompChannel())(t)
	cq := good(r.c.CreateCQ(CQConfig{Entries: 16, Channel: ch}))(t)
	other := good(r.c.CreateCQ(CQConfig{Entries: 16}))(t)
	waited := make(chan error, 1)
	go func() { waited <- cq.Wait(t.Context()) }()
	until(func() bool { return ch.reader.Load() == cq })
	cq.life = retirer{cq, func() error {
		if err := ch.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("Close of the channel while its CQ is closed: %v, want ErrBusy", err)
		}
		return cq.retire()
	}}
	check(t, cq.Close())
	if err := <-waited; !errors.Is(err, ErrClosed) {
		t.Errorf("Wait: %v, want ErrClosed", err)
	}
	check(t, ch.Close())
	check(t, second(other.Poll(make([]WC, 1))))
	if r.c.deviceGone.Load() {
		t.Error("the device counts as gone")
	}
}

// TestChannelBroken checks that a channel that cannot be read for another reason makes only its own
// waits fail.
func TestChannelBroken(t *testing.T) {
	r := newRig(t)
	cq := good(r.c.CreateCQ(CQConfig{Entries: 16}))(t)
	check(t, r.k.Break(cq.handle))
	for range 2 {
		if err := cq.Wait(t.Context()); !errors.Is(err, unix.EIO) || errors.Is(err, ErrDeviceGone) {
			t.Errorf("Wait: %v", err)
		}
	}
	check(t, second(cq.Poll(make([]WC, 1))))
}

// TestPanicUnderCreate checks that no object is left if a function of the program panics while the
// object is being created.
func TestPanicUnderCreate(t *testing.T) {
	r := newRig(t)
	ch := good(r.c.CreateCompChannel())(t)
	impl, ids, before := r.c.impl, r.c.ids.count(), r.k.Live()
	r.c.impl = hooked{impl, func() { panic("the program's") }}
	func() {
		defer func() { recover() }()
		_, _ = r.c.CreateCQ(CQConfig{Entries: 4, Channel: ch})
		t.Error("no panic")
	}()
	r.c.impl = impl
	if after := r.k.Live(); !slices.Equal(before, after) || r.c.ids.count() != ids {
		t.Errorf("in the kernel: %v before, %v after; %d ids, %d before", before, after, r.c.ids.count(), ids)
	}
	check(t, ch.Close())
	check(t, r.p.cqs[0].Retire(true)) // the fake's ring, which a provider would have retired
}
