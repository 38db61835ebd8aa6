//go:build vm

package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"
)

// TestCommand checks that commands behave like those of os/exec, in the
// initramfs and in the Debian root.
func TestCommand(t *testing.T) {
	share := t.TempDir()
	g := Start(t, Config{Kernel: "6.12", Root: true, Share: share})
	p := probe(t, g)
	for _, outside := range []bool{false, true} {
		name := map[bool]string{false: "debian", true: "initramfs"}[outside]
		t.Run(name, func(t *testing.T) {
			command := func(arg ...string) *Cmd {
				c := g.CommandContext(t.Context(), p, arg...)
				c.Outside = outside
				return c
			}
			t.Run("exit", func(t *testing.T) { testExit(t, command) })
			t.Run("streams", func(t *testing.T) { testStreams(t, command) })
			t.Run("identity", func(t *testing.T) { testIdentity(t, command) })
			t.Run("signal", func(t *testing.T) { testSignal(t, command) })
			t.Run("context", func(t *testing.T) { testContext(t, command) })
			t.Run("concurrent", func(t *testing.T) { testConcurrent(t, command) })
			t.Run("held", func(t *testing.T) {
				if err := command("leave-child").Run(); !errors.Is(err, ErrHeld) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
	t.Run("absent", func(t *testing.T) {
		for _, name := range []string{"no-such-program", "/no/such/program"} {
			if err := g.Command(name).Run(); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: error %v", name, err)
			}
		}
	})
	t.Run("share", func(t *testing.T) { testShare(t, g, share) })
	t.Run("terminal", func(t *testing.T) { testTerminal(t, g) })
}

func testExit(t *testing.T, command func(...string) *Cmd) {
	var exit *ExitError
	if err := command("exit", "42").Run(); !errors.As(err, &exit) || exit.ExitCode() != 42 {
		t.Errorf("error %v", err)
	}
	c := command("exit", "0")
	if err := c.Run(); err != nil || c.ProcessState.ExitCode() != 0 {
		t.Errorf("error %v", err)
	}
	if c.Start() == nil {
		t.Error("a command was started twice")
	}
	_, err := command("nonsense").Output()
	if !errors.As(err, &exit) || !strings.Contains(string(exit.Stderr), "nonsense") {
		t.Errorf("error %v", err)
	}
}

func testStreams(t *testing.T, command func(...string) *Cmd) {
	var out, errOut bytes.Buffer
	c := command("both")
	c.Stdout, c.Stderr = &out, &errOut
	if err := c.Run(); err != nil || out.String() != "to stdout\n" || errOut.String() != "to stderr\n" {
		t.Errorf("stdout %q, stderr %q, error %v", &out, &errOut, err)
	}
	in := strings.Repeat("0123456789abcdef", 1<<16)
	c = command("cat")
	c.Stdin = strings.NewReader(in)
	if got, err := c.Output(); err != nil || string(got) != in {
		t.Errorf("%d bytes became %d, error %v", len(in), len(got), err)
	}
	broken := errors.New("broken")
	c = command("cat")
	c.Stdin = io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken))
	if err := c.Run(); !errors.Is(err, broken) {
		t.Errorf("a failing input: error %v", err)
	}
	if got, err := command("cat").Output(); err != nil || len(got) != 0 {
		t.Errorf("without input: %q, %v", got, err)
	}
	if got, err := command("flood").Output(); err != nil || len(got) != 4000*1000 {
		t.Errorf("%d bytes of 4000000 came, error %v", len(got), err)
	}
}

func testIdentity(t *testing.T, command func(...string) *Cmd) {
	c := command("env", "COLOUR")
	c.Env = []string{"COLOUR=blue"}
	if got := output(t, c); got != "blue" {
		t.Errorf("COLOUR is %q", got)
	}
	c = command("id")
	c.UID, c.GID = 1000, 1001
	if got := output(t, c); got != "1000 1001" {
		t.Errorf("user and group %q", got)
	}
	c = command("memlock")
	c.UID = 1000
	c.Rlimits = []Rlimit{{Resource: unix.RLIMIT_MEMLOCK, Soft: 65536, Hard: 131072}}
	if got := output(t, c); got != "65536 131072" {
		t.Errorf("limits %q", got)
	}
}

func testSignal(t *testing.T, command func(...string) *Cmd) {
	c := command("forever")
	out := newLines()
	c.Stdout = out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	out.await(t, "running")
	if err := c.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.Status.Signal() != unix.SIGTERM {
		t.Errorf("error %v", err)
	}
}

func testContext(t *testing.T, command func(...string) *Cmd) {
	c := command("forever")
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	c.ctx = ctx
	if err := c.Run(); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func testConcurrent(t *testing.T, command func(...string) *Cmd) {
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			c := command("cat")
			want := fmt.Sprint(i)
			c.Stdin = strings.NewReader(want)
			if got, err := c.Output(); err != nil || string(got) != want {
				t.Errorf("command %d: %q, %v", i, got, err)
			}
		})
	}
	all.Wait()
}

func testShare(t *testing.T, g *Guest, share string) {
	if err := os.WriteFile(filepath.Join(share, "from-host"), []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := output(t, g.Command("sh", "-c", "cat /share/from-host; echo back > /share/from-guest")); got != "hello" {
		t.Errorf("the guest read %q", got)
	}
	if got, err := os.ReadFile(filepath.Join(share, "from-guest")); err != nil || string(got) != "back\n" {
		t.Errorf("the host read %q, %v", got, err)
	}
}

func testTerminal(t *testing.T, g *Guest) {
	c := g.CommandContext(t.Context(), "sh", "-c", "tty; stty size; read x; echo got $x")
	c.TTY = &WindowSize{Rows: 33, Cols: 77}
	c.Stdin = strings.NewReader("word\n")
	got := output(t, c)
	for _, want := range []string{"/dev/pts/", "33 77", "got word"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %q", want, got)
		}
	}
}
