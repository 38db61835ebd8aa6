package cm

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestEcho runs the usual steps of a program: listen, dial, send, reply.
func TestEcho(t *testing.T) {
	newRig(t)
	ctx := limit(t)
	l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{Options: Options{PrivateData: []byte("welcome"),
		Setup: func(c *Conn) error { return c.PostRecv(1, uverbs.SGE{Length: 64}) }}}))(t))
	got := make(chan error)
	go func() {
		got <- func() error {
			c, err := l.Accept(ctx)
			if err != nil {
				return err
			}
			if _, err := c.RecvComp(ctx); err != nil {
				return err
			}
			if err := c.PostSendInline(2, uverbs.Signaled, nil); err != nil {
				return err
			}
			if _, err := c.SendComp(ctx); err != nil {
				return err
			}
			<-c.Disconnected()
			return c.Close()
		}()
	}()
	c := good(Dial(ctx, l.Addr().String(), &Options{PrivateData: []byte("hello"),
		Setup: func(c *Conn) error { return c.PostRecv(3, uverbs.SGE{Length: 64}) }}))(t)
	if s := string(c.PrivateData()[:7]); s != "welcome" {
		t.Errorf("private data %q", s)
	}
	check(t, c.PostSend(4, uverbs.Signaled, uverbs.SGE{Length: 5}))
	good(c.SendComp(ctx))(t)
	if wc := good(c.RecvComp(ctx))(t); wc.WRID != 3 {
		t.Errorf("%+v", wc)
	}
	check(t, c.Shutdown(ctx))
	check(t, <-got)
}

// TestPrepareUsesOptionsPD checks that Options.PD is the PD of the connection in Prepare and in Setup.
func TestPrepareUsesOptionsPD(t *testing.T) {
	newRig(t)
	l := closing(t, good(Listen("192.0.2.1:0", nil))(t))
	serve(t, l)
	keep := newSyncID(t, PSTCP)
	check(t, keep.Bind(at(here, 0)))
	pd := closing(t, good(keep.Verbs().AllocPD())(t))
	var prepare, setup *uverbs.PD
	var mr *uverbs.MR
	closing(t, good(Dial(limit(t), l.Addr().String(), &Options{PD: pd,
		Prepare: func(c *Conn, _ *uverbs.QPConfig) (err error) {
			prepare = c.PD()
			mr, err = c.AllocMsgs(64)
			return err
		},
		Setup: func(c *Conn) error { setup = c.PD(); return nil }}))(t))
	closing(t, mr)
	if prepare != pd || setup != pd || mr.PD() != pd {
		t.Errorf("want Options.PD in Prepare (%v), in Setup (%v), and for memory that Prepare allocates (%v)",
			prepare == pd, setup == pd, mr.PD() == pd)
	}
	other := newLoop()
	d := good(other.open(deviceKey{index: 9, guid: 9}, false))(t)
	_, err := Dial(limit(t), l.Addr().String(), &Options{PD: d.pd, Prepare: func(*Conn, *uverbs.QPConfig) error {
		t.Error("Prepare is called with the PD of another device")
		return nil
	}})
	is(t, "the PD of another device", err, uverbs.ErrInvalid)
	check(t, d.ctx.Close())
	other.k.Close(t)
}

// TestOwnedClosesConn checks that an object that the connection owns may call the connection's methods, including
// Close. The objects below it are closed after it, and an object that cannot be closed remains.
func TestOwnedClosesConn(t *testing.T) {
	newRig(t)
	l := closing(t, good(Listen("192.0.2.1:0", nil))(t))
	serve(t, l)
	c := good(Dial(limit(t), l.Addr().String(), nil))(t)
	var order []string
	object := func(name string, inner func() error) closerFunc {
		return func() error {
			err := inner()
			order = append(order, name)
			return err
		}
	}
	broken := errors.New("broken")
	errs := []error{broken, nil}
	next := func() (err error) { err, errs = errs[0], errs[1:]; return err }
	c.Own(object("first", func() error { return nil }), object("fails", next), object("closes", func() error {
		c.Own(object("added", func() error { return nil }))
		return c.Close()
	}))
	closed := func() error {
		done := make(chan error, 1)
		go func() { done <- c.Close() }()
		select {
		case err := <-done:
			return err
		case <-limit(t).Done():
			return context.DeadlineExceeded
		}
	}
	is(t, "Close", closed(), broken)
	check(t, closed())
	check(t, c.Close())
	if want := []string{"closes", "added", "fails", "fails", "first"}; !slices.Equal(order, want) {
		t.Errorf("closed in the order %v, want %v", order, want)
	}
}

// TestNothingIsPromoted checks that the types of the highest level have no promoted methods: an embedded id would
// promote Bind, Accept, Migrate and others that end or confuse a connection.
func TestNothingIsPromoted(t *testing.T) {
	for typ, most := range map[reflect.Type]int{
		reflect.TypeFor[Conn](): 30, reflect.TypeFor[Group](): 20, reflect.TypeFor[Request](): 10,
	} {
		for k := range typ.NumField() {
			if f := typ.Field(k); f.Anonymous {
				t.Errorf("%v embeds %v", typ, f.Type)
			}
		}
		if n := reflect.PointerTo(typ).NumMethod(); n == 0 || n > most {
			t.Errorf("%v has %d methods; want at most %d", typ, n, most)
		}
	}
}
