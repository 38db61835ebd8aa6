package vm

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm/internal/tsc"
	"github.com/goverbs/goverbs/testbed/vm/internal/wire"
)

// TestAgentFromAnywhere checks that the agent is compiled in any working directory, as a built program needs.
func TestAgentFromAnywhere(t *testing.T) {
	cache := t.TempDir()
	t.Chdir(t.TempDir())
	if program, err := buildAgent(t.Context(), cache, runtime.GOARCH); err != nil || len(program) == 0 {
		t.Errorf("%d bytes, %v", len(program), err)
	}
}

func TestTroubleIn(t *testing.T) {
	const (
		panics = "[    9.1] Kernel panic - not syncing: sysrq triggered crash"
		lockup = "[ 60.0] watchdog: BUG: soft lockup - CPU#0 stuck for 26s!"
	)
	for text, want := range map[string]string{
		"[    1.0] all is well\n": "",
		"x\n" + panics + "\nmore": panics,
		lockup + "\n":             lockup,
		"Oops: 0002 [#1]":         "Oops: 0002 [#1]",
	} {
		if got := troubleIn(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestConsole checks that a crash is reported once, however the console's text
// is split.
func TestConsole(t *testing.T) {
	const text = "booting\r\nKernel panic - not syncing\r\nBUG: again\r\n"
	for size := 1; size < len(text); size++ {
		var tee bytes.Buffer
		reported := 0
		c := newConsole(&tee, func(string) { reported++ })
		r, w := io.Pipe()
		go func() {
			for rest := text; rest != ""; {
				n := min(size, len(rest))
				if _, err := io.WriteString(w, rest[:n]); err != nil {
					t.Error(err)
				}
				rest = rest[n:]
			}
			w.Close()
		}()
		if err := c.follow(r); err != nil {
			t.Fatal(err)
		}
		if reported != 1 || tee.String() != text {
			t.Errorf("pieces of %d: reported %d times, forwarded %q", size, reported, &tee)
		}
		if want := strings.ReplaceAll(text, "\r", ""); c.String() != want || c.tail(1) != "BUG: again" {
			t.Errorf("kept %q, tail %q", c.String(), c.tail(1))
		}
	}
}

func TestConsoleForgetsTheOldest(t *testing.T) {
	c := newConsole(nil, func(string) {})
	for range 3 {
		c.add(bytes.Repeat([]byte("x"), consoleLimit/2))
	}
	c.add([]byte("end"))
	if got := c.String(); len(got) != consoleLimit || !strings.HasSuffix(got, "end") {
		t.Errorf("%d bytes kept", len(got))
	}
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]Config{
		"root on arm64": {Kernel: "6.12", Arch: "arm64", Root: true},
		"init and root": {Kernel: "6.12", Init: "x", Root: true},
		"no slots left": {Kernel: "6.12", VFIOUser: make([]string, 9)},
		"fabric alone":  {Kernel: "6.12", Fabric: true},
		"apps alone":    {Kernel: "6.12", Apps: true},
	} {
		if _, err := c.withDefaults(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := (Config{Kernel: "6.12", Arch: "arm64", VFIOUser: []string{"s"}}).withDefaults(); err != nil {
		t.Errorf("a device in an arm64 guest: %v", err)
	}
	c, err := Config{Kernel: "6.12", ICount: true}.withDefaults()
	if err != nil || c.CPUs != 1 || c.Arch != "amd64" || c.BootTimeout != 3*time.Minute {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := (Config{Kernel: "2.4"}).Parts(); err == nil {
		t.Error("kernel 2.4 has parts")
	}
	if args := (Config{KernelArgs: []string{"a=b"},
		InitArgs: []string{"c"}}).kernelArgs(); strings.Join(args[len(args)-3:], " ") != "a=b -- c" {
		t.Errorf("kernel arguments %q", args)
	}
}

// TestTSCArgs checks that an emulated amd64 guest gets the frequency of its
// TSC.
func TestTSCArgs(t *testing.T) {
	reported := func(c Config) bool {
		c, err := c.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(strings.Join(c.kernelArgs(), " ")+" ", " tsc_early_khz="+strconv.Itoa(tsc.KHz())+" ")
	}
	if runtime.GOARCH == "amd64" && !reported(Config{Kernel: "6.12"}) {
		t.Error("the guest has to calibrate its TSC")
	}
	for name, c := range map[string]Config{
		"arm64": {Kernel: "6.12", Arch: "arm64"}, "ICount": {Kernel: "6.12", ICount: true},
		"KVM": {Kernel: "6.12", kvm: true},
	} {
		if reported(c) {
			t.Errorf("%s: has the frequency of another clock", name)
		}
	}
}

func TestCheckClock(t *testing.T) {
	for _, c := range []struct {
		uptime, passed time.Duration
		icount, bad    bool
	}{
		{3 * time.Second, 4 * time.Second, false, false},
		{time.Second, time.Second, false, false},
		{8 * time.Second, 4 * time.Second, false, true},
		{240 * time.Second, 30 * time.Second, false, true},
		{240 * time.Second, 30 * time.Second, true, false},
	} {
		if err := (Config{ICount: c.icount}).checkClock(c.uptime, c.passed); (err != nil) != c.bad {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestVFIOUser checks that each device model has a separate slot, and access to
// the guest's memory.
func TestVFIOUser(t *testing.T) {
	c, err := Config{Kernel: "6.12", VFIOUser: []string{"/a", `/b,"c`}}.withDefaults()
	if err != nil || !c.SharedMemory {
		t.Fatalf("%+v, %v", c, err)
	}
	var q commandLine
	if err := q.vfioUser(c); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"-device", "pcie-root-port,id=vfio0-slot,chassis=5,mem-reserve=16M,pref64-reserve=256M",
		"-device", `{"bus":"vfio0-slot","driver":"vfio-user-pci","id":"vfio0","socket":{"path":"/a","type":"unix"}}`,
		"-device", "pcie-root-port,id=vfio1-slot,chassis=6,mem-reserve=16M,pref64-reserve=256M",
		"-device", `{"bus":"vfio1-slot","driver":"vfio-user-pci","id":"vfio1","socket":{"path":"/b,\"c","type":"unix"}}`,
	}
	if !slices.Equal(q.args, want) {
		t.Errorf("arguments %q, want %q", q.args, want)
	}
	g := &Guest{config: c}
	if err := g.DeviceDel("vfio1"); err == nil {
		t.Error("a device was removed: QEMU would abort")
	}
	if err := (&Guest{}).AddVFIOUser("x", "/a"); err == nil {
		t.Error("a device without access to the guest's memory was added")
	}
}

// TestRunDir checks that a run directory exists as long as its lock.
func TestRunDir(t *testing.T) {
	top := filepath.Join(t.TempDir(), "run")
	first, err := newRunDir(top)
	if err != nil {
		t.Fatal(err)
	}
	second, err := newRunDir(top)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.lock.Close(); err != nil { // as when the process exits
		t.Fatal(err)
	}
	if err := sweepRunDirs(top); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(first.path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dead process's directory still exists: %v", err)
	}
	if _, err := os.Stat(second.path); err != nil {
		t.Errorf("a live process's directory was removed: %v", err)
	}
	if err := second.remove(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(top); err != nil || len(left) != 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// TestOutputQueue checks that output received before the guest fails is
// written, and that nothing waits for more.
func TestOutputQueue(t *testing.T) {
	var q outputQueue
	q.init()
	dead := make(chan struct{})
	q.add(wire.Frame{Stream: 1})
	close(dead)
	if f, ok := q.next(dead); !ok || f.Stream != 1 {
		t.Error("received output is lost")
	}
	if _, ok := q.next(dead); ok || q.complete() {
		t.Error("the output of a failed guest is complete")
	}
	q.end()
	if _, ok := q.next(nil); ok || !q.complete() {
		t.Error("no end")
	}
}

func TestLinkEnds(t *testing.T) {
	a, b, err := Link()
	if err != nil {
		t.Fatal(err)
	}
	q := &commandLine{}
	if err := q.nic(0, a); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(q.close(), a.Close(), b.Close(), b.Close()); err != nil {
		t.Error(err)
	}
	for name, n := range map[string]NIC{"used": a, "zero": {}} {
		if err := q.nic(0, n); err == nil {
			t.Errorf("a NIC that is %s was accepted", name)
		}
	}
}

// FuzzMonitor checks that follow returns for any output of QEMU.
func FuzzMonitor(f *testing.F) {
	f.Add([]byte(`{"QMP": {}}{"event": "DEVICE_DELETED", "data": {"device": "x"}}{"return": {}, "id": 1}`))
	f.Fuzz(func(t *testing.T, said []byte) {
		name := filepath.Join(t.TempDir(), "said")
		if err := os.WriteFile(name, said, 0o600); err != nil {
			t.Fatal(err)
		}
		conn, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		m := newMonitor(conn)
		go func() {
			for range m.replies { // no command reads them
			}
		}()
		m.follow()
		close(m.replies)
	})
}

// TestPlug checks that frames pass between a program and the guest's end of a
// cable.
func TestPlug(t *testing.T) {
	nic, conn, err := Plug()
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	for _, way := range []struct {
		from io.Writer
		to   io.Reader
	}{{conn, nic.end}, {nic.end, conn}} {
		got := make([]byte, 5)
		if _, err := io.WriteString(way.from, "frame"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(way.to, got); err != nil || string(got) != "frame" {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if err := errors.Join(nic.Close(), conn.Close()); err != nil {
		t.Error(err)
	}
}
