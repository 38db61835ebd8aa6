package ends_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

var rsocketEnds = ends{
	"a closed object":   rsocketClosed,
	"a closed listener": rsocketClosedListener,
	"a passed deadline": rsocketDeadline,
	"a canceled context": func(t *testing.T) []result {
		r := newRig(t)
		heal := r.net.Partition(r.client, r.server) // nothing replies
		defer heal()
		return []result{{"Dialer.DialContext", r.dialRsocket(t, canceled(t)), []string{"dial", r.addr}}}
	},
	"the peer has closed, receiving": func(t *testing.T) []result {
		p := newRsocketPair(t)
		must(t, 0, p.server.Close())
		return []result{{"Conn.Read", second(p.client.Read(make([]byte, 1))), nil}}
	},
	"the peer has closed, sending": func(t *testing.T) []result {
		p := newRsocketPair(t)
		must(t, 0, p.server.Close())
		if _, err := p.client.Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
		return []result{{"Conn.Write", p.writeUntil(), []string{"write", p.rig.addr}}}
	},
	"the peer's program has died": func(t *testing.T) []result {
		p := newRsocketPair(t)
		must(t, 0, p.server.CM().ID().ID.Disconnect()) // as its kernel does
		return p.ended()
	},
	"the peer's machine has died": func(t *testing.T) []result {
		p := newRsocketPair(t)
		p.rig.server.Kill()
		must(t, 0, second(p.client.Write([]byte("x"))))
		return p.ended()
	},
	"the device was removed": func(t *testing.T) []result {
		p := newRsocketPair(t)
		p.rig.client.RemoveDevice()
		return p.ended()
	},
	"the device of a listener was removed": func(t *testing.T) []result {
		r := newRig(t)
		l := listenRsocket(t, r, &rsocket.ListenConfig{})
		waiting := make(chan error, 1)
		go func() { waiting <- second(l.Accept()) }()
		r.server.RemoveDevice()
		text := []string{"accept", r.addr, "removed"}
		return []result{
			{"Listener.Accept that waits", <-waiting, text},
			{"Listener.Accept", second(l.Accept()), text},
		}
	},
	"the listener is busy": func(t *testing.T) []result {
		r := newRig(t)
		listenRsocket(t, r, &rsocket.ListenConfig{MaxHandshakes: 1, Backlog: 1})
		return r.busy(t, func(ctx context.Context) error { return r.dialRsocket(t, ctx) })
	},
	"a limit of the listener is reached": func(t *testing.T) []result {
		r := newRig(t)
		listenRsocket(t, r, &rsocket.ListenConfig{MaxConns: 1})
		must(t, 0, r.dialRsocket(t, bounded(t)))
		return []result{{"Dialer.DialContext", r.dialRsocket(t, bounded(t)), []string{"dial", r.addr}}}
	},
}

func listenRsocket(t *testing.T, r *rig, config *rsocket.ListenConfig) *rsocket.Listener {
	l := on(t, r.server, func() (net.Listener, error) { return config.Listen(bounded(t), "tcp", r.addr) })
	return closeLater(t, l.(*rsocket.Listener))
}

// dialRsocket connects to the server until the end of the test.
func (r *rig) dialRsocket(t *testing.T, ctx context.Context) (err error) {
	r.client.Run(func() {
		var c net.Conn
		if c, err = new(rsocket.Dialer).DialContext(ctx, "tcp", r.addr); err == nil {
			closeLater(t, c)
		}
	})
	return err
}

// An rsocketPair is a connection.
type rsocketPair struct {
	rig            *rig
	client, server *rsocket.Conn
}

func newRsocketPair(t *testing.T) *rsocketPair {
	r := newRig(t)
	l := listenRsocket(t, r, &rsocket.ListenConfig{})
	p := &rsocketPair{rig: r}
	p.client = closeLater(t, on(t, r.client, func() (*rsocket.Conn, error) { return rsocket.Dial("tcp", r.addr) }))
	server, err := l.AcceptConn()
	p.server = closeLater(t, must(t, server, err))
	return p
}

// ended returns the errors of calls of the client after the end of the connection.
func (p *rsocketPair) ended() []result {
	return []result{
		{"Conn.Read", second(p.client.Read(make([]byte, 1))), []string{"read", p.rig.addr}},
		{"Conn.Write", p.writeUntil(), []string{"write", p.rig.addr}},
	}
}

// writeUntil writes until the peer, which reads nothing, has no room.
func (p *rsocketPair) writeUntil() error {
	for {
		if _, err := p.client.Write(make([]byte, 1<<16)); err != nil {
			return err
		}
	}
}

func packetConn(t *testing.T, r *rig) *rsocket.PacketConn {
	return closeLater(t, on(t, r.client, func() (*rsocket.PacketConn, error) {
		return rsocket.ListenPacket("udp", r.client.AddrPort(7471).String())
	}))
}

func rsocketClosed(t *testing.T) []result {
	p := newRsocketPair(t)
	packets := packetConn(t, p.rig)
	waiting := make(chan error, 2)
	go func() { waiting <- second(p.client.Read(make([]byte, 1))) }()
	go func() { waiting <- second(packets.Read(make([]byte, 1))) }()
	must(t, 0, errors.Join(p.client.Close(), packets.Close()))
	text, local := []string{p.rig.addr}, []string{p.rig.client.AddrPort(7471).String()}
	return []result{
		{"Read that waits", <-waiting, []string{"read"}},
		{"Read that waits", <-waiting, []string{"read"}},
		{"Conn.Read", second(p.client.Read(make([]byte, 1))), text},
		{"Conn.Write", second(p.client.Write(make([]byte, 1))), text},
		{"Conn.CloseWrite", p.client.CloseWrite(), text},
		{"Conn.SetDeadline", p.client.SetDeadline(time.Now()), text},
		{"PacketConn.Read", second(packets.Read(make([]byte, 1))), local},
		{"PacketConn.SetDeadline", packets.SetDeadline(time.Now()), local},
		{"PacketConn.WriteTo", second(packets.WriteToUDPAddrPort([]byte("x"), p.rig.server.AddrPort(7471))), local},
	}
}

func rsocketClosedListener(t *testing.T) []result {
	r := newRig(t)
	l := listenRsocket(t, r, &rsocket.ListenConfig{})
	waiting := make(chan error, 1)
	go func() { waiting <- second(l.Accept()) }()
	must(t, 0, l.Close())
	return []result{
		{"Listener.Accept that waits", <-waiting, []string{"accept", r.addr}},
		{"Listener.Accept", second(l.Accept()), []string{"accept", r.addr}},
	}
}

func rsocketDeadline(t *testing.T) []result {
	p := newRsocketPair(t)
	l := listenRsocket(t, newRig(t), &rsocket.ListenConfig{})
	packets := packetConn(t, p.rig)
	soon := time.Now().Add(5 * time.Millisecond)
	must(t, 0, errors.Join(p.client.SetDeadline(soon), packets.SetDeadline(soon), l.SetDeadline(soon)))
	return []result{
		{"Listener.Accept", second(l.Accept()), []string{"accept", l.Addr().String()}},
		{"Conn.Read", second(p.client.Read(make([]byte, 1))), []string{"read", p.rig.addr}},
		{"Conn.Write", p.writeUntil(), []string{"write", p.rig.addr}},
		{"PacketConn.Read", second(packets.Read(make([]byte, 1))), []string{"read", p.rig.client.AddrPort(7471).String()}},
	}
}
