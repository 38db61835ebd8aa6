package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

// costs measures the cost of requests in Go, and in C if that can be compiled.
func (b *bench) costs(ctx context.Context, on target) {
	switch {
	case !on.rc:
		b.leaveOut("wrcost", "the device has no RC queue pairs")
		return
	case on.iwarp:
		b.leaveOut("wrcost", "its queue pair is connected to itself, which rdma_cm, the only way on iWARP, does not do")
		return
	}
	rounds := "10"
	b.run(ctx, part{name: "wrcost", command: []string{b.path("wrcost"), "-d", b.device, "-rounds", rounds},
		line: inOneLine})
	b.run(ctx, part{name: "wrcost -single",
		command: []string{b.path("wrcost"), "-d", b.device, "-single", "-rounds", rounds}, line: inOneLine})
	program, err := b.compile(ctx)
	if err != nil {
		b.leaveOut("wrcost in C", err.Error())
		return
	}
	defer os.Remove(program)
	b.run(ctx, part{name: "wrcost in C", command: []string{program, b.device, "1", rounds}, line: inOneLine})
	b.run(ctx, part{name: "wrcost in C, single", env: []string{"MLX5_SINGLE_THREADED=1"},
		command: []string{program, b.device, "1", rounds}, line: inOneLine})
}

func inOneLine(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return strings.Join(lines, ", ")
}

// compile compiles the C program with the first compiler that exists.
func (b *bench) compile(ctx context.Context) (program string, err error) {
	i := slices.IndexFunc(compilers, func(name string) bool { _, err := exec.LookPath(name); return err == nil })
	if i < 0 {
		return "", fmt.Errorf("no C compiler: looked for %v", compilers)
	}
	f, err := os.CreateTemp("", "wrcost")
	if err != nil {
		return "", err
	}
	if err := f.Close(); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, compilers[i], "-O2", "-D_GNU_SOURCE", "-o", f.Name(), b.path(filepath.Base(inC)),
		"-libverbs").CombinedOutput()
	if err != nil {
		return "", errors.Join(fmt.Errorf("%s: %w: %s (libibverbs and its headers?)", compilers[i], err,
			bytes.TrimSpace(out)), os.Remove(f.Name()))
	}
	return f.Name(), nil
}

var compilers = []string{"gcc", "clang", "cc", "tcc"}

// tests returns the perftest commands, with the size and the number of messages, and reports those that do not apply.
func (b *bench) tests(on target) (all [][]string) {
	switch {
	case !on.rc:
		b.leaveOut("perftest", "its tests have RC queue pairs, which the device does not have")
		return nil
	case on.iwarp && b.address == "":
		b.leaveOut("perftest", noAddress)
		return nil
	}
	lat, bw := "1000", "20000"
	if b.quick {
		lat, bw = "50", "100"
	}
	for _, size := range []string{"2", "4096"} {
		for _, t := range []string{"send_lat", "write_lat", "read_lat"} {
			all = append(all, []string{t, "-s", size, "-n", lat})
		}
	}
	for _, size := range []string{"64", "65536"} {
		for _, t := range []string{"send_bw", "write_bw", "read_bw"} {
			all = append(all, []string{t, "-s", size, "-n", bw})
		}
	}
	all = append(all, []string{"send_lat", "-e", "-s", "2", "-n", lat})
	if !on.atomics {
		b.leaveOut("atomic_lat", "the device has no atomic operations")
		return all
	}
	return append(all, []string{"atomic_lat", "-n", lat})
}

// ends returns the options that select the devices of the two ends. The kernel does
// not send packets for a local IPv4 address to the wire, so two devices in one
// machine must use their link-local addresses.
func (b *bench) ends(on target) (server, client []string, err error) {
	server, client = []string{"-d", b.server}, []string{"-d", b.device}
	if on.iwarp {
		return append(server, "-R"), append(client, "-R"), nil
	}
	if b.server == b.device || on.link != ethernet {
		return server, client, nil
	}
	for device, args := range map[string]*[]string{b.server: &server, b.device: &client} {
		index, err := linkLocal(device)
		if err != nil {
			return nil, nil, err
		}
		*args = append(*args, "-x", strconv.Itoa(index))
	}
	return server, client, nil
}

// linkLocal returns the index of a device's link-local GID of RoCE v2.
func linkLocal(device string) (index int, err error) {
	c, err := uverbs.Open(device)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	gids, err := c.GIDs(1)
	if err != nil {
		return 0, err
	}
	for _, g := range gids {
		if g.Type == uverbs.GIDTypeRoCEv2 && g.GID.Addr().IsLinkLocalUnicast() {
			return g.Index, nil
		}
	}
	return 0, fmt.Errorf("%s has no link-local GID of RoCE v2: its network interface must be up and have IPv6", device)
}

// pair runs both ends of a benchmark on this machine.
func (b *bench) pair(ctx context.Context, test, serverArgs, clientArgs []string) {
	if ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	b.port++
	host := "127.0.0.1"
	if slices.Contains(clientArgs, "-R") {
		host = b.address
	}
	args := slices.Concat(test[:1], []string{"-F", "-p", strconv.Itoa(18600 + b.port)}, test[1:])
	server := exec.CommandContext(ctx, b.path("perftest"), slices.Concat(args, serverArgs)...)
	said := &waiter{text: "Waiting for client to connect", seen: make(chan struct{})}
	server.Stdout, server.Stderr = said, said
	p := part{
		name:    strings.Join(test, " "),
		command: slices.Concat([]string{b.path("perftest")}, args, clientArgs, []string{host}),
		line:    lastFigures,
	}
	started := time.Now()
	if err := server.Start(); err != nil {
		b.add(p, "", 0, err)
		return
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Wait() }()
	select {
	case <-said.seen:
	case err := <-ended:
		b.add(p, said.String(), time.Since(started), errors.Join(errors.New("the server does not listen"), err))
		return
	}
	output, err := exec.CommandContext(ctx, p.command[0], p.command[1:]...).CombinedOutput()
	if err != nil {
		cancel() // the server still waits for a client
	}
	err = errors.Join(err, <-ended)
	b.add(p, said.String()+string(output), time.Since(started), err)
}

// lastFigures returns the most important figures of the table's last line.
func lastFigures(output string) string {
	var figures []string
	for line := range strings.Lines(output) {
		if f := strings.Fields(line); len(f) >= 5 && strings.Trim(f[0], "0123456789") == "" {
			figures = f
		}
	}
	switch len(figures) {
	case 5:
		return "average " + figures[3] + " MiB/s, " + figures[4] + " million messages/s"
	case 9:
		return "typical " + figures[4] + " us, 99 % " + figures[7] + " us"
	}
	return strings.Join(figures, " ")
}

// A waiter records a program's output and signals when it contains a text.
type waiter struct {
	mu       sync.Mutex
	buf      bytes.Buffer
	text     string
	seen     chan struct{}
	signaled bool
}

func (w *waiter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf.Write(p)
	if !w.signaled && strings.Contains(w.buf.String(), w.text) {
		w.signaled = true
		close(w.seen)
	}
	return len(p), nil
}

func (w *waiter) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.buf.String()
}
