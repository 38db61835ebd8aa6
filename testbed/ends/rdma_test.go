package ends_test

import (
	"context"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/rdma"
)

var rdmaEnds = ends{
	"a closed object":    rdmaClosed,
	"a closed listener":  rdmaClosedListener,
	"a passed deadline":  func(t *testing.T) []result { return rdmaWaits(t, passed) },
	"a canceled context": func(t *testing.T) []result { return rdmaWaits(t, canceled) },
	"the peer has closed, receiving": func(t *testing.T) []result {
		p := newRDMAPair(t)
		must(t, 0, p.server.Close())
		return []result{{"Conn.Recv", second(p.client.Recv(bounded(t))), nil}}
	},
	"the peer has closed, sending": func(t *testing.T) []result {
		p := newRDMAPair(t)
		must(t, 0, p.server.Close())
		_, _ = p.client.Recv(bounded(t))
		return p.sends(t)
	},
	"the peer's program has died": func(t *testing.T) []result {
		p := newRDMAPair(t)
		must(t, 0, p.server.CM().ID().ID.Disconnect()) // as its kernel does
		return p.ended(t)
	},
	"the peer's machine has died": func(t *testing.T) []result {
		p := newRDMAPair(t)
		p.rig.server.Kill()
		must(t, 0, p.client.Send(bounded(t), []byte("x")))
		return p.ended(t)
	},
	"the device was removed": func(t *testing.T) []result {
		p := newRDMAPair(t)
		p.rig.client.RemoveDevice()
		return p.ended(t)
	},
	"the device of a listener was removed": func(t *testing.T) []result {
		r := newRig(t)
		l := listenRDMA(t, r, nil)
		waiting := make(chan error, 1)
		go func() { waiting <- second(l.Accept(bounded(t))) }()
		r.server.RemoveDevice()
		text := []string{"accept at", r.addr, "removed"}
		return []result{
			{"Listener.Accept that waits", <-waiting, text},
			{"Listener.Accept", second(l.Accept(bounded(t))), text},
		}
	},
	"the listener is busy": func(t *testing.T) []result {
		r := newRig(t)
		listenRDMA(t, r, &rdma.ListenOptions{MaxHandshakes: 1, Backlog: 1})
		return r.busy(t, func(ctx context.Context) error { return r.dialRDMA(t, ctx) })
	},
	"a limit of the listener is reached": func(t *testing.T) []result {
		r := newRig(t)
		listenRDMA(t, r, &rdma.ListenOptions{MaxConns: 1})
		must(t, 0, r.dialRDMA(t, bounded(t)))
		return []result{{"Dial", r.dialRDMA(t, bounded(t)), []string{"dial", r.addr}}}
	},
	"the listener speaks other versions": func(t *testing.T) []result {
		r := newRig(t)
		refuseVersions(t, r)
		return []result{{"Dial", r.dialRDMA(t, bounded(t)), []string{"dial", r.addr, "2 to 9"}}}
	},
}

func listenRDMA(t *testing.T, r *rig, o *rdma.ListenOptions) *rdma.Listener {
	return closeLater(t, on(t, r.server, func() (*rdma.Listener, error) { return rdma.Listen(r.addr, o) }))
}

// dialRDMA connects to the server until the end of the test.
func (r *rig) dialRDMA(t *testing.T, ctx context.Context) (err error) {
	r.client.Run(func() {
		var c *rdma.Conn
		if c, err = rdma.Dial(ctx, r.addr, &rdma.Options{Linger: -1}); err == nil {
			closeLater(t, c)
		}
	})
	return err
}

// An rdmaPair is a connection.
type rdmaPair struct {
	rig            *rig
	client, server *rdma.Conn
}

func newRDMAPair(t *testing.T) *rdmaPair {
	r := newRig(t)
	o := &rdma.Options{Linger: -1}
	l := listenRDMA(t, r, &rdma.ListenOptions{Options: *o})
	p := &rdmaPair{rig: r}
	p.client = closeLater(t, on(t, r.client, func() (*rdma.Conn, error) { return rdma.Dial(bounded(t), r.addr, o) }))
	server, err := l.Accept(bounded(t))
	p.server = closeLater(t, must(t, server, err))
	return p
}

