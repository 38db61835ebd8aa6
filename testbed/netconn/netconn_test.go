package netconn

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"

	"golang.org/x/net/nettest"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbstest"
)

// onKernel reports whether the tests run on the device that GOVERBS_DEVICE names, instead of on machines in memory.
var onKernel = os.Getenv("GOVERBS_DEVICE") != ""

// deviceIP is the address of that device.
const deviceIP = "10.9.0.1"

// configs are what a connection is tested with: the defaults, and buffers so small that each call waits for the peer.
var configs = map[string]rsocket.Config{
	"defaults": {},
	"sleeping": {Polling: -1},
	"small":    {RecvBuffer: 4096, SendBuffer: 4096, RecvQueue: 16, SendQueue: 16, Inline: -1, Polling: -1},
}

func TestConn(t *testing.T) {
	for name, config := range configs {
		t.Run(name, func(t *testing.T) { nettest.TestConn(t, newRig(t, config).pipe) })
	}
}

// A rig has a listener, and connects to it.
type rig struct {
	client, server *verbstest.Machine // nil on a kernel
	dialer         rsocket.Dialer
	listener       net.Listener
}

func newRig(t *testing.T, config rsocket.Config) *rig {
	r := &rig{dialer: rsocket.Dialer{Config: config}}
	addr := deviceIP + ":0"
	if !onKernel {
		n := verbstest.NewNetwork(t)
		r.client, r.server = n.Machine(), n.Machine()
		addr = r.server.AddrPort(0).String()
	}
	var err error
	runOn(r.server, func() {
		lc := &rsocket.ListenConfig{Config: config}
		r.listener, err = lc.Listen(t.Context(), "tcp", addr)
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.listener.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func runOn(m *verbstest.Machine, f func()) {
	if m != nil {
		m.Run(f)
	} else {
		f()
	}
}

// pipe is a [nettest.MakePipe].
func (r *rig) pipe() (client, server net.Conn, stop func(), err error) {
	accepted := make(chan error, 1)
	runOn(r.server, func() {
		go func() {
			var err error
			server, err = r.listener.Accept()
			accepted <- err
		}()
	})
	runOn(r.client, func() {
		client, err = r.dialer.DialContext(context.Background(), "tcp", r.listener.Addr().String())
	})
	if err != nil { // the call of Accept ends with the listener
		return nil, nil, nil, err
	}
	if err := <-accepted; err != nil {
		return nil, nil, nil, errors.Join(err, client.Close())
	}
	return client, server, func() { client.Close(); server.Close() }, nil
}
