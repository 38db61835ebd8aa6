package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// survey prints what a host is, what it lacks, and what cannot be compared because of
// that, one line for each. $0 is the device, $1 the end.
const survey = `d=/sys/class/infiniband/$0
has() { command -v "$1" >/dev/null; }
for p in setsid taskset timeout grep; do has $p || echo "lacks $p: install util-linux, coreutils and grep"; done
for p in ib_send_lat ib_write_lat ib_read_lat ib_send_bw ib_write_bw ib_read_bw; do has $p || none="$none $p"; done
[ "$none" ] && echo "lacks$none: install perftest"
port=$(grep -ls ACTIVE $d/ports/*/state | head -n 1)
if [ ! -e $d ]; then
	echo "lacks the device $0, and has: $(ls /sys/class/infiniband 2>/dev/null | tr '\n' ' ')"
elif [ ! "$port" ]; then
	echo "lacks an active port of $0: bring its link up"
fi
ls /dev/infiniband/uverbs* >/dev/null 2>&1 || echo "lacks /dev/infiniband/uverbs*: modprobe ib_uverbs"
for f in /dev/infiniband/uverbs*; do
	[ -e $f ] && [ ! -w $f ] &&
		echo "lacks the right to use $f: use -sudo, or log in as root or as one of the group that owns it"
done
[ "$(ulimit -l)" = unlimited ] || [ "$(id -u)" = 0 ] ||
	echo "lacks memory to pin, of which it may $(ulimit -l) KiB: use -sudo, or raise memlock in /etc/security/limits.d"
for t in /tmp /var/tmp "$HOME"; do
	t=$(mktemp -d "$t/goverbs-bench.XXXXXX" 2>/dev/null) || continue
	printf '#!/bin/sh\n' >$t/x && chmod 755 $t/x && $t/x 2>/dev/null && rm $t/x && echo "in $t" && dir=$t && break
	rm -rf $t
done
[ "$dir" ] || echo "lacks a place for programs: /tmp, /var/tmp and $HOME are full, noexec or read-only"
has cmtime || echo "misses cmtime: install rdmacm-utils"
has rdma || echo "misses cmtime: install iproute2, for the command rdma"
[ -w /dev/infiniband/rdma_cm ] ||
	echo "misses cmtime: modprobe rdma_ucm, and have the right to use /dev/infiniband/rdma_cm"
[ $1 = server ] || echo '#include <infiniband/verbs.h>' | cc -E -xc - >/dev/null 2>&1 ||
	echo "misses objects and requests: install a C compiler (cc) and libibverbs-dev or rdma-core-devel"
near=$(cat $d/device/local_cpulist 2>/dev/null)
[ -e /sys/devices/system/node/node1 ] && taskset -c "$near" true 2>/dev/null && echo "near $near"
about=$(cat $d/board_id $d/fw_ver ${port%/state}/link_layer ${port%/state}/rate 2>/dev/null | tr '\n' ',')
echo "device $0 ($(echo "$about" | sed 's/,$//; s/,/, /g')), Linux $(uname -r)"
echo "version $(ib_send_lat --version 2>/dev/null | tr '\n' ' ')"
echo "is $(uname -m)"`

// machines maps the output of uname -m to GOARCH.
var machines = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}

// surveyed is the result of survey.
type surveyed struct {
	arch, dir, cpus, device, perftest string
	lacks, misses                     []string
}

