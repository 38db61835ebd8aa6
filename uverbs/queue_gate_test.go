package uverbs

import (
	"errors"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"golang.org/x/sys/unix"
)

// A gated has posts to one queue of each kind, and calls that change the queue and restore it.
type gated struct {
	*bundle
	posts   map[string]func() error
	changes map[string]func() error
}

func (r *rig) gated(t *testing.T) gated {
	b := r.bundle(t, false)
	srq := good(b.pd.CreateSRQ(SRQConfig{MaxWR: 8}))(t)
	refused := func(destroy func() error) func() error {
		return func() error {
			if err := destroy(); !errors.Is(err, unix.EPERM) {
				return errors.Join(errors.New("Close: want EPERM"), err)
			}
			return nil
		}
	}
	return gated{b,
		map[string]func() error{
			"PostSend":           func() error { return second(b.qp.PostSend(SendWR{Opcode: OpSend, Flags: Signaled})) },
			"PostRecv":           func() error { return second(b.qp.PostRecv(RecvWR{})) },
			"PostRecv of an SRQ": func() error { return second(srq.PostRecv(RecvWR{})) },
		},
		map[string]func() error{
			"MODIFY_QP": func() error {
				return errors.Join(b.qp.Modify(QPAttr{State: StateReset}, MaskState), b.qp.Connect(good(b.qp.Endpoint())(t)))
			},
			"QP.DESTROY":  refused(b.qp.Close),
			"SRQ.DESTROY": refused(srq.Close),
		},
	}
}

// refuseDestroy makes the kernel refuse to destroy queues.
func (r *rig) refuseDestroy(t *testing.T) {
	t.Cleanup(func() { r.k.Set(func() { r.k.Before, r.k.Refuse = nil, nil }) })
	r.k.Set(func() {
		r.k.Refuse = map[string]unix.Errno{"QP.DESTROY": unix.EPERM, "SRQ.DESTROY": unix.EPERM}
	})
}

// TestGoneUnderChange makes the device fail while the kernel executes the command of a state
// change. When the change sets the gates afterwards, it must not open any.
func TestGoneUnderChange(t *testing.T) {
	for _, command := range []string{"MODIFY_QP", "QP.DESTROY", "SRQ.DESTROY"} {
		t.Run(command, func(t *testing.T) {
			r := newRig(t)
			g := r.gated(t)
			r.refuseDestroy(t)
			r.k.Set(func() {
				r.k.Before = func(m *ioctltest.Msg) {
					if m.Name == command {
						r.c.markDeviceGone()
					}
				}
			})
			check(t, g.changes[command]())
			g.allGone(t)
		})
	}
}

func (g gated) allGone(t *testing.T) {
	t.Helper()
	for name, post := range g.posts {
		if err := post(); !errors.Is(err, ErrDeviceGone) {
			t.Errorf("%s: %v, want ErrDeviceGone", name, err)
		}
	}
}

// TestGoneUnderCreate makes the device fail while a queue is being created.
func TestGoneUnderCreate(t *testing.T) {
	for command, post := range map[string]func(*testing.T, *bundle) error{
		"QP.CREATE": func(t *testing.T, b *bundle) error {
			return second(good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq, MaxRecvWR: 1}))(t).PostRecv(RecvWR{}))
		},
		"SRQ.CREATE": func(t *testing.T, b *bundle) error {
			return second(good(b.pd.CreateSRQ(SRQConfig{MaxWR: 1}))(t).PostRecv(RecvWR{}))
		},
	} {
		for _, when := range []string{"before", "during"} {
			t.Run(command+" "+when, func(t *testing.T) {
				r := newRig(t)
				b := r.bundle(t, false)
				if when == "before" {
					r.c.markDeviceGone()
				}
				r.k.Set(func() {
					r.k.Before = func(m *ioctltest.Msg) {
						if m.Name == command {
							r.c.markDeviceGone()
						}
					}
				})
				if err := post(t, b); !errors.Is(err, ErrDeviceGone) {
					t.Errorf("PostRecv: %v, want ErrDeviceGone", err)
				}
			})
		}
	}
}

// TestGoneRaces makes the device fail concurrently with posts and changes of every kind.
func TestGoneRaces(t *testing.T) {
	for i := range 5 {
		t.Run(strconv.Itoa(i), loseBeside)
	}
}

func loseBeside(t *testing.T) {
	r := newRig(t)
	g := r.gated(t)
	r.refuseDestroy(t)
	var gone, over atomic.Bool
	var changing, posting, running sync.WaitGroup
	for name, post := range g.posts {
		running.Add(1)
		posting.Go(func() {
			for first := true; !over.Load(); first = false {
				if err := post(); err != nil && !errors.Is(err, ErrQueueFull) && !errors.Is(err, ErrState) &&
					!errors.Is(err, ErrDeviceGone) {
					t.Errorf("%s: %v", name, err)
				}
				if first {
					running.Done()
				}
				runtime.Gosched() // there are more goroutines than CPUs
			}
		})
	}
	for name, change := range g.changes {
		running.Add(1)
		changing.Go(func() {
			for i, left := 0, 20; left > 0; i++ {
				if gone.Load() {
					left--
				}
				if err := change(); err != nil {
					t.Errorf("%s: %v", name, err)
					left = 0
				}
				if i == 0 {
					running.Done()
				}
			}
		})
	}
	running.Wait()
	r.c.markDeviceGone()
	gone.Store(true)
	changing.Wait()
	over.Store(true)
	posting.Wait()
	g.allGone(t)
}

// TestNoQueue checks that a post to a queue that the QP was created without returns ErrNoQueue in
// every state, and does not refer the caller to an SRQ.
func TestNoQueue(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	for name, cfg := range map[string]QPConfig{"no receives": {MaxSendWR: 4}, "no sends": {MaxRecvWR: 4}} {
		cfg.Type, cfg.SendCQ = RC, b.cq
		qp := good(b.pd.CreateQP(cfg))(t)
		post := func() (send, recv error) {
			return second(qp.PostSend(SendWR{Opcode: OpSend, Inline: []byte{}})), second(qp.PostRecv(RecvWR{}))
		}
		for _, to := range []func() error{func() error { return nil }, qp.Init,
			func() error { return qp.Connect(good(b.qp.Endpoint())(t)) },
			func() error { return qp.Modify(QPAttr{State: StateErr}, MaskState) }} {
			check(t, to())
			send, recv := post()
			if got := map[bool]error{true: send, false: recv}[cfg.MaxSendWR == 0]; got != ErrNoQueue {
				t.Errorf("%s, in %v: %v", name, qp.State(), got)
			}
			if got := map[bool]error{true: recv, false: send}[cfg.MaxSendWR == 0]; got == ErrNoQueue || got == ErrSRQ {
				t.Errorf("%s, in %v, to the other queue: %v", name, qp.State(), got)
			}
		}
	}
}
