package rdma_test

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/sim/polltest"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

var (
	check   = errtest.Check
	isError = errtest.Is
)

func must[T any](v T, err error) func(testing.TB) T { return errtest.Value(v, err) }

func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// onKernel reports whether the tests run on the device that GOVERBS_DEVICE names, instead of on machines in memory.
var onKernel = os.Getenv("GOVERBS_DEVICE") != ""

// deviceIP is the address of that device.
const deviceIP = "10.9.0.1"

// A pair is a connection on two machines in memory, or of the device with itself. net, here and there are nil then.
type pair struct {
	net            *verbstest.Network
	here, there    *verbstest.Machine
	client, server *rdma.Conn
}

// connect returns a connection whose sides have the given options.
func connect(t testing.TB, client, server *rdma.Options) *pair {
	t.Helper()
	p := machines(t)
	p.dial(t, client, server)
	return p
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

// allow permits the test to break rules of package verbstest.
func (p *pair) allow(rules ...verbstest.Rule) {
	if p.net != nil {
		p.net.Allow(rules...)
	}
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
func (p *pair) listen(t testing.TB, o *rdma.Options) (l *rdma.Listener) {
	t.Helper()
	p.onServer(func() { l = must(rdma.Listen(p.listenAddr(), listening(o)))(t) })
	return l
}

func (p *pair) listenAddr() string {
	if onKernel {
		return deviceIP + ":0"
	}
	return ":7471"
}

// sharedReceives are those of the listeners that listening returns options for. TestShared sets it.
var sharedReceives int

// sealing has the connections that dial establishes sealed, if it is not nil. TestSealedAsOthers sets it.
var sealing *struct{ server, client *tls.Config }

// listening returns the options of a listener whose connections have the options o.
func listening(o *rdma.Options) *rdma.ListenOptions {
	// An emulated machine on a loaded one stands still for seconds.
	full := &rdma.ListenOptions{SharedReceives: sharedReceives, HandshakeTimeout: time.Minute}
	if o != nil {
		full.Options = *o
	}
	if sealing != nil {
		full.TLS, full.Seal = sealing.server, true
	}
	return full
}

// dialingOptions returns the options of a client for those that a test sets.
func dialingOptions(o *rdma.Options) *rdma.Options {
	if sealing == nil {
		return o
	}
	full := rdma.Options{}
	if o != nil {
		full = *o
	}
	full.TLS = sealing.client
	return &full
}

// addr returns where clients find l.
func (p *pair) addr(l *rdma.Listener) string {
	if onKernel {
		return l.Addr().String()
	}
	return p.there.AddrPort(l.Addr().Port()).String()
}

func (p *pair) dial(t testing.TB, client, server *rdma.Options) {
	t.Helper()
	ctx := limit(t)
	accepted := make(chan *rdma.Conn, 1)
	l := p.listen(t, server)
	p.onServer(func() {
		go func() {
			c, err := l.Accept(ctx)
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
	})
	p.onClient(func() { p.client = must(rdma.Dial(ctx, p.addr(l), dialingOptions(client)))(t) })
	p.server = <-accepted
	check(t, l.Close())
	if p.server == nil {
		t.FailNow()
	}
	t.Cleanup(func() {
		closed := make(chan error, 1)
		go func() { closed <- p.server.Close() }()
		mayLose(t, p.client.Close())
		mayLose(t, <-closed)
	})
}

// mayLose checks the error of Close at the end of a test that has not received everything, or has ended the connection
// otherwise.
func mayLose(t testing.TB, err error) {
	t.Helper()
	if !errors.Is(err, rdma.ErrUndelivered) {
		check(t, err)
	}
}

func TestMain(m *testing.M) {
	polltest.Force()
	if onKernel {
		os.Exit(m.Run())
	}
	os.Exit(verbstest.Main(m))
}
