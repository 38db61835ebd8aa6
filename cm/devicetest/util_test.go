package devicetest

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/sim/rtnetlink"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// These are the network interface of the RDMA device of guests and of machines in memory, and the IPv6 address that
// needV6 adds.
var (
	netdev   = of("d0", "verbstest0")
	deviceV6 = of("fd09::1", "2001:db8::1")
)

// pause is the time between two checks of a condition without an event.
const pause = 5 * time.Millisecond

// eventually waits until f returns true.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !f(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("%s: it does not come", what)
		}
	}
}

// rdmaDevice returns the name of the device under test.
func rdmaDevice() string { return cmp.Or(os.Getenv("GOVERBS_DEVICE"), "mlx5_0") }

// needV6 adds an IPv6 address to the interface of the device and returns it.
func needV6(t testing.TB) netip.Addr {
	t.Helper()
	ip := netip.MustParseAddr(deviceV6)
	if inMemory {
		return ip
	}
	if err := rtnetlink.AddAddress(netdev, netip.PrefixFrom(ip, 64)); err != nil && !errors.Is(err, unix.EEXIST) {
		t.Fatal(err)
	}
	waitGID(t, ip)
	return ip
}

// waitGID waits until the device's GID table has an address of its interface. That of iWARP has no addresses.
func waitGID(t testing.TB, ip netip.Addr) {
	t.Helper()
	if rnic() {
		return
	}
	dev := must(uverbs.Open(rdmaDevice()))(t)
	defer dev.Close()
	eventually(t, "GID "+ip.String(), func() bool {
		return slices.ContainsFunc(must(dev.GIDs(1))(t),
			func(g uverbs.GIDEntry) bool { return g.GID == uverbs.GIDFromAddr(ip) })
	})
}

// at returns a port at an address.
func at(ip string, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(ip), port)
}

// small returns a QP configuration for a few messages.
func small() uverbs.QPConfig {
	return uverbs.QPConfig{MaxSendWR: 4, MaxRecvWR: 4, MaxInline: 64, MaxSendSGE: 2, MaxRecvSGE: 2}
}

// A talk is an event channel of a test.
type talk struct {
	*cm.EventChannel
	ctx context.Context
}

func newTalk(t testing.TB) talk {
	t.Helper()
	ch := must(cm.NewEventChannel())(t)
	closing(t, ch)
	return talk{ch, limit(t)}
}

// id returns an id that is closed when the test ends.
func (k talk) id(t testing.TB, ps cm.PortSpace) *cm.ID {
	t.Helper()
	i := must(k.CreateID(ps))(t)
	closing(t, i)
	return i
}

// next reads the next event, which must be of this type and id. A nil id matches all.
func (k talk) next(t testing.TB, want cm.EventType, id *cm.ID) *cm.Event {
	t.Helper()
	e := must(k.Next(k.ctx))(t)
	if e.Type != want || id != nil && e.ID != id {
		t.Fatalf("%v of %p, status %d, %v; want %v of %p", e.Type, e.ID, e.Status, e.Err(), want, id)
	}
	return e
}

// good calls next and fails the test if the event has an error.
func (k talk) good(t testing.TB, want cm.EventType, id *cm.ID) *cm.Event {
	t.Helper()
	e := k.next(t, want, id)
	if err := e.Err(); err != nil || e.Status != 0 {
		t.Fatalf("%v: status %d, %v", e.Type, e.Status, err)
	}
	return e
}

// established reads the events of both ends of a connection that it is established, and returns the client's. The
// client's is the first: the server's waits for its confirmation. On iWARP it does not, so either may be the first.
func (k talk) established(t testing.TB, client, child *cm.ID) *cm.Event {
	t.Helper()
	if !rnic() {
		e := k.good(t, cm.EventEstablished, client)
		k.good(t, cm.EventEstablished, child)
		return e
	}
	a, b := k.good(t, cm.EventEstablished, nil), k.good(t, cm.EventEstablished, nil)
	if a.ID == child {
		a, b = b, a
	}
	if a.ID != client || b.ID != child {
		t.Fatalf("events of %p and %p, want %p and %p", a.ID, b.ID, client, child)
	}
	return a
}

// listen returns a listener at an address, and its address with the port.
func (k talk) listen(t testing.TB, ps cm.PortSpace, addr netip.AddrPort) (*cm.ID, netip.AddrPort) {
	t.Helper()
	i := k.id(t, ps)
	check(t, i.Bind(addr))
	check(t, i.Listen(0))
	return i, i.LocalAddr()
}

// resolve resolves the address and the route of an id.
func (k talk) resolve(t testing.TB, i *cm.ID, to netip.AddrPort) {
	t.Helper()
	check(t, i.ResolveAddr(netip.AddrPort{}, to, 0))
	k.good(t, cm.EventAddrResolved, i)
	check(t, i.ResolveRoute(0))
	k.good(t, cm.EventRouteResolved, i)
}

// request connects a new client to a listener, and returns both ends before the request
// is accepted. Both have a QP.
func (k talk) request(t testing.TB, ps cm.PortSpace, to netip.AddrPort, p *cm.ConnParam) (client, child *cm.ID) {
	t.Helper()
	client = k.id(t, ps)
	k.resolve(t, client, to)
	check(t, client.CreateQP(nil, small()))
	check(t, client.Connect(p))
	child = k.good(t, cm.EventConnectRequest, nil).ID
	closing(t, child)
	check(t, child.CreateQP(nil, small()))
	return client, child
}

