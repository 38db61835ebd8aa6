//go:build vm && soak

package vm

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKernels checks that every kernel boots, has rxe, and that its C programs
// can communicate.
func TestKernels(t *testing.T) {
	for _, kernel := range []string{"6.1", "6.12", "7.2"} {
		t.Run(kernel, func(t *testing.T) {
			g := Start(t, Config{Kernel: kernel, Root: true, RXE: true})
			if !strings.HasPrefix(g.Release(), kernel+".") || output(t, g.Command("uname", "-r")) != g.Release() {
				t.Errorf("kernel %s is %s", kernel, g.Release())
			}
			if info := output(t, g.Command("ibv_devinfo")); !strings.Contains(info, "PORT_ACTIVE") ||
				!strings.Contains(info, "rxe0") {
				t.Errorf("no active rxe0:\n%s", info)
			}
			pingpong(t, g)
			clean(t, g)
		})
	}
}

func TestARM64(t *testing.T) {
	g := Start(t, Config{Kernel: "6.12", Arch: "arm64", RXE: true})
	if !strings.HasSuffix(g.Release(), "arm64") {
		t.Errorf("kernel %s", g.Release())
	}
	if got := output(t, g.Command(probe(t, g), "env", "GOVERBS_DEVICE")); got != "rxe0" {
		t.Errorf("GOVERBS_DEVICE is %q", got)
	}
	RunTests(t, g, BuildTest(t, "./testdata/guesttests", "", "arm64"), TestOptions{})
}

// TestICount checks that a clock that counts instructions gives the same
// figures each time.
func TestICount(t *testing.T) {
	var figures []string
	for range 2 {
		g := Start(t, Config{Kernel: "6.12", ICount: true})
		figures = append(figures, output(t, g.Command(probe(t, g), "count")))
	}
	if figures[0] != figures[1] {
		t.Errorf("the same work took %s", strings.Join(figures, ", then "))
	}
}

// TestInit checks a custom first process as the only content of the initramfs.
func TestInit(t *testing.T) {
	for mode, want := range map[string]string{"work": "", "fail": "Attempted to kill init"} {
		t.Run(mode, func(t *testing.T) {
			c := Config{Kernel: "6.12", Init: BuildProgram(t, "./testdata/probe", "", ""), InitArgs: []string{mode}}
			g, err := Boot(t.Context(), theBed(t, c), c)
			if err != nil {
				t.Fatal(err)
			}
			err = g.Wait(t.Context())
			if got := fmt.Sprint(err); (err == nil) != (want == "") || !strings.Contains(got, want) {
				t.Errorf("error %v", err)
			}
			if !strings.Contains(g.ConsoleText(), "probe: first process, 1 arguments") {
				t.Errorf("console:\n%s", g.ConsoleText())
			}
			if err := g.Close(); (err == nil) != (want == "") {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

// TestQEMUDoesNotOutliveUs checks that QEMU exits with the process that has
// booted the guest, however that ends, and that the next guest removes its
// files.
func TestQEMUDoesNotOutliveUs(t *testing.T) {
	c := helper(t, "be-killed")
	out := newLines()
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Sscanf(out.await(t, "qemu "), "qemu %d", &pid); err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimPrefix(out.await(t, "run "), "run ")
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !ends(fd, 20*time.Second) {
		t.Errorf("QEMU (%d) outlives us", pid)
	}
	if err := c.Wait(); err == nil {
		t.Error("the helper was not killed")
	}
	Start(t, Config{Kernel: "6.12"})
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s was not removed: %v", dir, err)
	}
}

// pingpong runs the C program with itself.
func pingpong(t *testing.T, g *Guest) {
	t.Helper()
	args := []string{"-d", "rxe0", "-g", "1", "-n", "200"}
	server := g.CommandContext(t.Context(), "ibv_rc_pingpong", args...)
	out := newLines()
	server.Stdout, server.Stderr = out, out
	server.TTY = &WindowSize{Rows: 24, Cols: 80} // so that it does not buffer its output
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	out.await(t, "local address")
	client := output(t, g.CommandContext(t.Context(), "ibv_rc_pingpong", append(args, "127.0.0.1")...))
	if !strings.Contains(client, "200 iters in") {
		t.Errorf("client said:\n%s", client)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("server: %v", err)
	}
}
