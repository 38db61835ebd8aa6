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

// Close waits for commands in progress. Later commands return os.ErrClosed.
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
	// Once a command is refused, Close is in progress.
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

// refusedBy probes the device with a call that never reaches the fake kernel.
func refusedBy(d *ioctl.Device) error {
	b, err := d.Mmap(0, 0, unix.PROT_READ)
	if err == nil {
		_ = ioctl.Unmap(b)
	}
	return err
}

// Many goroutines issue commands and close at once. Each command either runs or fails with
// os.ErrClosed, and the descriptor's number is not used afterwards.
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

// writer counts frames and rejects some.
type writer struct {
	results []error
	n       int
}

func (w *writer) Ioctl(ioctl.Call) error { return nil }

func (w *writer) Write([]byte) error {
	w.n++
	return w.results[w.n-1]
}

// After one EACCES, Write always reports that the caller must use the ioctl.
func TestWriteFallback(t *testing.T) {
	w := &writer{results: []error{nil, unix.ENOMEM, unix.EACCES}}
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

// interrupted is a kernel whose first calls are interrupted by a signal.
type interrupted struct{ ioctls, writes int }

func (k *interrupted) Ioctl(ioctl.Call) error { return fails(&k.ioctls) }
func (k *interrupted) Write([]byte) error     { return fails(&k.writes) }

func fails(n *int) error {
	if *n++; *n < 3 {
		return unix.EINTR
	}
	return nil
}

// A command that a signal interrupts is issued again, both by Do and by Write.
func TestInterrupted(t *testing.T) {
	k := new(interrupted)
	d := fake(t, k)
	defer d.Close()
	c := ioctl.Get()
	defer c.Put()
	build(c)
	if err := d.Do(c); err != nil || k.ioctls != 3 {
		t.Errorf("Do: %v after %d calls", err, k.ioctls)
	}
	for _, brief := range []bool{false, true} {
		k.writes = 0
		if ok, err := d.Write([]byte{1, 2, 3, 4}, brief); !ok || err != nil || k.writes != 3 {
			t.Errorf("Write: %v, %v after %d calls", ok, err, k.writes)
		}
	}
}
