//go:build vm

package vm

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// Every kernel boots, has rxe, and its C programs talk to each other.
func TestKernels(t *testing.T) {
	for _, kernel := range []string{"6.1", "6.12", "7.2"} {
		t.Run(kernel, func(t *testing.T) {
			g := Start(t, Config{Kernel: kernel, Root: true, RXE: true})
			if !strings.HasPrefix(g.Release(), kernel+".") || output(t, g.Command("uname", "-r")) != g.Release() {
				t.Errorf("kernel %s is %s", kernel, g.Release())
			}
			if info := output(t, g.Command("ibv_devinfo")); !strings.Contains(info, "PORT_ACTIVE") || !strings.Contains(info, "rxe0") {
				t.Errorf("no active rxe0:\n%s", info)
			}
			pingpong(t, g)
			clean(t, g)
		})
	}
}

// pingpong runs the C program against itself.
func pingpong(t *testing.T, g *Guest) {
	t.Helper()
	args := []string{"-d", "rxe0", "-g", "1", "-n", "200"}
	server := g.CommandContext(t.Context(), "ibv_rc_pingpong", args...)
	out := newLines()
	server.Stdout, server.Stderr = out, out
	server.TTY = &WindowSize{Rows: 24, Cols: 80} // so that it does not buffer what it says
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

// clean checks that the kernel has complained of nothing.
func clean(t *testing.T, g *Guest) {
	t.Helper()
	if log, err := g.Dmesg(t.Context()); err != nil || !strings.Contains(log, "Linux version") {
		t.Errorf("that is no kernel log: %v\n%s", err, log)
	}
	if bad, err := g.Complaints(t.Context()); err != nil || len(bad) > 0 {
		t.Errorf("the kernel complained: %v %q", err, bad)
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

// A clock that counts instructions gives the same figures each time.
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

func TestMissingModule(t *testing.T) {
	c := Config{Kernel: "6.12", Modules: []string{"no_such_module"}}
	_, err := Boot(t.Context(), theBed(t, c), c)
	if err == nil || !strings.Contains(err.Error(), "no_such_module") {
		t.Errorf("error %v", err)
	}
}

// A program of one's own can be the only content of the initramfs.
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

// Two programs in one guest are compared round by round. The guest's memory is
// one that other processes could map.
func TestAlternateInGuest(t *testing.T) {
	g := Start(t, Config{Kernel: "6.12", SharedMemory: true, CPUs: 1})
	p := probe(t, g)
	count := func(ctx context.Context) *Cmd { return g.CommandContext(ctx, p, "count") }
	parse := func(out string) (ns float64, err error) {
		_, err = fmt.Sscan(out, &ns)
		return ns, err
	}
	r, err := Alternate(t.Context(), CommandProgram("one", count, parse), CommandProgram("other", count, parse), 5)
	if err != nil {
		t.Fatal(err)
	}
	if ratio := r.Ratio(); ratio < 0.2 || ratio > 5 {
		t.Errorf("the same program differs from itself by a factor of %.2f", ratio)
	}
	if err := r.Write(t.Output()); err != nil {
		t.Error(err)
	}
}
