//go:build vm && speed && !device

package valkey_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// figureRounds is how often each client runs.
const figureRounds = 5

// TestFigures compares valkey-go on package valkeyrdma with valkey-go on TCP and, if GOVERBS_VALKEY_GO is a checkout of
// valkey-go, on its own package of this name, which uses C. All use one server. It prints the columns of the table of
// docs/valkey.md: instructions of the client on the ConnectX, which does the work of the network, and the time of a
// call on rxe, where one CPU does all work, that of the server and of the kernel too. No ratio has a limit.
func TestFigures(t *testing.T) {
	counting := vm.Config{ICount: true, MemoryMB: 2048}
	t.Run("ConnectX", func(t *testing.T) { compare(t, startConnectX(t, counting), "cpu") })
	t.Run("rxe", func(t *testing.T) { compare(t, startRXE(t, counting), "time") })
}

// compare compares a figure of the clients in a guest whose clock counts instructions.
func compare(t *testing.T, g *vm.Guest, figure string) {
	server := append(installServer(t, g), "--bind", "10.9.0.1", "--port", "6380")
	program.StartFor(t, time.Hour, g, server[0], server[1:]...)
	check(t, program.Listening(t, g, 6380).Wait())
	install := func(file string) string {
		path, err := g.Install(file)
		check(t, err)
		return path
	}
	const ours = "goverbs"
	goverbs := install(vm.BuildProgram(t, "./cost", "", "amd64"))
	clients := map[string][]string{ours: {goverbs, "-rdma"}, "TCP": {goverbs, "-addr", "10.9.0.1:6380"}}
	if checkout := os.Getenv("GOVERBS_VALKEY_GO"); checkout != "" {
		clients["cgo"] = []string{install(buildCgo(t, checkout)), "-rdma"}
	}
	var calls []string // in the order of the program
	all := map[string]vm.Figures{}
	for range figureRounds {
		for client, command := range clients {
			out := program.Run(t, g, command[0], command[1:]...)
			calls = nil
			for line := range strings.Lines(out) {
				call, value := parseFigure(t, line, figure)
				calls = append(calls, call)
				all[call+client] = vm.Figures{Values: append(all[call+client].Values, value)}
			}
		}
	}
	for _, call := range calls {
		for client := range clients {
			f := all[call+client]
			t.Logf("%-10s %-8s %9.0f (%.0f to %.0f), goverbs relative to it %.2f", call, client, f.Median(), f.Min(), f.Max(),
				all[call+ours].Median()/f.Median())
		}
	}
}

// parseFigure returns the call and a figure, "cpu" or "time", of a line of the program.
func parseFigure(t *testing.T, line, figure string) (call string, value float64) {
	t.Helper()
	var cpu, took float64
	if _, err := fmt.Sscanf(line, "%s cpu %f time %f", &call, &cpu, &took); err != nil || cpu <= 0 || took <= 0 {
		t.Fatalf("the program printed %q: %v", line, err)
	}
	if figure == "time" {
		return call, took
	}
	return call, cpu
}

// buildCgo builds the client with package valkeyrdma of a checkout of valkey-go. It is linked with the guest's
// libraries for RDMA.
func buildCgo(t *testing.T, checkout string) string {
	t.Helper()
	dir := t.TempDir()
	compile, link, err := bed.RDMAFlags(t.Context(), dir)
	check(t, err)
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join("..", name))
		check(t, err)
		check(t, os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	root, err := filepath.Abs("../..")
	check(t, err)
	client, mod := filepath.Join(dir, "cost"), filepath.Join(dir, "go.mod")
	for _, argv := range [][]string{
		{"mod", "edit", "-replace", "github.com/goverbs/goverbs=" + root, "-replace",
			"github.com/goverbs/goverbs/valkeyrdma=" + filepath.Join(checkout, "valkeyrdma"), mod},
		{"build", "-mod=mod", "-modfile=" + mod, "-buildvcs=false", "-o", client, "./cost"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		c := exec.CommandContext(ctx, "go", argv...)
		c.Env = append(os.Environ(), "CGO_ENABLED=1", "CGO_CFLAGS=-O2 "+strings.Join(compile, " "),
			"CGO_LDFLAGS="+strings.Join(link, " "))
		out, err := c.CombinedOutput()
		cancel()
		if err != nil {
			t.Fatalf("go %v: %v\n%s", argv, err, out)
		}
	}
	return client
}
