package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/bench/results"
)

// A fake is a host whose programs are functions.
type fake struct {
	do func(args []string) (string, error)
}

func (f *fake) run(ctx context.Context, args ...string) (string, error) {
	if err := ctx.Err(); err != nil && args[0] != "sh" { // a server that has ended at once ends the wait for it
		return "", err
	}
	return f.do(args)
}

func (f *fake) install(_ context.Context, file string) (string, error) { return "/there", nil }

func (f *fake) compile(_ context.Context, source string, _ ...string) (string, string, error) {
	if filepath.Base(source) == "fabric.c" {
		return "/fabric", "cc", nil
	}
	return "/c", "cc", nil
}

const (
	latency = `---------------------------------------------------------------------------------------
#, usec
1, 26.5
2, 27.5
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]` +
		`   99% percentile[usec]   99.9% percentile[usec]
 64      1000          26.50          99.00        27.00  	       28.00     	-nan   		40.00 		99.00
`
	rate = ` #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]
 2          1000             0.20               0.10   		     0.050000
`
)

// TestPlay checks that both programs run, in an order that changes.
func TestPlay(t *testing.T) {
	var order []string
	h := &fake{func(args []string) (string, error) {
		switch {
		case args[0] == "sh": // waits for the server
			return "", nil
		case args[len(args)-1] != "10.9.0.1":
			return "", nil
		}
		order = append(order, args[0])
		if slices.Contains(args, "send_lat") || args[0] == "ib_send_lat" {
			return latency, nil
		}
		return strings.Replace(rate, " 2 ", " 4096 ", 1), nil
	}}
	m := &machine{
		server:   h,
		client:   h,
		address:  "10.9.0.1",
		device:   "rxe0",
		port:     1,
		programs: map[string][2]string{"bench/goverbs-perftest": {"/go", "/go"}},
	}
	b := &bench{rounds: 2, tests: regexp.MustCompile("")}
	b.play(t.Context(), m, "rxe", append(games([]string{"send_lat"}, []int{64}, 1000),
		games([]string{"send_bw"}, []int{4096}, 1000)...))
	if f := b.run.Failures; len(f) != 0 {
		t.Fatal(f)
	}
	programs := []string{"/go", "ib_send_lat", "/go", "ib_send_bw", "/go", "ib_send_bw",
		"ib_send_lat", "/go", "ib_send_bw", "/go", "ib_send_bw", "/go"}
	if !slices.Equal(order, programs) {
		t.Errorf("order %v, want %v", order, programs)
	}
	both := func(v float64) map[string][]float64 {
		return map[string][]float64{results.Go: {v, v}, results.C: {v, v}}
	}
	want := []results.Series{
		{Place: "rxe", Test: "send_lat", Figure: "typical", At: 64, Unit: "us", Values: both(27)},
		{Place: "rxe", Test: "send_lat", Figure: "least", At: 64, Unit: "us", Values: both(26.5)},
		{Place: "rxe", Test: "send_lat", Figure: "99 %", At: 64, Unit: "us", Values: both(40)},
		{Place: "rxe", Test: "send_bw", Figure: "rate", At: 4096, Unit: "M messages/s", More: true, Values: both(0.05)},
		{Place: "rxe", Test: "send_bw", Figure: "peak", At: 4096, Unit: "MiB/s", More: true, Values: both(0.2)},
	}
	if d := cmp.Diff(want, b.run.Series); d != "" {
		t.Error(d)
	}
	if d := b.run.Distributions; len(d) != 2 || d[0].Who != results.Go || d[0].Quantiles[0] != 26.5 ||
		d[0].Quantiles[1000] != 27.5 {
		t.Errorf("distributions %v", d)
	}
}

// A round in which one program has no figure is left out for both.
func TestInTurn(t *testing.T) {
	b := &bench{rounds: 3}
	round := map[string]float64{}
	err := b.inTurn("rxe", "cmtime", "us", func(who string) ([]value, error) {
		if round[who]++; who == results.C && round[who] == 2 {
			return []value{{"its own", 500, 7}}, nil
		}
		return []value{{"bind addr", 500, round[who]}}, nil
	})
	want := []results.Series{{Place: "rxe", Test: "cmtime", Figure: "bind addr", At: 500, Unit: "us",
		Values: map[string][]float64{results.Go: {1, 3}, results.C: {1, 3}}}}
	if d := cmp.Diff(want, b.run.Series); err != nil || d != "" {
		t.Error(err, d)
	}
}

// A server that fails ends the wait for it; so does a client.
func TestPairFails(t *testing.T) {
	broken := errors.New("broken")
	for _, who := range []string{"server", "client"} {
		h := &waiting{fails: who, err: broken}
		m := &machine{server: h, client: h}
		if _, err := m.pair(t.Context(), []string{"server"}, []string{"wait"}, []string{"client"}); !errors.Is(err, broken) {
			t.Errorf("%s: %v", who, err)
		}
	}
}

// waiting is a host whose server runs until it is canceled.
type waiting struct {
	fake
	fails string
	err   error
}

func (w *waiting) run(ctx context.Context, args ...string) (string, error) {
	if args[0] == w.fails {
		return "", w.err
	}
	if args[0] == "server" || args[0] == "wait" && w.fails == "server" {
		<-ctx.Done()
		return "", ctx.Err()
	}
	return "", nil
}

