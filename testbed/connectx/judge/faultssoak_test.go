//go:build vm && soak

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// TestSoakFaults repeats TestFaults on the other kernels, and with more QPs on
// all.
func TestSoakFaults(t *testing.T) {
	many := fault{"scale_1000", scale(1000)}
	t.Run("6.12", func(t *testing.T) { testFaults(t, "6.12", []fault{many}) })
	for _, kernel := range []string{"6.1", "7.2"} {
		t.Run(kernel, func(t *testing.T) { testFaults(t, kernel, append([]fault{many}, faults...)) })
	}
}

// TestSoakCommandQueue checks that without command events C waits until the
// driver's timeout of a command, a minute. The driver never releases the entry
// of that command: whatever resets or removes the device then waits for it, so
// the machine is killed.
func TestSoakCommandQueue(t *testing.T) {
	for _, kernel := range []string{"6.1", "6.12", "7.2"} {
		t.Run(kernel, func(t *testing.T) {
			f := startFaulty(t, kernel, bootToKill)
			y := startPython(t, f.g)
			y.Do("ca = Context(name='mlx5_0')")
			devices, err := f.c.Devices()
			f.must(err)
			f.must(f.c.OverrunEQ("connectx0", devices[0].EQs[0]))
			seconds, reply, _ := strings.Cut(y.Value("timed(lambda: execute('PD(ca)'))"), " ")
			took, err := time.ParseDuration(seconds + "s")
			f.must(err)
			if took < time.Minute || took > 2*time.Minute || reply != "! ETIMEDOUT" {
				t.Errorf("a PD: %q after %v", reply, took)
			}
			f.shell("dmesg | grep -F 'ALLOC_PD(0x800) timeout. Will cause a leak of a command resource'")
		})
	}
}

// bootToKill boots a guest whose kernel cannot power it off at the end of the
// test.
func bootToKill(t testing.TB, c vm.Config) *vm.Guest {
	parts, err := c.Parts()
	if err != nil {
		t.Fatal(err)
	}
	b, err := bed.Ensure(t.Context(), t.Output(), parts...)
	if err != nil {
		t.Fatal(err)
	}
	g, err := vm.Boot(t.Context(), b, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.QMP("quit", nil, nil); err != nil {
			t.Error(err)
		}
		<-g.Done()
		if err := g.Close(); err == nil {
			t.Error("the guest was switched off")
		}
	})
	return g
}
