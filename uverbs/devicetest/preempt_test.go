package devicetest

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceLoopsArePreempted checks that a garbage collection can stop loops of posts and polls without
// signals: programs set asyncpreemptoff=1 under debuggers and tracers, and beside C libraries whose system
// calls must not be interrupted. Goroutines are then preempted only where functions check for it.
func TestDeviceLoopsArePreempted(t *testing.T) {
	const off = "asyncpreemptoff=1"
	if deviceName(t); !inMemory() {
		needEndpoints(t, openDevice(t))
	}
	if !strings.Contains(os.Getenv("GODEBUG"), off) {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), "GODEBUG="+off)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("with %s: %v\n%s", off, err, out)
		}
		return
	}
	for _, single := range []bool{false, true} {
		l := newLoop(t, func(c *uverbs.QPConfig) { c.SingleGoroutine = single })
		cq := must(l.dev.CreateCQ(uverbs.CQConfig{Entries: 16, SingleGoroutine: single}))(t)
		wcs := make([]uverbs.WC, 4)
		for name, loop := range map[string]func(stop *atomic.Bool) error{
			"Poll": func(stop *atomic.Bool) (err error) {
				for i := 0; i < many && err == nil && !stop.Load(); i++ {
					_, err = cq.Poll(wcs)
				}
				return err
			},
			"PostSend": func(stop *atomic.Bool) (err error) {
				for i := 0; i < many && err == nil && !stop.Load(); i++ {
					_, err = l.a.qp.PostSend()
				}
				return err
			},
			"PostRecv": func(stop *atomic.Bool) (err error) {
				for i := 0; i < many && err == nil && !stop.Load(); i++ {
					_, err = l.a.qp.PostRecv()
				}
				return err
			},
		} {
			if err := preempted(loop); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// many calls take far longer than a garbage collection.
const many = 1 << 29

// preempted runs garbage collections beside a goroutine that calls loop. The loop itself must contain
// the calls to be tested: a function in between would check for preemption.
func preempted(loop func(stop *atomic.Bool) error) error {
	var stop atomic.Bool
	started, ended := make(chan struct{}), make(chan error)
	go func() {
		close(started)
		ended <- loop(&stop)
	}()
	<-started
	runtime.GC()
	select {
	case err := <-ended:
		return fmt.Errorf("the loop ended before the garbage collection, which may have waited for it; its error: %v", err)
	default:
	}
	stop.Store(true)
	return <-ended
}
