package verbstest_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// quick shortens the timeouts, so that lost messages are noticed soon.
func quick(n *verbstest.Network) {
	n.SetTimeouts(verbstest.Timeouts{Reply: 20 * time.Millisecond, Repeats: 5, Ack: 13})
}

// TestLostHandshakes checks that each message of a connection may be lost once: the connection managers
// repeat it.
func TestLostHandshakes(t *testing.T) {
	for _, message := range []verbstest.HandshakeMessage{"", verbstest.REQ, verbstest.MRA, verbstest.REP, verbstest.RTU,
		verbstest.DREQ, verbstest.DREP} {
		for _, action := range []verbstest.PacketAction{verbstest.Drop, verbstest.Duplicate, verbstest.Delay} {
			t.Run(string(message)+" "+string(action), func(t *testing.T) {
				p := newPair(t)
				p.net.SetTimeouts(verbstest.Timeouts{Reply: 20 * time.Millisecond, Repeats: 1000}) // only one is lost
				var hits atomic.Int32
				f := verbstest.HandshakeFault{Message: message, Count: 1, Action: action}
				if action == verbstest.Delay {
					f.Delay = 5 * time.Millisecond
				}
				count := f
				count.Action, count.Delay, count.Edit = "", 0, func(*verbstest.Handshake) { hits.Add(1) }
				p.net.AddHandshakeFault(count)
				p.net.AddHandshakeFault(f)
				if got, err := p.echo(); got != "how much?" || err != nil {
					t.Errorf("reply %q, %v", got, err)
				}
				if n := hits.Load(); n != 1 {
					t.Errorf("%d messages hit", n)
				}
			})
		}
	}
}

// TestSilence checks that a client whose messages are lost, or to whom no reply arrives, gets an error after
// the timeout, and that the network works without the fault.
func TestSilence(t *testing.T) {
	for _, lost := range [][]verbstest.HandshakeMessage{
		{verbstest.REQ},
		{verbstest.REP, verbstest.MRA}, // with an MRA, the client would wait longer
	} {
		p := newPair(t)
		quick(p.net)
		var heal []func()
		for _, message := range lost {
			heal = append(heal, p.net.AddHandshakeFault(verbstest.HandshakeFault{Message: message, Action: verbstest.Drop}))
		}
		if _, err := p.echo(); !errors.Is(err, cm.ErrUnreachable) || !errors.Is(err, cm.ErrTimeout) {
			t.Errorf("%s: %v", lost, err)
		}
		for _, remove := range heal {
			remove()
		}
		if _, err := p.echo(); err != nil {
			t.Errorf("%s, afterwards: %v", lost, err)
		}
	}
}