// sends returns the errors of calls of the client that send.
func (p *rdmaPair) sends(t *testing.T) []result {
	ctx, addr := bounded(t), []string{p.rig.addr}
	return []result{
		{"Conn.Send", p.client.Send(ctx, []byte("x")), append(addr, "send")},
		{"Conn.Send of a long message", p.client.Send(ctx, make([]byte, 1<<20)), append(addr, "send")},
		{"Conn.Call", second(p.client.Call(ctx, []byte("x"))), append(addr, "call")},
	}
}

// ended returns the errors of calls of the client after the end of the connection.
func (p *rdmaPair) ended(t *testing.T) []result {
	recv := result{"Conn.Recv", second(p.client.Recv(bounded(t))), []string{"receive", p.rig.addr}}
	return append(p.sends(t), recv, result{"Conn.Err", p.client.Err(), nil})
}

func rdmaClosed(t *testing.T) []result {
	p := newRDMAPair(t)
	client := closeLater(t, rdma.NewClient[int](p.rig.addr, nil))
	group := joinGroup(t, p.rig)
	waiting := make(chan error, 1)
	go func() { waiting <- second(p.client.Recv(bounded(t))) }()
	must(t, 0, p.client.Close())
	must(t, 0, client.Close())
	must(t, 0, group.Close())
	all := append(p.ended(t), result{"Conn.Recv that waits", <-waiting, []string{"receive", p.rig.addr}})
	local := p.rig.client.Addr().String()
	none := func(context.Context, *rdma.Conn, int) error { return nil }
	return append(all,
		result{"Conn.Alloc", second(p.client.Alloc(16)), []string{p.rig.addr}},
		result{"Client.Do", client.Do(bounded(t), none), []string{p.rig.addr}},
		result{"Group.Recv", second(group.Recv(bounded(t))), []string{"receive", "group", local}},
		result{"Group.Send", group.Send(bounded(t), []byte("x")), []string{"send", "group", local}})
}

func rdmaClosedListener(t *testing.T) []result {
	r := newRig(t)
	l := listenRDMA(t, r, nil)
	waiting := make(chan error, 1)
	go func() { waiting <- second(l.Accept(bounded(t))) }()
	must(t, 0, l.Close())
	text := []string{"accept at", r.addr, "the listener has been closed"}
	return []result{
		{"Listener.Accept that waits", <-waiting, text},
		{"Listener.Accept", second(l.Accept(bounded(t))), text},
	}
}

func rdmaWaits(t *testing.T, begin func(*testing.T) context.Context) []result {
	p := newRDMAPair(t)
	l := closeLater(t, on(t, p.rig.server, func() (*rdma.Listener, error) { return rdma.Listen(":7480", nil) }))
	group := joinGroup(t, p.rig)
	client := closeLater(t, rdma.NewClient[int](p.rig.addr, nil))
	all := []result{
		{"Listener.Accept", second(l.Accept(begin(t))), []string{"accept at", ":7480"}},
		{"Conn.Recv", second(p.client.Recv(begin(t))), []string{"receive", p.rig.addr}},
		{"Conn.Call", second(p.client.Call(begin(t), []byte("x"))), []string{"call", p.rig.addr}},
		{"Group.Recv", second(group.Recv(begin(t))), []string{"receive", "group", p.rig.client.Addr().String()}},
		{"Conn.Send", p.sendUntil(begin(t)), []string{"send", p.rig.addr}},
	}
	heal := p.rig.net.Partition(p.rig.client, p.rig.server) // nothing replies
	defer heal()
	p.rig.client.Run(func() {
		do := func(context.Context, *rdma.Conn, int) error { return cm.ErrDisconnected }
		all = append(all,
			result{"Dial", second(rdma.Dial(begin(t), p.rig.addr, nil)), []string{"dial " + p.rig.addr}},
			result{"Client.Do", client.Do(begin(t), do), []string{p.rig.addr}},
			result{"Client.Retry", client.Retry(begin(t), do), []string{p.rig.addr}})
	})
	return append(all, result{"Conn.Shutdown", p.server.Shutdown(begin(t)), []string{"close"}})
}

// sendUntil sends until the peer, which receives nothing, has no room.
func (p *rdmaPair) sendUntil(ctx context.Context) error {
	for {
		if err := p.client.Send(ctx, []byte("x")); err != nil {
			return err
		}
	}
}

func joinGroup(t *testing.T, r *rig) *rdma.Group {
	return closeLater(t, on(t, r.client, func() (*rdma.Group, error) {
		return rdma.JoinGroup(bounded(t), "239.1.1.1", nil)
	}))
}
