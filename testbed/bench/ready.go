package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// survey has a host say what it lacks, a line for each thing, and last its
// machine. $0 is the device.
const survey = `d=/sys/class/infiniband/$0
has() { command -v "$1" >/dev/null || echo "lacks $1: $2"; }
for p in setsid grep; do has $p "install util-linux and grep"; done
for p in ib_send_lat ib_write_lat ib_read_lat ib_send_bw ib_write_bw ib_read_bw; do has $p "install perftest"; done
if [ ! -e $d ]; then
	echo "lacks the device $0, and has: $(ls /sys/class/infiniband 2>/dev/null | tr '\n' ' ')"
elif ! grep -qs ACTIVE $d/ports/*/state; then
	echo "lacks an active port of $0: bring its link up"
fi
for f in /dev/infiniband/uverbs*; do [ -w $f ] && ok=1; done
[ "$ok" ] || echo "lacks the right to use /dev/infiniband: log in as root, or as one of the group that owns it"
[ "$(ulimit -l)" = unlimited ] || [ "$(id -u)" = 0 ] || echo "lacks memory to pin, of which it may $(ulimit -l) KiB: raise memlock in /etc/security/limits.d"
t=$(mktemp /tmp/goverbs-bench.XXXXXX) && printf '#!/bin/sh\n' >$t && chmod 755 $t && { $t 2>/dev/null || echo "lacks a /tmp that programs can be run from: mount it without noexec"; } || echo "lacks a /tmp that can be written"
rm -f "$t"
echo "is $(uname -m)"`

// machines are Go's names of what uname -m says.
var machines = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}

// ready finds out what two hosts lack, all of it, before anything is measured.
func (b *bench) ready(ctx context.Context, m *machine) error {
	var errs []error
	for _, h := range []struct {
		name string
		host host
	}{{b.options.server, m.server}, {b.options.client, m.client}} {
		arch, err := surveyed(ctx, h.host, m.device)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h.name, err))
			continue
		}
		if m.arch != "" && m.arch != arch {
			errs = append(errs, fmt.Errorf("%s is %s, and %s is %s: the two must be of one kind", b.options.server, m.arch, h.name, arch))
		}
		m.arch = arch
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	return b.reach(ctx, m)
}

// surveyed asks one host, and answers its architecture.
func surveyed(ctx context.Context, h host, device string) (arch string, err error) {
	out, err := h.run(ctx, "sh", "-c", survey, device)
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 255 { // ssh's own
			return "", fmt.Errorf("ssh must get there without a password: %w", err)
		}
		return "", err
	}
	var errs []error
	for line := range strings.Lines(out) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "lacks":
			errs = append(errs, errors.New(word+" "+rest))
		case "is":
			arch = machines[rest]
			if arch == "" {
				errs = append(errs, fmt.Errorf("its machine is %s: goverbs is for amd64 and arm64", rest))
			}
		}
	}
	if arch == "" && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("it answers %q: does its shell print something at login?", out))
	}
	return arch, errors.Join(errs...)
}

// reach sees to it that the address is the server's, and that the client gets
// through to its ports, of which each run of a program has another.
func (b *bench) reach(ctx context.Context, m *machine) error {
	if out, err := m.server.run(ctx, "ip", "-o", "addr"); err == nil && !hasAddress(out, m.address) {
		return fmt.Errorf("-address %s: it is none of %s's, which has: %s", m.address, b.options.server, strings.Join(addresses(out), " "))
	}
	ours, err := m.program(ctx, "bench/goverbs-perftest")
	if err != nil {
		return err
	}
	began := time.Now()
	out, err := m.client.run(ctx, ours[1], "send_lat", "-d", m.device, "-p", strconv.Itoa(m.port), m.address)
	switch {
	case err == nil:
		return fmt.Errorf("something listens on port %d of %s: stop it, and what listens on the ports up to %d", m.port, m.address, m.port+lastPort)
	case strings.Contains(out, "connection refused"): // as it should be
		return nil
	case strings.Contains(out, "timeout") || strings.Contains(out, "no route") || time.Since(began) > 20*time.Second:
		return fmt.Errorf("-address %s: %s does not get through to port %d: let TCP ports %d to %d pass the firewalls, and UDP port 4791 for RoCE: %w",
			m.address, b.options.client, m.port, m.port, m.port+lastPort, err)
	}
	return err
}

// lastPort is more than the runs of a comparison, each of which has a port.
const lastPort = 3000

// addresses are those that ip -o addr prints.
func addresses(out string) (all []string) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		for i := range f[:max(len(f)-1, 0)] {
			if f[i] == "inet" || f[i] == "inet6" {
				address, _, _ := strings.Cut(f[i+1], "/")
				all = append(all, address)
			}
		}
	}
	return all
}

// hasAddress tells whether one of them is that. A name is not looked up.
func hasAddress(out, address string) bool {
	if strings.Trim(address, "0123456789abcdefABCDEF.:") != "" {
		return true
	}
	for _, a := range addresses(out) {
		if strings.EqualFold(a, address) {
			return true
		}
	}
	return false
}