// TestEditedHandshake checks that programs get the edited values.
func TestEditedHandshake(t *testing.T) {
	n := verbstest.NewNetwork(t)
	server, client := n.Machine(), n.Machine()
	n.AddHandshakeFault(verbstest.HandshakeFault{Message: verbstest.REQ, From: client, To: server,
		Edit: func(h *verbstest.Handshake) {
			if h.From != client || h.To != server || string(h.PrivateData) != "hello" {
				t.Errorf("%+v", h)
			}
			h.PrivateData, h.QPN, h.RetryCount = []byte("goodbye"), 0x1234567, 5
		}})
	n.AddHandshakeFault(verbstest.HandshakeFault{Message: verbstest.REJ, Edit: func(h *verbstest.Handshake) {
		h.Reason = uint8(cm.RejectVendorOption)
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var served sync.WaitGroup
	defer served.Wait()
	server.Run(func() {
		l := must(cm.Listen(":7471", &cm.ListenOptions{ManualAccept: true}))(t)
		served.Go(func() {
			defer l.Close()
			r, err := l.Request(ctx)
			if err != nil {
				t.Error(err)
				return
			}
			if p := r.ID().Event().Conn; string(r.PrivateData()[:8]) != "goodbye\x00" || p.QPN != 0x234567 || p.RetryCount != 5 {
				t.Errorf("the server gets %+v", p)
			}
			if err := r.Reject([]byte("no")); err != nil {
				t.Error(err)
			}
		})
	})
	client.Run(func() {
		_, err := cm.Dial(ctx, server.AddrPort(7471).String(), &cm.Options{PrivateData: []byte("hello")})
		var e *cm.Error
		if !errors.As(err, &e) || e.Reason != cm.RejectVendorOption {
			t.Errorf("the client gets %v", err)
		}
	})
}

// acceptAll accepts connections on a machine until the test ends or the device is removed, and then closes
// them.
func acceptAll(t *testing.T, m *verbstest.Machine) {
	t.Helper()
	m.Run(func() {
		l := must(cm.Listen(":7471", &cm.ListenOptions{Options: cm.Options{
			Setup: func(c *cm.Conn) error { return c.PostRecv(0) }}}))(t)
		ctx, cancel := context.WithCancel(context.Background())
		var accepting sync.WaitGroup
		accepting.Go(func() {
			var all []*cm.Conn
			for ctx.Err() == nil {
				conn, err := l.Accept(ctx)
				if err == nil {
					all = append(all, conn)
				} else if errors.Is(err, cm.ErrListenerClosed) {
					break
				}
			}
			for _, conn := range all {
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
			}
		})
		t.Cleanup(func() {
			cancel()
			accepting.Wait()
			check(t, l.Close())
		})
	})
}

// TestPartition checks that a partition cuts established connections and new ones, and that it can be
// healed.
func TestPartition(t *testing.T) {
	t.Run("Ethernet", func(t *testing.T) { testPartition(t) })
	t.Run("InfiniBand", func(t *testing.T) { testPartition(t, verbstest.InfiniBand()) })
}

func testPartition(t *testing.T, options ...verbstest.Option) {
	n := verbstest.NewNetwork(t, options...)
	quick(n)
	server, client, other := n.Machine(), n.Machine(), n.Machine()
	acceptAll(t, server)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var mr *uverbs.MR
	dial := func() (conn *cm.Conn, err error) {
		o := &cm.Options{ResolveTimeout: 100 * time.Millisecond, Setup: func(c *cm.Conn) (err error) {
			if mr, err = c.AllocMsgs(messageSize); err == nil {
				c.Own(mr)
			}
			return err
		}}
		client.Run(func() { conn, err = cm.Dial(ctx, server.AddrPort(7471).String(), o) })
		return conn, err
	}
	send := func(conn *cm.Conn) error {
		check(t, conn.PostSend(1, uverbs.Signaled, mr.SGE(0, 0)))
		_, err := conn.SendComp(ctx)
		return err
	}
	conn := must(dial())(t)
	heal := n.Partition(server, client)
	if err := send(conn); !errors.Is(err, uverbs.WCRetryExcErr) {
		t.Errorf("a send: %v", err)
	}
	check(t, conn.Close())
	if _, err := dial(); !errors.Is(err, cm.ErrTimeout) {
		t.Errorf("a connection over the partition: %v", err)
	}
	heal()
	heal() // has no effect
	n.Partition(server, other)
	conn = must(dial())(t)
	if err := send(conn); err != nil {
		t.Errorf("a send, healed: %v", err)
	}
	check(t, conn.Close())
}

// TestKill checks that a machine that is killed sends no message: its peer notices the end when its timeouts
// expire. What the killed machine's program leaves behind is not reported.
func TestKill(t *testing.T) {
	n := verbstest.NewNetwork(t)
	quick(n)
	server, client := n.Machine(), n.Machine()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	accepted := make(chan error, 1)
	var left *cm.Conn
	server.Run(func() {
		l := must(cm.Listen(":7471", nil))(t)
		t.Cleanup(func() { check(t, l.Close()) })
		go func() {
			var err error
			left, err = l.Accept(ctx)
			accepted <- err
		}()
	})
	var messages []verbstest.HandshakeMessage
	client.Run(func() {
		var mr *uverbs.MR
		conn := must(cm.Dial(ctx, server.AddrPort(7471).String(), &cm.Options{Setup: func(c *cm.Conn) (err error) {
			mr, err = c.AllocMsgs(messageSize)
			return err
		}}))(t)
		check(t, <-accepted)
		n.AddHandshakeFault(verbstest.HandshakeFault{From: server, Edit: func(h *verbstest.Handshake) {
			messages = append(messages, h.Message)
		}})
		server.Kill()
		select {
		case <-left.Disconnected(): // the program on the machine ends
		case <-ctx.Done():
			t.Error("the program on the machine does not notice")
		}
		check(t, left.Close())
		check(t, conn.PostSend(1, uverbs.Signaled, mr.SGE(0, 8)))
		if wc, err := conn.SendComp(ctx); wc.Status != uverbs.WCRetryExcErr {
			t.Errorf("a send: %+v, %v", wc, err)
		}
		if err := conn.Shutdown(ctx); err != nil {
			t.Logf("Shutdown: %v", err)
		}
		check(t, errors.Join(conn.Close(), mr.Close()))
		if _, err := cm.Dial(ctx, server.AddrPort(7471).String(), nil); !errors.Is(err, cm.ErrTimeout) ||
			!strings.Contains(err.Error(), "resolve address") { // nor does it reply to ARP
			t.Errorf("Dial: %v", err)
		}
	})
	if slices.Contains(messages, verbstest.DREQ) || slices.Contains(messages, verbstest.DREP) {
		t.Errorf("the machine sends %v", messages)
	}
}

// TestUnreachable checks that what separates machines also loses the messages of their connection managers: a
// client that has resolved the address before gets no reply.
func TestUnreachable(t *testing.T) {
	for name, separate := range map[string]func(n *verbstest.Network, server, client *verbstest.Machine){
		"partition":   func(n *verbstest.Network, server, client *verbstest.Machine) { n.Partition(client, server) },
		"server down": func(_ *verbstest.Network, server, _ *verbstest.Machine) { server.SetPort(false) },
		"client down": func(_ *verbstest.Network, _, client *verbstest.Machine) { client.SetPort(false) },
		"killed":      func(_ *verbstest.Network, server, _ *verbstest.Machine) { server.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			n := verbstest.NewNetwork(t)
			quick(n)
			server, client := n.Machine(), n.Machine()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			acceptAll(t, server)
			client.Run(func() {
				id := must(cm.NewID(cm.PSTCP))(t)
				defer func() { check(t, id.Close()) }()
				check(t, id.ResolveAddr(ctx, netip.AddrPort{}, server.AddrPort(7471), time.Second))
				check(t, id.ResolveRoute(ctx, time.Second))
				check(t, id.CreateQP(nil, uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 1, MaxRecvWR: 1}))
				separate(n, server, client)
				if err := id.Connect(ctx, nil); !errors.Is(err, cm.ErrUnreachable) || !errors.Is(err, cm.ErrTimeout) {
					t.Errorf("Connect: %v", err)
				}
				check(t, id.DestroyQP())
			})
		})
	}
}

// TestKilledLeaves checks that objects of a machine that was killed are not reported.
func TestKilledLeaves(t *testing.T) {
	var l *cm.Listener
	var c *uverbs.Context
	t.Run("test", func(t *testing.T) {
		n := verbstest.NewNetwork(t)
		m := n.Machine()
		m.Run(func() {
			l = must(cm.Listen(":7471", nil))(t)
			c = must(uverbs.Open(""))(t)
			must(c.AllocPD())(t)
		})
		m.Kill()
	})
	check(t, errors.Join(l.Close(), c.Close()))
}
