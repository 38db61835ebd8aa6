package main

import (
	"bytes"
	"context"
	"errors"
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
	"github.com/goverbs/goverbs/uverbs"
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

func (b *bench) all(ctx context.Context, link, driver string) error {
	server, client, err := b.ends(link)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.report, "goverbs on %s (%s, %s)\n%s\n", b.device, driver, link, kernel())
	b.run(ctx, part{name: "devinfo", command: []string{b.path("devinfo"), "-v", "-d", b.device}, line: lineWith("fw_ver")})
	if driver == "mlx5" {
		began := time.Now()
		text, err := capabilities(b.device)
		b.add(part{name: "capabilities", line: inOneLine}, text, time.Since(began), err)
	}
	for _, p := range b.suites(link, driver) {
		b.run(ctx, p)
	}
	b.costs(ctx)
	for _, t := range b.tests() {
		b.pair(ctx, t, server, client)
	}
	return ctx.Err()
}

// probe returns the link layer and the driver of a device, or an error if it cannot
// be tested.
func probe(device string) (link, driver string, err error) {
	c, err := uverbs.Open(device)
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	port, err := c.QueryPort(1)
	if err == nil && port.State != uverbs.PortActive {
		err = fmt.Errorf("port 1 of %s is %v: connect it to a switch or to another port, and bring its interface up;"+
			" on InfiniBand a subnet manager must run", device, port.State)
	}
	if err != nil {
		return "", "", err
	}
	return port.LinkLayer.String(), c.Device().Driver(), nil
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

// suites returns the device tests.
func (b *bench) suites(link, driver string) (all []part) {
	skip := suite.Scale
	if link != "Ethernet" {
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
	add(driver, "^TestDevice(Conformance|DMOps)$")
	if driver == "mlx5" {
		add("devx", "^TestDevice")
	}
	add("uverbs", "^TestDevice")
	switch {
	case link != "Ethernet":
		add("cm", suite.ByGID)
	case b.address != "":
		add("cm", suite.Connections)
		add("examples", suite.Examples)
	}
	return all
}

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
