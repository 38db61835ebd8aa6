//go:build vm

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/testbed/vm"
)

// A scale sets the amount of work.
type scale struct {
	messages int           // of our programs, from both ends
	iters    int           // round trips of C's
	kills    int           // and in proportion to it, how often the cable is disconnected and a peer stopped
	limit    time.Duration // of one run of a program
	soak     bool          // also run C programs where they hang
}

// quick is the scale of `make test`.
var quick = scale{messages: 5000, iters: 100, kills: 10, limit: 3 * time.Minute}

// A pair is two guests on a network, each with an rxe device on its end of it.
type pair struct {
	kernel string
	scale  scale
	ends   [2]*end
	port   int   // the next unused port
	rows   []row // of the table

	falseSuccess bool // rxe may warn about a request that failed with status success
}

// An end is one of the two guests.
type end struct {
	guest   *vm.Guest
	address string
	peer    string // path of our program
	gid     string // index of the address, for C programs
}

// newPair boots both guests.
func newPair(t *testing.T, kernel string, how scale) *pair {
	t.Helper()
	left, right, err := vm.Link()
	if err != nil {
		t.Fatal(err)
	}
	program := vm.BuildProgram(t, "github.com/goverbs/goverbs/testbed/faults/peer", "", "amd64")
	p := &pair{kernel: kernel, scale: how, port: 7500}
	var booting sync.WaitGroup
	for i, nic := range []vm.NIC{left, right} {
		booting.Go(func() {
			g := vm.Start(t, vm.Config{Kernel: kernel, Root: true, CPUs: 1, MemoryMB: 512, NICs: []vm.NIC{nic}})
			p.ends[i] = &end{guest: g, address: "10.8.0." + strconv.Itoa(i+1)}
		})
	}
	booting.Wait()
	for _, e := range p.ends {
		if e == nil {
			t.FailNow()
		}
		e.setUp(t, program)
		t.Cleanup(func() { p.complaints(t, e) })
	}
	return p
}

func (e *end) setUp(t *testing.T, program string) {
	t.Helper()
	var err error
	if e.peer, err = e.guest.Install(program); err != nil {
		t.Fatal(err)
	}
	e.output(t, "ip", "addr", "add", e.address+"/24", "dev", "eth0")
	e.output(t, "ip", "link", "set", "eth0", "up")
	e.output(t, "rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0")
	e.gid = e.findGID(t)
}

// complaints fails the test if the guest's kernel has logged a bug.
func (p *pair) complaints(t *testing.T, e *end) {
	// Once per boot rxe warns about a request that fails with status success.
	bad, err := e.guest.Complaints(context.WithoutCancel(t.Context()))
	if p.falseSuccess {
		bad = slices.DeleteFunc(bad, func(line string) bool {
			return strings.Contains(line, "rxe_comp.c") || strings.Contains(line, "Call Trace")
		})
	}
	if err != nil || len(bad) > 0 {
		t.Errorf("the kernel of %s complained: %v\n%s", e.address, err, strings.Join(bad, "\n"))
	}
}

// findGID returns the index of the GID of the address. It waits, because the kernel may
// not have added the GID yet.
func (e *end) findGID(t *testing.T) string {
	t.Helper()
	var a, b, c, d int
	if _, err := fmt.Sscanf(e.address, "%d.%d.%d.%d", &a, &b, &c, &d); err != nil {
		t.Fatal(err)
	}
	gid := fmt.Sprintf("ffff:%02x%02x:%02x%02x$", a, b, c, d)
	out := e.output(t, "timeout", "20", "sh", "-c",
		"until grep -l "+gid+" /sys/class/infiniband/rxe0/ports/1/gids/* 2>/dev/null; do :; done")
	index := regexp.MustCompile(`gids/(\d+)`).FindStringSubmatch(out)
	if index == nil {
		t.Fatalf("no GID %s: %s", gid, out)
	}
	return index[1]
}

// output runs a command, which must succeed, and returns its output.
func (e *end) output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := e.guest.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// counters returns rxe's counters, such as packets sent and retries.
func (e *end) counters(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	for line := range strings.Lines(e.output(t, "sh", "-c",
		"cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep . *")) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if n, err := strconv.Atoi(value); err == nil {
			all[name] = n
		}
	}
	return all
}

func (e *end) qdisc() (qdisc, error) {
	out, err := e.guest.Command("tc", "-s", "-j", "qdisc", "show", "dev", "eth0").Output()
	if err != nil {
		return qdisc{}, err
	}
	var all []qdisc
	if err := json.Unmarshal(out, &all); err != nil || len(all) == 0 {
		return qdisc{}, fmt.Errorf("tc: %w: %s", err, out)
	}
	return all[0], nil
}

// resources returns the kernel's objects of both devices. A device that was removed and added has another index.
func (p *pair) resources(t *testing.T) (all [2]string) {
	t.Helper()
	for i, e := range p.ends {
		all[i] = deviceIndex.ReplaceAllString(e.output(t, "rdma", "-j", "resource", "show"), "")
	}
	return all
}

var deviceIndex = regexp.MustCompile(`"ifindex":\d+,`)

// leavesNothing checks that no object is left that did not exist before. The kernel may
// take a moment to destroy the objects of processes that have ended.
func (p *pair) leavesNothing(t *testing.T, before [2]string) {
	t.Helper()
	var d string
	for range 100 {
		if d = cmp.Diff(before, p.resources(t)); d == "" {
			return
		}
	}
	t.Errorf("leaked objects: (-before +after)\n%s", d)
}