// connect calls request and Accept, and returns both ends of the connection.
func (k talk) connect(t testing.TB, to netip.AddrPort) (client, child *cm.ID) {
	t.Helper()
	client, child = k.request(t, cm.PSTCP, to, nil)
	check(t, child.Accept(nil))
	k.established(t, client, child)
	return client, child
}

// pair calls connect with a new listener.
func (k talk) pair(t testing.TB) (client, child *cm.ID) {
	t.Helper()
	_, to := k.listen(t, cm.PSTCP, at(deviceIP, 0))
	return k.connect(t, to)
}

// carries sends a message from one end to the other.
func carries(t testing.TB, from, to *cm.ID, text string) {
	t.Helper()
	ctx := limit(t)
	mr := must(to.AllocMsgs(256))(t)
	defer mr.Close()
	check(t, to.PostRecv(7, mr.SGE(0, 256)))
	out := must(from.AllocMsgs(256))(t)
	defer out.Close()
	check(t, from.PostSend(8, uverbs.Signaled, out.SGE(0, copy(out.Bytes(), text))))
	if wc := must(from.SendComp(ctx))(t); wc.WRID != 8 {
		t.Errorf("WRID of the send is %d", wc.WRID)
	}
	wc := must(to.RecvComp(ctx))(t)
	if got := string(mr.Bytes()[:wc.ByteLen]); got != text || wc.WRID != 7 {
		t.Errorf("WRID %d brought %q, want %q", wc.WRID, got, text)
	}
}

// isError checks which errors err matches and which words it contains.
func isError(t testing.TB, err error, kinds []error, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("no error, want %v", kinds)
		return
	}
	for _, k := range kinds {
		if !errors.Is(err, k) {
			t.Errorf("not %v (%T): %v", k, k, err)
		}
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

// kernelObjects returns the number of the kernel's objects on the device, of all
// processes.
func kernelObjects(t testing.TB) map[string]uint64 {
	t.Helper()
	if inMemory {
		return memory().Resources()
	}
	all := must(nldev.Resources(rdmaDevice()))(t)
	maps.DeleteFunc(all, func(_ string, n uint64) bool { return n == 0 })
	return all
}

// sameObjects waits until the numbers of the kernel's objects are these again.
func sameObjects(t testing.TB, before map[string]uint64) {
	t.Helper()
	var now map[string]uint64
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); ; <-tick.C {
		if now = kernelObjects(t); maps.Equal(now, before) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the kernel has %v, before %v", now, before)
		}
	}
}

// count returns the number of entries of a directory in /proc/self.
func count(t testing.TB, dir string) int {
	t.Helper()
	n := len(must(os.ReadDir("/proc/self/" + dir))(t))
	if inMemory && dir == "fd" {
		n -= memory().Descriptors()
	}
	return n
}

func itoa(n int) string { return strconv.Itoa(n) }

// A result is what a function in a goroutine has returned.
type result[T any] struct {
	v   T
	err error
}

// async runs f in a goroutine. The function that it returns waits for the result.
func async[T any](f func() (T, error)) (wait func(testing.TB) T) {
	c := make(chan result[T], 1)
	go func() {
		v, err := f()
		c <- result[T]{v, err}
	}()
	return func(t testing.TB) T {
		t.Helper()
		r := <-c
		return must(r.v, r.err)(t)
	}
}

// listenAt returns a listener that is closed when the test ends.
func listenAt(t testing.TB, addr string, o *cm.ListenOptions) *cm.Listener {
	t.Helper()
	l := must(cm.Listen(addr, o))(t)
	closing(t, l)
	return l
}

// connect dials a listener and returns both ends of the connection, which are closed
// when the test ends.
func connect(t testing.TB, l *cm.Listener, o *cm.Options) (client, server *cm.Conn) {
	t.Helper()
	ctx := limit(t)
	accepted := async(func() (*cm.Conn, error) { return l.Accept(ctx) })
	client = must(cm.Dial(ctx, l.Addr().String(), o))(t)
	closing(t, client)
	server = accepted(t)
	closing(t, server)
	return client, server
}

// errCut is the cause in the contexts of withTimeout.
var errCut = errors.New("cut short")

// withTimeout returns a context that ends with errCut.
func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, errCut)
}

// rejected checks the contents of an error about a rejection.
func rejected(t testing.TB, err error, reason cm.RejectReason, data string) {
	t.Helper()
	var e *cm.Error
	if !errors.As(err, &e) || e.Reason != reason || !strings.HasPrefix(string(e.PrivateData), data) {
		t.Errorf("rejected: %#v", err)
	}
}

// parked waits until n goroutines of tests wait in the library.
func parked(t testing.TB, n int) {
	t.Helper()
	buf := make([]byte, 16<<20)
	eventually(t, "parking", func() bool {
		stacks := string(buf[:runtime.Stack(buf, true)])
		count := 0
		for _, g := range strings.Split(stacks, "\n\n") {
			head, rest, _ := strings.Cut(g, "\n")
			if strings.Contains(rest, "/cm.") && (strings.Contains(head, "[select") || strings.Contains(head, "[IO wait") ||
				strings.Contains(head, "[chan receive")) {
				count++
			}
		}
		return count >= n
	})
}
