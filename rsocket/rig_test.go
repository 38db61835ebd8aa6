package rsocket_test

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/sim/polltest"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbstest"
)

var (
	check   = errtest.Check
	isError = errtest.Is
)

func must[T any](v T, err error) func(testing.TB) T { return errtest.Value(v, err) }

// onKernel reports whether the tests run on the device that GOVERBS_DEVICE names, instead of on machines in memory.
var onKernel = os.Getenv("GOVERBS_DEVICE") != ""

// deviceIP is the address of that device.
const deviceIP = "10.9.0.1"

// A pair is a connection on two machines in memory, or of the device with itself. net, here and there are nil then.
type pair struct {
	net            *verbstest.Network
	here, there    *verbstest.Machine
	client, server *rsocket.Conn
}

// machines returns a pair that is not connected.
func machines(t testing.TB) *pair {
	if onKernel {
		return &pair{}
	}
	p := &pair{net: verbstest.NewNetwork(t)}
	p.here, p.there = p.net.Machine(), p.net.Machine()
	return p
}

// connect returns a connection whose sides have the given configurations.
func connect(t testing.TB, client, server rsocket.Config) *pair {
	t.Helper()
	p := machines(t)
	p.dial(t, client, server)
	return p
}

// onServer runs f on the machine of the server.
func (p *pair) onServer(f func()) { runOn(p.there, f) }

// onClient runs f on the machine of the client.
func (p *pair) onClient(f func()) { runOn(p.here, f) }

func runOn(m *verbstest.Machine, f func()) {
	if m != nil {
		m.Run(f)
	} else {
		f()
	}
}

// listen returns a listener on the machine of the server.
func (p *pair) listen(t testing.TB, config rsocket.Config) (l *rsocket.Listener) {
	t.Helper()
	addr := ":7471"
	if onKernel {
		addr = deviceIP + ":0"
	}
	lc := &rsocket.ListenConfig{Config: config}
	p.onServer(func() { l = must(lc.Listen(t.Context(), "tcp", addr))(t).(*rsocket.Listener) })
	check(t, l.SetDeadline(time.Now().Add(time.Minute)))
	return l
}

// addr returns where clients find l.
func (p *pair) addr(l *rsocket.Listener) string {
	if onKernel {
		return l.Addr().String()
	}
	return p.there.AddrPort(uint16(l.Addr().(*net.TCPAddr).Port)).String()
}

func (p *pair) dial(t testing.TB, client, server rsocket.Config) {
	t.Helper()
	accepted := make(chan *rsocket.Conn, 1)
	l := p.listen(t, server)
	p.onServer(func() {
		go func() {
			c, err := l.AcceptConn()
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
	})
	p.onClient(func() {
		d := &rsocket.Dialer{Config: client}
		p.client = must(d.DialContext(t.Context(), "tcp", p.addr(l)))(t).(*rsocket.Conn)
	})
	p.server = <-accepted
	check(t, l.Close())
	if p.server == nil {
		t.FailNow()
	}
	for _, c := range []*rsocket.Conn{p.client, p.server} {
		check(t, c.SetDeadline(time.Now().Add(time.Minute)))
	}
	t.Cleanup(func() {
		closed := make(chan error, 1)
		go func() { closed <- p.server.Close() }()
		check(t, p.client.Close())
		check(t, <-closed)
	})
}

func TestMain(m *testing.M) {
	polltest.Force()
	if onKernel {
		os.Exit(m.Run())
	}
	replaceUDP(&udpNetwork{sockets: map[netip.AddrPort]*udpSocket{}}, netip.MustParseAddr("192.0.2.1")) // for examples
	os.Exit(verbstest.Main(m))
}