// ready returns an error with everything that the two hosts lack.
func (b *bench) ready(ctx context.Context, m *machine) error {
	o := &b.options
	var errs []error
	var found [2]surveyed
	for i, h := range []struct {
		host              *host
		end, name, device string
	}{{&m.server, "server", o.server, m.serverDevice}, {&m.client, "client", o.client, m.device}} {
		s, err := ask(ctx, *h.host, h.device, h.end)
		if r, ok := (*h.host).(remote); ok {
			r.dir, r.cpus = s.dir, s.cpus
			*h.host = r
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", h.name, err))
		}
		for _, what := range s.lacks {
			errs = append(errs, fmt.Errorf("%s lacks %s", h.name, what))
		}
		for _, what := range s.misses {
			b.logf("%s lacks what is for %s", h.name, what)
		}
		found[i] = s
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if found[0].arch != found[1].arch {
		return fmt.Errorf("%s is %s, and %s is %s: both must have the same architecture", o.server, found[0].arch, o.client,
			found[1].arch)
	}
	m.arch, m.about = found[0].arch, describe(found[0], found[1])
	return b.reach(ctx, m)
}

// describe describes the two ends.
func describe(server, client surveyed) string {
	all := "two hosts, each with " + client.device
	if server.device != client.device {
		name, what, _ := strings.Cut(server.device, " ")
		all = "two hosts, " + client.device + "; the server's is " + name
		if !strings.HasSuffix(client.device, " "+what) {
			all += " " + what
		}
	}
	if server.perftest != client.perftest {
		all += "; the server's perftest is " + server.perftest
	}
	if near := cmp.Or(client.cpus, server.cpus); near != "" {
		all += "; programs run on the CPUs near the device (" + near + ")"
	}
	return all
}

// ask runs survey on one host.
func ask(ctx context.Context, h host, device, end string) (s surveyed, err error) {
	out, err := h.run(ctx, "sh", "-c", survey, device, end)
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 255 { // ssh's own status
			return s, fmt.Errorf("ssh must log in without questions: log in by hand once, to accept the host key,"+
				" and install a key (ssh-copy-id): %w", err)
		}
		return s, err
	}
	for line := range strings.Lines(out) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "lacks":
			s.lacks = append(s.lacks, rest)
		case "misses":
			s.misses = append(s.misses, rest)
		case "in":
			s.dir = rest
		case "near":
			s.cpus = rest
		case "device":
			s.device = rest
		case "version":
			_, s.perftest, _ = strings.Cut(rest, ": ")
		case "is":
			if s.arch = machines[rest]; s.arch == "" {
				return s, fmt.Errorf("its machine is %s: goverbs is for amd64 and arm64", rest)
			}
		}
	}
	if s.arch == "" {
		return s, fmt.Errorf("its output is %q: does its shell print something at login?", out)
	}
	return s, nil
}

// reach checks that the address is the server's, and that the client can reach its
// ports. Each run of a program uses another port.
func (b *bench) reach(ctx context.Context, m *machine) error {
	if out, err := m.server.run(ctx, "ip", "-o", "addr"); err == nil && !hasAddress(out, m.address) {
		return fmt.Errorf("-address %s: it is not an address of %s, which has: %s", m.address, b.options.server,
			strings.Join(addresses(out), " "))
	}
	ours, err := m.program(ctx, "bench/goverbs-perftest")
	if err != nil {
		return err
	}
	began := time.Now()
	out, err := m.client.run(ctx, append(append([]string{ours[1], "send_lat"}, strings.Fields(m.args)...), "-d", m.device,
		"-p", strconv.Itoa(m.port), m.address)...)
	switch {
	case err == nil:
		return fmt.Errorf("something listens on port %d of %s: stop it, and what listens on the ports up to %d", m.port,
			m.address, lastPort)
	case strings.Contains(out, "connection refused"): // as it should be
		return nil
	case strings.Contains(out, "timeout") || strings.Contains(out, "no route") || time.Since(began) > 20*time.Second:
		return fmt.Errorf("-address %s: %s does not get through to port %d: let TCP ports %d to %d pass the firewalls,"+
			" and UDP port 4791 for RoCE: %w",
			m.address, b.options.client, m.port, firstPort, lastPort, err)
	}
	return err
}

// addresses returns the addresses in the output of ip -o addr.
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

// hasAddress reports whether the output has the address. It does not look up names.
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
