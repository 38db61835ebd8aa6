package connectx

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/testbed/connectx/control"
)

var _ control.Firmware = (*Device)(nil)

// TestFailCommand checks that the selected commands fail, with status and
// syndrome, and are not executed.
func TestFailCommand(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	v.loop.Run(func() {
		if err := v.device.FailCommand(0x802, 8, 0xdeadbeef, 1, 2); err != nil {
			t.Error(err)
		}
	})
	var got []uint64
	for range 4 {
		out := v.try(0x802, 0, 0, 0, nil)
		got = append(got, prm.CmdStatus.Get(out))
		if prm.CmdStatus.Is(out) && (prm.CmdSyndrome.Get(out) != 0xdeadbeef || prm.AllocUAROutUAR.Is(out)) {
			t.Errorf("%s, page %#x", hexStatus(out), prm.AllocUAROutUAR.Get(out))
		}
	}
	if got[0] != 0 || got[1] != 8 || got[2] != 8 || got[3] != 0 {
		t.Errorf("statuses %v", got)
	}
	if n := len(v.device.failures); n != 0 {
		t.Errorf("%d failures are pending", n)
	}
	if n := len(v.device.uars.used); n != 3 { // one of boot and two
		t.Errorf("%d UAR pages are allocated", n)
	}
}

// TestManyFailures checks the bound on pending failures.
func TestManyFailures(t *testing.T) {
	v := newDriver(t, nil)
	v.loop.Run(func() {
		var err error
		for n := 0; err == nil; n++ {
			if err = v.device.FailCommand(0x802, 8, 0, 0, 1); n > maxFailures {
				t.Fatalf("%d failures are pending", n)
			}
		}
		v.device.Reset()
		if err := v.device.FailCommand(0x802, 8, 0, 0, 1); err != nil {
			t.Error(err)
		}
	})
}

// TestHealth checks that failed firmware executes no commands, and reports the
// syndrome.
func TestHealth(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	v.loop.Run(func() { v.device.SetHealth(0x10) })
	if got := v.read(0x23c); got != 0x10<<16 {
		t.Errorf("health syndrome word %#x", got)
	}
	if got := v.read(0x238); got != 0x8a<<24 { // the firmware requests a reset, the severity is critical
		t.Errorf("health severity word %#x", got)
	}
	entry := v.put(0, input(0x80d, 0, prm.NOPIn, 0, nil), 16)
	v.ring(1)
	if !prm.CmdEntryOwnership.Is(entry) {
		t.Error("failed firmware executed a command")
	}
	v.loop.Run(func() { v.device.SetHealth(0) })
	v.ring(1)
	if prm.CmdEntryOwnership.Is(entry) {
		t.Error("recovered firmware did not execute a command")
	}
}

// TestGone checks that a removed device reads as ones and ignores stores.
func TestGone(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	v.loop.Run(func() { v.device.SetGone(true) })
	if got := v.read(0x230); got != ^uint32(0) {
		t.Errorf("a register reads as %#x", got)
	}
	entry := v.put(0, input(0x80d, 0, prm.NOPIn, 0, nil), 16)
	v.ring(1)
	v.loop.Run(func() { v.device.SetGone(false) })
	if !prm.CmdEntryOwnership.Is(entry) {
		t.Error("a doorbell reached a removed device")
	}
}

// TestRequestPages checks that the running firmware requests pages and returns
// them.
func TestRequestPages(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	_, ring := v.createEQ(4, 1<<eventPageRequest, 0)
	held := v.device.PagesHeld()
	v.loop.Run(func() { v.device.RequestPages(5) })
	e := v.event(ring, 4, 0)
	if e == nil || prm.EQEType.Get(e) != eventPageRequest || prm.EQENumPages.Get(e) != 5 {
		t.Fatalf("event % x", e)
	}
	if n := v.give(pagesRegular); n != 5 || v.device.PagesHeld() != held+5 {
		t.Errorf("it requested %d pages and has %d more", n, v.device.PagesHeld()-held)
	}
	v.loop.Run(func() { v.device.RequestPages(-5) })
	if e := v.event(ring, 4, 1); e == nil || int32(prm.EQENumPages.Get(e)) != -5 {
		t.Fatalf("event % x", e)
	}
	v.take()
	if v.device.PagesHeld() != held {
		t.Errorf("%d pages are held, %d are needed", v.device.PagesHeld(), held)
	}
}

// TestClock checks that the health counter and the internal timer follow the
// clock, without a timer of the loop.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newDriver(t, nil)
		count, high, low := v.read(0x1010), v.read(0x1000), v.read(0x1004)
		<-time.After(time.Second) // synthetic time
		if got := v.read(0x1010) - count; got != 100 {
			t.Errorf("the counter advanced by %d in a second", got)
		}
		before, now := uint64(high)<<32|uint64(low), uint64(v.read(0x1000))<<32|uint64(v.read(0x1004))
		if got := now - before; got != 1e9 {
			t.Errorf("the timer advanced by %d in a second", got)
		}
	})
}
