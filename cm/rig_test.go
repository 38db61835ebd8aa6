package cm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/sim/rdmacmtest"
	"github.com/goverbs/goverbs/uverbs"
)

// A rig is a fake machine: a connection manager and its RDMA device. Only one can exist
// at a time.
type rig struct {
	*rdmacmtest.Kernel

	mu      sync.Mutex
	loops   []*loop           // one for each time that the device was opened
	prepare func(*loop)       // called for the next loop
	refuse  error             // if set, opening the device fails
	keys    map[deviceKey]int // how often each was opened
	rnic    bool
	lenient bool // objects that could not be destroyed may remain on the device
}

// These are addresses of the device, of a neighbor that does not reply, and without a route.
var (
	here    = netip.MustParseAddr("192.0.2.1")
	here6   = netip.MustParseAddr("2001:db8::1")
	silent  = netip.MustParseAddrPort("192.0.2.77:7471")
	group   = netip.MustParseAddr("239.1.1.1")
	nowhere = netip.MustParseAddrPort("198.51.100.1:7471")
)

func at(ip netip.Addr, port uint16) netip.AddrPort { return netip.AddrPortFrom(ip, port) }

// newRig replaces the real machine until the test ends. Then it checks that no objects
// of the test remain.
func newRig(t testing.TB) *rig {
	t.Helper()
	return rigOn(t, rdmacmtest.New(t))
}

func rigOn(t testing.TB, k *rdmacmtest.Kernel) *rig {
	t.Helper()
	r := &rig{Kernel: k, keys: map[deviceKey]int{}}
	k.Addrs = append(k.Addrs, group) // the route to it leads over the device
	file, device, addrs, provider := openFile, openDevice, interfaceAddrs, hasProvider
	openFile, openDevice, interfaceAddrs, hasProvider = r.Open, r.openDevice, r.interfaceAddrs, func() bool { return true }
	t.Cleanup(func() {
		openFile, openDevice, interfaceAddrs, hasProvider = file, device, addrs, provider
		r.empty(t)
		for _, l := range r.loops {
			if r.lenient {
				l.k.Close(lenient{t})
			} else {
				l.k.Close(t)
			}
		}
	})
	return r
}

// empty reports resources of ids that remain in the process.
func (r *rig) empty(t testing.TB) {
	t.Helper()
	host.Lock()
	defer host.Unlock()
	if n := len(host.devices); n > 0 {
		t.Errorf("%d devices are still open", n)
		clear(host.devices)
	}
	host.table.Lock()
	defer host.table.Unlock()
	if n := len(host.table.byUID); n > 0 {
		t.Errorf("%d numbers are still in the table: %v", n, host.table.byUID)
		clear(host.table.byUID)
	}
	pumps.Lock()
	defer pumps.Unlock()
	if len(pumps.running) > 0 {
		t.Error("the pump still runs")
		clear(pumps.running)
	}
}

// interfaceAddrs replaces net.InterfaceAddrs. The machine also has addresses that do
// not belong to an RDMA device.
func (r *rig) interfaceAddrs() ([]net.Addr, error) {
	ips := []net.Addr{&net.IPNet{IP: net.IPv4(127, 0, 0, 1), Mask: net.CIDRMask(8, 32)},
		&net.IPNet{IP: net.IPv4(203, 0, 113, 1), Mask: net.CIDRMask(24, 32)}}
	for _, ip := range r.Addrs {
		if !ip.IsMulticast() {
			ips = append(ips, &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(24, ip.BitLen())})
		}
	}
	return ips, nil
}

// openDevice replaces openKey.
func (r *rig) openDevice(key deviceKey) (*device, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse != nil {
		return nil, r.refuse
	}
	l := newLoop()
	if r.prepare != nil {
		r.prepare(l)
	}
	r.loops = append(r.loops, l)
	r.keys[key]++
	return l.open(key, r.rnic)
}

// loop returns the device that was opened last.
func (r *rig) loop() *loop {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loops[len(r.loops)-1]
}

// openings returns how often the device was opened.
func (r *rig) openings() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.loops)
}

var check = errtest.Check

func good[T any](v T, err error) func(testing.TB) T { return errtest.Value(v, err) }

// is reports an error that does not match all of the targets.
func is(t testing.TB, what string, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("%s: %v; want %v", what, err, target)
		}
	}
}

// closing closes c when the test ends.
func closing[T interface{ Close() error }](t testing.TB, c T) T {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing %T: %v", c, err)
		}
	})
	return c
}

// closerFunc is a closer for Conn.Own.
type closerFunc func() error

func (f closerFunc) Close() error { return f() }

// limit returns a context that limits a test's waits.
func limit(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// shorten changes a limit on time until the test ends.
func shorten(t testing.TB, limit *time.Duration, to time.Duration) {
	usual := *limit
	*limit = to
	t.Cleanup(func() { *limit = usual })
}

// endedContext returns a context that has ended.
func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// until polls until the condition holds, or fails the test.
func until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !cond(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// foreign is the QP of a program that creates its own.
var foreign = &ConnParam{QPN: 0x77, ResponderResources: 3, InitiatorDepth: 5, RetryCount: 7, RNRRetryCount: 6}

// small is a small QP.
var small = uverbs.QPConfig{MaxSendWR: 4, MaxRecvWR: 4}
