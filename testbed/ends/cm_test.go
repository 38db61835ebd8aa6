package ends_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

var cmEnds = ends{
	"a closed object":    cmClosed,
	"a closed listener":  cmClosedListener,
	"a passed deadline":  func(t *testing.T) []result { return cmWaits(t, passed) },
	"a canceled context": func(t *testing.T) []result { return cmWaits(t, canceled) },
	"the peer has closed, receiving": func(t *testing.T) []result {
		p := newCMPair(t, nil)
		must(t, 0, p.server.Close())
		return []result{{"Conn.RecvComp", second(p.client.RecvComp(bounded(t))), []string{"wait on", p.addr}}}
	},
	"the peer has closed, sending": func(t *testing.T) []result {
		p := newCMPair(t, nil)
		must(t, 0, p.server.Close())
		<-p.client.Disconnected()
		return p.ended(t)
	},
	"the peer's program has died": func(t *testing.T) []result {
		p := newCMPair(t, nil)
		must(t, 0, p.server.ID().ID.Disconnect()) // as its kernel does
		<-p.client.Disconnected()
		return append(p.ended(t), result{"Conn.RecvComp", second(p.client.RecvComp(bounded(t))), []string{"wait on", p.addr}})
	},
	"the peer's machine has died": func(t *testing.T) []result {
		p := newCMPair(t, nil)
		p.rig.server.Kill()
		must(t, 0, p.client.PostSendInline(0, uverbs.Signaled, []byte("x")))
		return []result{{"Conn.SendComp", second(p.client.SendComp(bounded(t))), nil}}
	},
	"the device was removed": func(t *testing.T) []result {
		p := newCMPair(t, nil)
		p.rig.client.RemoveDevice()
		<-p.client.Disconnected()
		return append(p.ended(t), result{"Conn.RecvComp", second(p.client.RecvComp(bounded(t))), []string{"wait on", p.addr}})
	},
	"the device of a listener was removed": func(t *testing.T) []result {
		r := newRig(t)
		l := listenCM(t, r, nil)
		waiting := make(chan error, 1)
		go func() { waiting <- second(l.Accept(bounded(t))) }()
		r.server.RemoveDevice()
		text := []string{"accept at", r.addr, "removed"}
		return []result{
			{"Listener.Accept that waits", <-waiting, text},
			{"Listener.Accept", second(l.Accept(bounded(t))), text},
			{"SyncID.GetRequest", second(l.ID().GetRequest(bounded(t))), text},
		}
	},
	"the listener is busy": func(t *testing.T) []result {
		r := newRig(t)
		listenCM(t, r, &cm.ListenOptions{MaxHandshakes: 1, Backlog: 1})
		return r.busy(t, func(ctx context.Context) error { return r.dialCM(t, ctx) })
	},
	"a limit of the listener is reached": func(t *testing.T) []result {
		r := newRig(t)
		listenCM(t, r, &cm.ListenOptions{MaxConns: 1})
		must(t, 0, r.dialCM(t, bounded(t)))
		return []result{{"Dial", r.dialCM(t, bounded(t)), []string{"dial", r.addr}}}
	},
	"the listener speaks other versions": func(t *testing.T) []result {
		r := newRig(t)
		refuseVersions(t, r)
		return []result{{"Dial", r.dialCM(t, bounded(t)), []string{"dial", r.addr, "2 to 9"}}}
	},
}

// refuseVersions starts a listener that refuses all clients because of their version.
func refuseVersions(t *testing.T, r *rig) {
	refuse := func(*cm.Conn) error { return fmt.Errorf("%w: the server speaks versions 2 to 9", cm.ErrVersion) }
	listenCM(t, r, &cm.ListenOptions{Options: cm.Options{Setup: refuse}})
}

func listenCM(t *testing.T, r *rig, o *cm.ListenOptions) *cm.Listener {
	return closeLater(t, on(t, r.server, func() (*cm.Listener, error) { return cm.Listen(r.addr, o) }))
}

// dialCM connects to the server until the end of the test.
func (r *rig) dialCM(t *testing.T, ctx context.Context) (err error) {
	r.client.Run(func() {
		var c *cm.Conn
		if c, err = cm.Dial(ctx, r.addr, &cm.Options{QP: uverbs.QPConfig{MaxInline: 16}}); err == nil {
			closeLater(t, c)
		}
	})
	return err
}

// A cmPair is a connection.
type cmPair struct {
	rig            *rig
	addr           string
	client, server *cm.Conn
}

