package cm

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// TestEstablished checks that Options.Established may exchange messages before Dial and Accept return.
func TestEstablished(t *testing.T) {
	newRig(t)
	ctx := limit(t)
	receiving := func(c *Conn) error { return c.PostRecv(1, uverbs.SGE{Length: 64}) }
	exchange := func(ctx context.Context, c *Conn) error {
		if err := c.PostSendInline(2, 0, nil); err != nil {
			return err
		}
		_, err := c.RecvComp(ctx)
		return err
	}
	o := &Options{Setup: receiving}
	o.PrivateData, o.Established = []byte("welcome"), exchange
	l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{Options: *o}))(t))
	got := make(chan error, 1)
	go func() {
		c, err := l.Accept(ctx)
		if err == nil {
			err = c.Close()
		}
		got <- err
	}()
	o = &Options{Setup: receiving}
	o.Established = func(ctx context.Context, c *Conn) error {
		if s := string(c.PrivateData()[:7]); s != "welcome" {
			t.Errorf("private data %q", s)
		}
		return exchange(ctx, c)
	}
	closing(t, good(Dial(ctx, l.Addr().String(), o))(t))
	check(t, <-got)
}

// TestEstablishedFails checks that an error of Options.Established ends the connection, and is that of Dial or Accept.
func TestEstablishedFails(t *testing.T) {
	newRig(t)
	ctx := limit(t)
	wrong := errors.New("not this peer")
	fail := func(context.Context, *Conn) error { return wrong }
	l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{Options: Options{Established: fail}}))(t))
	c := closing(t, good(Dial(ctx, l.Addr().String(), nil))(t))
	is(t, "Accept", second(l.Accept(ctx)), wrong)
	<-c.Disconnected()

	m := closing(t, good(Listen("192.0.2.1:0", nil))(t))
	accepted := make(chan *Conn, 1)
	go func() { accepted <- good(m.Accept(ctx))(t) }()
	is(t, "Dial", second(Dial(ctx, m.Addr().String(), &Options{Established: fail})), wrong)
	s := <-accepted
	<-s.Disconnected()
	check(t, s.Close())
}

// TestEstablishedEnds checks that the context of Options.Established ends with HandshakeTimeout, and with the listener.
func TestEstablishedEnds(t *testing.T) {
	newRig(t)
	ctx := limit(t)
	causes, begun := make(chan error, 1), make(chan bool, 1)
	wait := func(ctx context.Context, _ *Conn) error {
		begun <- true
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return context.Cause(ctx)
	}
	l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{Options: Options{Established: wait},
		HandshakeTimeout: time.Millisecond}))(t))
	c := closing(t, good(Dial(ctx, l.Addr().String(), nil))(t))
	is(t, "the cause", <-causes, errSlowPeer)
	<-c.Disconnected() // Accept does not return the error of a peer that is slow
	ended, cancel := context.WithCancel(ctx)
	cancel()
	is(t, "Accept", second(l.Accept(ended)), context.Canceled)

	<-begun
	l = good(Listen("192.0.2.1:0", &ListenOptions{Options: Options{Established: wait}, HandshakeTimeout: time.Hour}))(t)
	closing(t, good(Dial(ctx, l.Addr().String(), nil))(t))
	<-begun
	check(t, l.Close())
	is(t, "the cause", <-causes, ErrListenerClosed)
}
