//go:build device

package rxe

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/internal/sim/providertest"
	"github.com/goverbs/goverbs/uverbs"
)

// deviceName returns the rxe device that GOVERBS_DEVICE names.
func deviceName(t testing.TB) string {
	t.Helper()
	name := os.Getenv("GOVERBS_DEVICE")
	if name == "" {
		t.Fatal("set GOVERBS_DEVICE to the rxe device to test, rxe0 for instance")
	}
	return name
}

// ways calls f with each of the two ways to issue commands.
func ways(f func(name string)) {
	was := preferWrite
	defer func() { preferWrite = was }()
	for _, preferWrite = range []bool{true, false} {
		f(map[bool]string{true: "write", false: "ioctl"}[preferWrite])
	}
}

// TestDeviceOpen checks that Open opens the device if the kernel's rxe is safe, and refuses it if a send could loop in
// the kernel forever.
func TestDeviceOpen(t *testing.T) {
	ctx, err := uverbs.Open(deviceName(t))
	kernel, device, ok := features.Here()
	if !ok {
		device = "rxe"
		release, err := kernelRelease()
		check(t, err)
		kernel = release
	}
	usable, why, _ := features.Lookup(kernel, device, features.Usable)
	switch {
	case err == nil && !usable:
		t.Errorf("opened on kernel %s, although %s", kernel, why)
	case err == nil:
	case usable || !errors.Is(err, uverbs.ErrNotSupported):
		t.Errorf("kernel %s: %v", kernel, err)
	default:
		t.Logf("refused, as expected: %v", err)
	}
	if err == nil {
		check(t, ctx.Close())
	}
}

func TestDeviceConformance(t *testing.T) {
	ways(func(way string) {
		t.Run(way, func(t *testing.T) {
			name := deviceName(t)
			providertest.Run(t, func(t *testing.T) *providertest.Rig { return providertest.Device(t, name) })
			t.Run("SRQ", func(t *testing.T) {
				providertest.RunSRQ(t, func(t *testing.T) *providertest.Rig { return providertest.DeviceSRQ(t, name) })
			})
			t.Run("UC", func(t *testing.T) {
				providertest.RunUC(t, func(t *testing.T) *providertest.Rig { return providertest.DeviceUC(t, name) })
			})
			t.Run("UD", func(t *testing.T) {
				providertest.RunUD(t, func(t *testing.T) *providertest.Rig { return providertest.DeviceUD(t, name) })
			})
		})
	})
}

// TestDeviceCredentials checks that commands are issued with ioctl(2) after the process has changed its credentials:
// the kernel then refuses write(2) on a node that was opened before.
func TestDeviceCredentials(t *testing.T) {
	ways(func(way string) {
		r := newBenchRig(t)
		again := func() {
			t.Helper()
			check(t, r.cq.Arm(false))
			r.post(t, uverbs.Signaled)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			check(t, r.cq.Wait(ctx))
			r.drain(t)
		}
		again()
		groups, err := syscall.Getgroups()
		check(t, err)
		check(t, syscall.Setgroups(groups)) // the same groups, but new credentials for the kernel
		again()
		again()
	})
}

// TestDeviceRingsUnmapped checks that Close unmaps the kernel's pages immediately.
func TestDeviceRingsUnmapped(t *testing.T) {
	mapped := func() int {
		maps, err := os.ReadFile("/proc/self/maps")
		check(t, err)
		return strings.Count(string(maps), "/dev/infiniband/")
	}
	before := mapped()
	r := newBenchRig(t)
	if n := mapped(); n != before+3 {
		t.Errorf("%d mappings, want %d for the three rings", n, before+3)
	}
	check(t, r.cq.Resize(127))
	if n := mapped(); n != before+3 {
		t.Errorf("%d mappings after Resize, want %d", n, before+3)
	}
	check(t, r.qp.Close())
	if n := mapped(); n != before+1 {
		t.Errorf("%d mappings without the QP, want %d", n, before+1)
	}
	check(t, r.cq.Close())
	if n := mapped(); n != before {
		t.Errorf("%d mappings without the CQ, want %d", n, before)
	}
}

// BenchmarkDeviceDoorbell compares the two ways, in turn on the same device: for Arm, which only issues the command,
// and for a post of one WRITE without data, including the kernel's work for it.
func BenchmarkDeviceDoorbell(b *testing.B) {
	const posts = 10
	var rigs []*benchRig
	ways(func(string) { rigs = append(rigs, newBenchRig(b)) })
	for _, c := range []struct {
		name string
		run  func(r *benchRig)
	}{
		{"arm", func(r *benchRig) {
			for range posts {
				check(b, r.cq.Arm(false))
			}
		}},
		{"post", func(r *benchRig) {
			for range posts - 1 {
				r.post(b, 0)
			}
			r.post(b, uverbs.Signaled)
			r.drain(b)
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took [2][]float64
			for b.Loop() {
				for i, r := range rigs {
					start := time.Now()
					c.run(r)
					took[i] = append(took[i], float64(time.Since(start).Nanoseconds())/posts)
				}
			}
			var median [2]float64
			for i := range took {
				slices.Sort(took[i])
				median[i] = took[i][len(took[i])/2]
			}
			b.ReportMetric(median[0], "write-ns")
			b.ReportMetric(median[1], "ioctl-ns")
			b.ReportMetric(median[1]/median[0], "ioctl/write")
		})
	}
}

// benchRig is a QP connected to itself.
type benchRig struct {
	qp *uverbs.QP
	cq *uverbs.CQ
}

var check = errtest.Check

func newBenchRig(t testing.TB) *benchRig {
	ctx, err := uverbs.Open(deviceName(t))
	check(t, err)
	t.Cleanup(func() { check(t, ctx.Close()) })
	pd, err := ctx.AllocPD()
	check(t, err)
	cq, err := ctx.CreateCQ(uverbs.CQConfig{Entries: 63})
	check(t, err)
	qp, err := pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 63, Access: uverbs.RemoteWrite})
	check(t, err)
	self, err := qp.Endpoint()
	check(t, err)
	check(t, qp.Connect(self))
	return &benchRig{qp: qp, cq: cq}
}

func (r *benchRig) post(t testing.TB, f uverbs.SendFlags) {
	_, err := r.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: f})
	check(t, err)
}

func (r *benchRig) drain(t testing.TB) {
	var wcs [1]uverbs.WC
	for {
		n, err := r.cq.Poll(wcs[:])
		check(t, err)
		if n == 1 {
			check(t, wcs[0].Err())
			return
		}
	}
}