func newCMPair(t *testing.T, o *cm.ListenOptions) *cmPair {
	r := newRig(t)
	l := listenCM(t, r, o)
	p := &cmPair{rig: r, addr: r.addr}
	p.client = closeLater(t, on(t, r.client, func() (*cm.Conn, error) {
		return cm.Dial(bounded(t), r.addr, &cm.Options{QP: uverbs.QPConfig{MaxInline: 16}})
	}))
	server, err := l.Accept(bounded(t))
	p.server = closeLater(t, must(t, server, err))
	return p
}

// ended returns the errors of calls of the client after the end of the connection.
func (p *cmPair) ended(t *testing.T) []result {
	return []result{
		{"Conn.Err", p.client.Err(), nil},
		{"Conn.PostSendInline", p.client.PostSendInline(0, 0, []byte("x")), []string{p.addr}},
		{"Conn.SendComp", second(p.client.SendComp(bounded(t))), []string{"wait on", p.addr}},
	}
}

func cmClosed(t *testing.T) []result {
	p := newCMPair(t, nil)
	mr, err := p.client.AllocMsgs(16)
	closeLater(t, must(t, mr, err))
	waiting := make(chan error, 1)
	go func() { waiting <- second(p.client.RecvComp(bounded(t))) }()
	must(t, 0, p.client.Close())
	events := on(t, p.rig.client, cm.NewEventChannel)
	must(t, 0, events.Close())
	return []result{
		{"Conn.RecvComp that waits", <-waiting, []string{"wait on", p.addr}},
		{"Conn.RecvComp", second(p.client.RecvComp(bounded(t))), []string{"wait on", p.addr}},
		{"Conn.SendComp", second(p.client.SendComp(bounded(t))), []string{"wait on", p.addr}},
		{"Conn.PostSendInline", p.client.PostSendInline(0, 0, []byte("x")), []string{"post to", p.addr}},
		{"Conn.PostRecv", p.client.PostRecv(0, mr.SGE(0, 16)), []string{"post to", p.addr}},
		{"Conn.RegMsgs", second(p.client.RegMsgs(make([]byte, 16))), []string{p.addr}},
		{"Conn.Disconnect", p.client.Disconnect(bounded(t)), []string{"disconnect", p.addr}},
		{"Conn.Err", p.client.Err(), []string{p.addr}},
		{"EventChannel.Next", second(events.Next(bounded(t))), []string{"wait on event channel"}},
	}
}

func cmClosedListener(t *testing.T) []result {
	r := newRig(t)
	l := listenCM(t, r, nil)
	waiting := make(chan error, 1)
	go func() { waiting <- second(l.Accept(bounded(t))) }()
	must(t, 0, l.Close())
	text := []string{"accept at", r.addr, "the listener has been closed"}
	return []result{
		{"Listener.Accept that waits", <-waiting, text},
		{"Listener.Accept", second(l.Accept(bounded(t))), text},
		{"SyncID.GetRequest", second(l.ID().GetRequest(bounded(t))), text},
	}
}

func cmWaits(t *testing.T, begin func(*testing.T) context.Context) []result {
	p := newCMPair(t, nil)
	l := closeLater(t, on(t, p.rig.server, func() (*cm.Listener, error) { return cm.Listen(":7480", nil) }))
	events := closeLater(t, on(t, p.rig.client, cm.NewEventChannel))
	all := []result{
		{"Listener.Accept", second(l.Accept(begin(t))), []string{"accept at", ":7480"}},
		{"SyncID.GetRequest", second(l.ID().GetRequest(begin(t))), []string{"accept at", ":7480"}},
		{"Conn.RecvComp", second(p.client.RecvComp(begin(t))), []string{"wait on", p.addr}},
		{"Conn.SendComp", second(p.client.SendComp(begin(t))), []string{"wait on", p.addr}},
		{"EventChannel.Next", second(events.Next(begin(t))), []string{"wait on event channel"}},
	}
	heal := p.rig.net.Partition(p.rig.client, p.rig.server) // nothing replies
	defer heal()
	return append(all,
		result{"Dial", p.rig.dialCM(t, begin(t)), []string{"dial " + p.addr}},
		result{"Conn.Disconnect", p.client.Disconnect(begin(t)), []string{"disconnect", p.addr}})
}

// busy returns the error of the client that is refused because others wait.
func (r *rig) busy(t *testing.T, dial func(context.Context) error) []result {
	must(t, 0, dial(bounded(t))) // it waits for Accept
	ctx, cancel := context.WithCancel(bounded(t))
	const clients = 2
	refused := make(chan error, clients)
	for range clients {
		go func() { refused <- dial(ctx) }()
	}
	err := <-refused
	cancel()
	<-refused
	return []result{{"Dial", err, []string{"dial", r.addr}}}
}
