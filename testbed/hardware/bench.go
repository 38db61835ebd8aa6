package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/hardware/suite"
)

// A bench runs tests and benchmarks on a device.
type bench struct {
	*options
	dir           string    // where the programs are
	out, report   io.Writer // a line for each part; everything
	parts, failed int
	port          int // of TCP: each benchmark has its own
}

// limit is the time limit of a part, for tests that hang and ends whose peer has
// died.
const limit = 15 * time.Minute

// A part is a command to run, with the function that summarizes its output in a
// line.
type part struct {
	name    string
	env     []string
	command []string
	line    func(output string) string
}

func (b *bench) all(ctx context.Context, on target) error {
	server, client, err := b.ends(on)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.report, "goverbs on %s (%s, %s)\n%s\n", b.device, on.driver, on.link, kernel())
	b.run(ctx, part{name: "devinfo", command: []string{b.path("devinfo"), "-v", "-d", b.device}, line: lineWith("fw_ver")})
	if on.driver == "mlx5" {
		began := time.Now()
		text, err := capabilities(b.device)
		b.add(part{name: "capabilities", line: inOneLine}, text, time.Since(began), err)
	}
	for _, p := range b.suites(on) {
		b.run(ctx, p)
	}
	b.costs(ctx, on)
	for _, t := range b.tests(on) {
		b.pair(ctx, t, server, client)
	}
	return ctx.Err()
}

// leaveOut adds to the report that a part is not run, and why.
func (b *bench) leaveOut(name, why string) {
	fmt.Fprintf(b.out, "%-24s          left out: %s\n", name, why)
	fmt.Fprintf(b.report, "\n=== %s: left out: %s\n", name, why)
}

func kernel() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err.Error()
	}
	return unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:]) + " " +
		unix.ByteSliceToString(u.Machine[:])
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// suites returns the device tests, and reports those that do not apply.
func (b *bench) suites(on target) (all []part) {
	skip := suite.Scale
	if on.link != ethernet || on.iwarp {
		skip += "|" + suite.Ethernet
	}
	if !b.disturb {
		skip += "|" + suite.Disturbing
	}
	add := func(name, run string) {
		all = append(all, part{
			name: name,
			env:  []string{"GOVERBS_DEVICE=" + b.device, "GOVERBS_ADDRESS=" + b.address},
			line: counts,
			command: []string{b.path(name + ".test"), "-test.v", "-test.timeout=" + limit.String(), "-test.run=" + run,
				"-test.skip=" + skip},
		})
	}
	switch _, has := suites[on.driver+".test"]; {
	case !has:
		b.leaveOut(on.driver, "the provider has no tests on a device")
	case on.iwarp && b.address == "":
		b.leaveOut(on.driver, noAddress)
	default:
		add(on.driver, "^TestDevice(Conformance|DMOps)$")
	}
	if on.driver == "mlx5" {
		add("devx", "^TestDevice")
	}
	add("uverbs", "^TestDevice")
	switch {
	case !on.hasCM():
		b.leaveOut("cm", "rdma_cm does not serve devices whose link layer is neither Ethernet nor InfiniBand")
	case on.link != ethernet:
		add("cm", suite.ByGID)
	case b.address == "":
		b.leaveOut("cm", noAddress)
	default:
		add("cm", suite.Connections)
		add("examples", suite.Examples)
	}
	return all
}

// noAddress is why tests of connections are left out.
const noAddress = "connections need the device's IP address: use -address"

var outcome = regexp.MustCompile(`(?m)^--- (PASS|FAIL|SKIP): (\S+)`)

// counts returns the number of tests by result, and the names of those that failed.
func counts(output string) string {
	n := map[string]int{}
	var bad []string
	for _, m := range outcome.FindAllStringSubmatch(output, -1) {
		n[m[1]]++
		if m[1] == "FAIL" {
			bad = append(bad, m[2])
		}
	}
	return strings.TrimSpace(fmt.Sprintf("%d pass, %d skipped, %d fail %s", n["PASS"], n["SKIP"], n["FAIL"],
		strings.Join(bad, " ")))
}

// lineWith returns a function that returns the first line with a text.
func lineWith(text string) func(string) string {
	return func(output string) string {
		for line := range strings.Lines(output) {
			if strings.Contains(line, text) {
				return strings.Join(strings.Fields(line), " ")
			}
		}
		return ""
	}
}

// run runs a part and adds its result to the report.
func (b *bench) run(ctx context.Context, p part) {
	if ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit+time.Minute)
	defer cancel()
	var output bytes.Buffer
	c := exec.CommandContext(ctx, p.command[0], p.command[1:]...)
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), p.env...), &output, &output
	started := time.Now()
	err := c.Run()
	b.add(p, output.String(), time.Since(started), err)
}

// add adds the result of a part to the report.
func (b *bench) add(p part, output string, took time.Duration, err error) {
	b.parts++
	line := p.line(output)
	if err != nil {
		b.failed++
		line += fmt.Sprintf(" (%v)", err)
	}
	line = fmt.Sprintf("%-24s %5.0f s  %s", p.name, took.Seconds(), line)
	fmt.Fprintln(b.out, line)
	fmt.Fprintf(b.report, "\n=== %s\n$ %s\n%s", line, strings.Join(append(p.env, p.command...), " "), output)
}
