//go:build vm

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// within fails the test if a function takes too long.
func within(t *testing.T, limit time.Duration, what string, do func()) {
	t.Helper()
	started := time.Now()
	do()
	if took := time.Since(started); took > limit {
		t.Errorf("%s took %v, more than %v", what, took, limit)
	}
}

// TestPanic checks that a kernel panic is an error of every running command,
// with the console.
func TestPanic(t *testing.T) {
	g := Start(t, Config{Kernel: "6.12", Root: true})
	bystander := g.Command("sleep", "1000")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	var err error
	within(t, 30*time.Second, "a panic", func() {
		err = g.Command(probe(t, g), "crash-kernel").Run()
	})
	other := bystander.Wait()
	for _, err := range []error{err, other, g.Err(), g.Command("true").Run()} {
		text := fmt.Sprint(err)
		if !strings.Contains(text, "Kernel panic") || !strings.Contains(text, "sysrq triggered crash") {
			t.Errorf("error %v", err)
		}
	}
	if err := g.Close(); err == nil {
		t.Error("Close of a crashed guest returns nil")
	}
}

// TestHang checks that a guest without a heartbeat is an error of every running
// command.
func TestHang(t *testing.T) {
	g := Start(t, Config{Kernel: "6.12", HangTimeout: 5 * time.Second})
	c := g.Command(probe(t, g), "forever")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.QMP("stop", nil, nil); err != nil {
		t.Fatal(err)
	}
	within(t, 20*time.Second, "detecting a hang", func() {
		err := c.Wait()
		if text := fmt.Sprint(err); !strings.Contains(text, "hangs") || !strings.Contains(text, "paused") {
			t.Errorf("error %v", err)
		}
	})
	if g.Close() == nil {
		t.Error("Close of a guest that hung returns nil")
	}
}

// TestNoBoot checks that a kernel that does not start the agent is an error of
// Boot.
func TestNoBoot(t *testing.T) {
	for name, c := range map[string]Config{
		"panics": {KernelArgs: []string{"rdinit=/nowhere", "root=/dev/nothing"}},
		"late":   {BootTimeout: time.Second},
		"qemu":   {QEMUArgs: []string{"-no-such-option"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.Kernel = "6.12"
			_, err := Boot(t.Context(), theBed(t, c), c)
			want := map[string]string{"panics": "Kernel panic", "late": "no response after 1s", "qemu": "-no-such-option"}[name]
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		})
	}
}

func TestBootContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	c := Config{Kernel: "6.12"}
	if _, err := Boot(ctx, theBed(t, c), c); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

// envHelper selects another function of the test binary.
const envHelper = "GOVERBS_TEST_HELPER"

func helper(t *testing.T, mode string) *exec.Cmd {
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelperProcess$", "-test.v", "-test.timeout=5m")
	c.Env = append(os.Environ(), envHelper+"="+mode)
	return c
}

// ends waits until the process of a pidfd has exited.
func ends(pidfd int, limit time.Duration) bool {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		poll := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
		if n, _ := unix.Poll(poll, int(time.Until(deadline).Milliseconds())); n == 1 { // otherwise: interrupted
			return true
		}
	}
	return false
}