func TestReports(t *testing.T) {
	for _, c := range []struct {
		g   game
		out string
	}{
		{game{test: "send_lat", size: 2}, latency},
		{game{test: "send_lat", size: 64}, strings.ReplaceAll(latency, "27.00", "x")},
		{game{test: "send_lat", size: 64}, strings.ReplaceAll(latency, "27.00", "inf")},
		{game{test: "send_lat", size: 64}, strings.ReplaceAll(latency, "27.00", "-nan")},
		{game{test: "send_lat", size: 64}, strings.ReplaceAll(latency, "27.00", "0.00")},
	} {
		if _, err := columns(c.g, c.out); err == nil {
			t.Errorf("%v: no error of\n%s", c.g, c.out)
		}
	}
	names, values, err := named("write 3.5\nempty 1\n")
	if err != nil || !slices.Equal(names, []string{"write", "empty"}) || values["write"] != 3.5 {
		t.Errorf("%v %v %v", names, values, err)
	}
	for _, bad := range []string{"write\n", "write inf\n", "write -nan\n", "write -1\n"} {
		if _, _, err := named(bad); err == nil {
			t.Errorf("%q is no error", bad)
		}
	}
}

func TestBenchmarks(t *testing.T) {
	b := &bench{}
	const out = `goos: linux
BenchmarkStep/32-2   	 1000	       280 ns/op	         8.5 ns/WR	       900 p99.9-ns	      16 B/op	       1 allocs/op
BenchmarkStep/32-2   	 1000	       270 ns/op	         8.2 ns/WR	       700 p99.9-ns	       0 B/op	       0 allocs/op
BenchmarkPlain   	 1000	       1.5 ns/op
PASS
`
	if err := b.benchmarks("mlx5", "", out); err != nil {
		t.Fatal(err)
	}
	want := []results.Benchmark{
		{
			Name:   "mlx5 Step/32",
			Values: map[string]float64{"ns/op": 270, "ns/WR": 8.2, "p99.9-ns": 800, "B/op": 16, "allocs/op": 1},
		},
		{Name: "mlx5 Plain", Values: map[string]float64{"ns/op": 1.5}},
	}
	if d := cmp.Diff(want, b.run.Benchmarks); d != "" {
		t.Error(d)
	}
	if err := b.benchmarks("mlx5", " -cpu 4", "BenchmarkPlain-4   	 1000	       1.5 ns/op\n"); err != nil ||
		len(b.run.Benchmarks) != 3 || b.run.Benchmarks[2].Name != "mlx5 Plain -cpu 4" {
		t.Errorf("%v, %v", b.run.Benchmarks, err)
	}
	if err := b.benchmarks("mlx5", "", "PASS\n"); err == nil {
		t.Error("nothing is no error")
	}
}

func TestDescriptions(t *testing.T) {
	got := library("Version: 6.24\n/usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.56.1\n")
	if got != "rdma-core 56.1, perftest 6.24" {
		t.Error(got)
	}
	got = fabricVersion("/usr/bin/fi_info: 2.1.0\nlibfabric: 2.1.0\nlibfabric api: 2.1\n")
	if got != ", libfabric 2.1.0" {
		t.Error(got)
	}
	if got := processor("processor\t: 0\nmodel name\t: Some CPU 1\n"); got != "Some CPU 1" {
		t.Error(got)
	}
}

// A shell returns quoted arguments unchanged.
func TestQuote(t *testing.T) {
	args := []string{"printf", "%s|", "a b", `it's "so" $HOME`, "", `\`}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", quote(args)).Output()
	if want := strings.Join(args[2:], "|") + "|"; err != nil || string(out) != want {
		t.Errorf("%q, %v, want %q", out, err, want)
	}
}

// TestRemote replaces ssh with a program that runs commands on this machine.
func TestRemote(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ssh"),
		[]byte("#!/bin/sh\nfor script; do :; done\nexec sh -c \"$script\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	program := filepath.Join(dir, "greet")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$1 there\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := remote{name: "somewhere", dir: t.TempDir()}
	path, err := r.install(t.Context(), program)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := r.run(t.Context(), path, "it's"); err != nil || out != "it's there\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := r.run(t.Context(), "false"); err == nil {
		t.Error("a program that fails is no error")
	}
	if _, _, err := r.compile(t.Context(), filepath.Join(dir, "nothing.c")); err == nil {
		t.Error("nothing was compiled")
	}
	endsThere(t, r, filepath.Join(dir, "pipe"))
}

// endsThere cancels a program, which ends there, too: then nobody has the other
// end of the pipe any more.
func endsThere(t *testing.T, r remote, pipe string) {
	t.Helper()
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := r.run(ctx, "sh", "-c", "exec 9>"+pipe+"; echo on >&9; exec sleep 1000")
		ended <- err
		if f, err := os.OpenFile(pipe, os.O_WRONLY|unix.O_NONBLOCK, 0); err == nil { // for a test that still opens it
			f.Close()
		}
	}()
	f, err := os.Open(pipe)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(make([]byte, 3)); err != nil {
		t.Error("it has not begun:", err)
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a program that was cancelled is no error")
	}
	if _, err := io.Copy(io.Discard, f); err != nil {
		t.Error("it goes on:", err)
	}
}

// Options that conflict with those of a game are reported before anything runs.
func TestArgs(t *testing.T) {
	for args, want := range map[string]string{
		"": "", "-x 3": "", "-m 1024 --no_lock": "", "-n 5": "option -n", "-d mlx5_1": "option -d", "-R": "omit -R",
		"-z": "omit -R", "-e": "option -e", "--none": "--none",
	} {
		if err := checkArgs(args, 1000); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

func TestLocalTells(t *testing.T) {
	_, err := local(t.Context(), nil, "sh", "-c", "echo why >&2; exit 3")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(err.Error(), "why") {
		t.Error(err)
	}
	if _, err := local(t.Context(), nil, os.DevNull); err == nil {
		t.Error("no program, and no error")
	}
}
