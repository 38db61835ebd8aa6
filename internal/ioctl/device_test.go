package ioctl_test

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/internal/ioctl"
	"golang.org/x/sys/unix"
)

// Close waits for commands in flight; what comes later is told so.
func TestCloseWaits(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	d := fake(t, kernelFunc(func(ioctl.Call) error {
		close(inside)
		<-leave
		return nil
	}))
	var wg sync.WaitGroup
	wg.Go(func() {
		c := ioctl.Get()
		defer c.Put()
		build(c)
		if err := d.Do(c); err != nil {
			t.Errorf("the command in flight: %v", err)
		}
	})
	<-inside
	closed := make(chan struct{})
	var returned atomic.Bool
	wg.Go(func() {
		defer close(closed)
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		returned.Store(true)
	})
	// Once a command is refused, Close is under way.
	late := ioctl.Get()
	defer late.Put()
	build(late)
	for !errors.Is(refusedBy(d), os.ErrClosed) {
	}
	if returned.Load() {
		t.Error("Close returned with a command in flight")
	}
	close(leave)
	<-closed
	wg.Wait()
	if err := d.Do(late); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := d.Mmap(0, 4096, unix.PROT_READ); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Mmap after Close: %v", err)
	}
	if ok, err := d.Write(nil, true); !ok || !errors.Is(err, os.ErrClosed) {
		t.Errorf("Write after Close: %v, %v", ok, err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

// refusedBy probes by a call that never reaches the kernel function.
func refusedBy(d *ioctl.Device) error {
	b, err := d.Mmap(0, 0, unix.PROT_READ)
	if err == nil {
		_ = ioctl.Unmap(b)
	}
	return err
}

// Many goroutines issue and close at once: each command is either answered or
// refused by os.ErrClosed, and the descriptor's number is never used after.
func TestConcurrentClose(t *testing.T) {
	for range 200 {
		var open atomic.Bool
		open.Store(true)
		d := fake(t, kernelFunc(func(ioctl.Call) error {
			if !open.Load() {
				t.Error("a command was issued after Close")
			}
			return nil
		}))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				c := ioctl.Get()
				defer c.Put()
				for range 20 {
					build(c)
					if err := d.Do(c); err != nil && !errors.Is(err, os.ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		for range 2 {
			wg.Go(func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
				open.Store(false)
			})
		}
		wg.Wait()
	}
}

// writer counts frames and refuses some.
type writer struct {
	answers []error
	n       int
}

func (w *writer) Ioctl(ioctl.Call) error { return nil }

func (w *writer) Write([]byte) error {
	w.n++
	return w.answers[w.n-1]
}

// After one EACCES, Write says at once that the ioctl is to be taken.
func TestWriteFallback(t *testing.T) {
	w := &writer{answers: []error{nil, unix.ENOMEM, unix.EACCES}}
	d := fake(t, w)
	for i, want := range []struct {
		ok  bool
		err error
	}{{true, nil}, {true, unix.ENOMEM}, {false, nil}, {false, nil}} {
		ok, err := d.Write([]byte{1}, i%2 == 0)
		if ok != want.ok || !errors.Is(err, want.err) {
			t.Errorf("write %d: %v, %v; want %v, %v", i, ok, err, want.ok, want.err)
		}
	}
	if w.n != 3 {
		t.Errorf("write(2) was tried %d times, want 3", w.n)
	}
}

func TestWriteReachesTheDescriptor(t *testing.T) {
	d := ordinary(t)
	for _, w := range []struct {
		frame string
		brief bool
	}{{"fra", true}, {"me", false}} {
		if ok, err := d.Write([]byte(w.frame), w.brief); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	b, err := d.Mmap(0, 4096, unix.PROT_READ)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(b[:5]); got != "frame" {
		t.Errorf("the file holds %q", got)
	}
	if err := ioctl.Unmap(b); err != nil {
		t.Error(err)
	}
}
