package verbstest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// A pair is a network with an echo server on one machine, and a machine for a client.
type pair struct {
	t              *testing.T
	net            *verbstest.Network
	server, client *verbstest.Machine
	served         chan error
}

func newPair(t *testing.T, options ...verbstest.Option) *pair {
	t.Helper()
	n := verbstest.NewNetwork(t, options...)
	p := &pair{t: t, net: n, server: n.Machine(), client: n.Machine(), served: make(chan error, 1)}
	p.server.Run(func() {
		l := must(cm.Listen(":7471", &cm.ListenOptions{Options: cm.Options{Setup: func(c *cm.Conn) error {
			mr, err := c.AllocMsgs(messageSize)
			if err != nil {
				return err
			}
			c.Own(mr)
			c.ID().Context = mr
			return c.PostRecv(0, mr.SGE(0, messageSize))
		}}}))(t)
		ctx, cancel := context.WithCancel(context.Background())
		go func() { p.served <- errors.Join(serveAll(ctx, l), l.Close()) }()
		t.Cleanup(func() {
			cancel()
			check(t, <-p.served)
		})
	})
	return p
}

// serveAll serves one connection after the other until ctx ends.
func serveAll(ctx context.Context, l *cm.Listener) error {
	for {
		conn, err := l.Accept(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			continue // of a single connection
		}
		_ = serveConn(conn, messageSize) // the client reports what goes wrong
	}
}

// echo runs the client.
func (p *pair) echo() (reply string, err error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), 20*time.Second)
	defer cancel()
	p.client.Run(func() { reply, err = echo(ctx, p.server.AddrPort(7471).String(), messageSize, "how much?") })
	return reply, err
}

// TestPacketFaults checks that a connection survives lost, repeated, delayed and reordered packets.
func TestPacketFaults(t *testing.T) {
	for name, f := range map[string]verbstest.PacketFault{
		"lost":       {Action: verbstest.Drop, Count: 1},
		"loss":       {Action: verbstest.Drop, Probability: 0.2},
		"repeated":   {Action: verbstest.Duplicate},
		"delayed":    {Action: verbstest.Delay, Delay: time.Millisecond},
		"overtaking": {Action: verbstest.Reorder, Probability: 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			defer p.net.AddFault(f)()
			if got, err := p.echo(); got != "how much?" || err != nil {
				t.Errorf("reply %q, %v", got, err)
			}
		})
	}
}

// TestEveryCommandFails fails each command of a client in turn: the client returns an error and
// leaves nothing behind.
func TestEveryCommandFails(t *testing.T) {
	p := newPair(t)
	before := p.client.Commands()
	must(p.echo())(t)
	total, tolerated := p.client.Commands()-before, 0
	for n := range total {
		p.client.FailCommand(n+1, unix.ENOMEM)
		got, err := p.echo()
		switch {
		case err == nil && got == "how much?":
			tolerated++
		case !errors.Is(err, unix.ENOMEM):
			t.Errorf("command %d of %d: reply %q, %v", n+1, total, got, err)
		}
	}
	if t.Logf("%d commands, %d of which may fail", total, tolerated); tolerated > total/2 {
		t.Error("most of the commands may fail")
	}
}

// TestRefuse checks that commands of a name fail until they are permitted again.
func TestRefuse(t *testing.T) {
	p := newPair(t)
	p.client.Refuse("REG_MR", unix.EPERM)
	if _, err := p.echo(); !errors.Is(err, unix.EPERM) {
		t.Errorf("with REG_MR refused: %v", err)
	}
	p.client.Refuse("REG_MR", 0)
	if _, err := p.echo(); err != nil {
		t.Errorf("with REG_MR permitted: %v", err)
	}
}

// loopback returns a QP that is connected to itself, with memory.
func loopback(t *testing.T, c *uverbs.Context) (*uverbs.QP, *uverbs.MR) {
	t.Helper()
	pd := must(c.AllocPD())(t)
	cq := must(c.CreateCQ(uverbs.CQConfig{Entries: 16}))(t)
	q := must(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: 4, MaxRecvWR: 4,
		Access: uverbs.RemoteWrite}))(t)
	e := must(q.Endpoint())(t)
	check(t, q.Connect(e))
	return q, must(pd.Alloc(messageSize, uverbs.LocalWrite|uverbs.RemoteWrite))(t)
}

// TestFailCompletion checks each status that a completion can have.
func TestFailCompletion(t *testing.T) {
	m := verbstest.New(t)
	c := must(uverbs.Open(m.Device()))(t)
	defer c.Close()
	for _, status := range []uverbs.WCStatus{uverbs.WCLocProtErr, uverbs.WCRemAccessErr, uverbs.WCRetryExcErr} {
		q, mr := loopback(t, c)
		m.FailCompletion(q, status, 1)
		for i := range 2 {
			must(q.PostSend(uverbs.SendWR{WRID: uint64(i), Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
				SGL: []uverbs.SGE{mr.SGE(0, 8)}, RemoteAddr: mr.Addr() + 8, RKey: mr.RKey()}))(t)
		}
		var wcs [4]uverbs.WC
		if n := must(q.SendCQ().Poll(wcs[:]))(t); n != 2 || wcs[0].Err() != nil || wcs[1].Status != status {
			t.Errorf("%v: %d completions, %v and %v", status, n, wcs[0].Status, wcs[1].Status)
		}
	}
}

// TestPort checks that the port of a device can be set down and up.
func TestPort(t *testing.T) {
	m := verbstest.New(t)
	c := must(uverbs.Open(m.Device()))(t)
	defer c.Close()
	for _, up := range []bool{false, true} {
		m.SetPort(up)
		want := uverbs.EventPortErr
		if up {
			want = uverbs.EventPortActive
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		e := must(c.NextEvent(ctx))(t)
		cancel()
		if e.Type != want {
			t.Errorf("event %v, want %v", e.Type, want)
		}
		if state := must(c.QueryPort(1))(t).State; (state == uverbs.PortActive) != up {
			t.Errorf("up %v: state %v", up, state)
		}
	}
}

// TestRemoveDevice checks that a program notices when its device is removed.
func TestRemoveDevice(t *testing.T) {
	m := verbstest.New(t)
	c := must(uverbs.Open(m.Device()))(t)
	m.RemoveDevice()
	if _, err := c.AllocPD(); !errors.Is(err, uverbs.ErrDeviceGone) {
		t.Errorf("AllocPD: %v", err)
	}
	check(t, c.Close())
	if all := must(uverbs.Devices())(t); len(all) != 0 {
		t.Errorf("devices: %v", all)
	}
}
