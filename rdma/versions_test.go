package rdma

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbstest"
)

// laterHello is the hello of a later version that also speaks version 1: with features and fields that this version
// does not know.
func laterHello() hello {
	h := honestHello()
	h.versions = versions{1, 9}
	h.features = ^features(0)
	h.fields = []byte{200, 3, 'a', 'b', 'c', 201, 0}
	return h
}

// foreignHello is the hello of a later version that does not speak version 1. Behind the features, it is different.
func foreignHello() []byte {
	b := append([]byte(helloMagic), 2, 9, 40, 0)
	return append(b, make([]byte, 32)...)
}

// refusingListener returns the address of a listener that refuses every client because of err, as a listener of this
// package does.
func refusingListener(t *testing.T, m *verbstest.Machine, reply []byte, err error) string {
	t.Helper()
	var l *cm.Listener
	ended := make(chan error, 1)
	m.Run(func() {
		var e error
		l, e = cm.Listen(":0", &cm.ListenOptions{Options: cm.Options{
			PrivateData: reply, Setup: func(*cm.Conn) error { return err }}})
		good(t, l, e)
		go func() {
			for {
				c, err := l.Accept(context.Background())
				if c != nil {
					err = c.Close()
				}
				if errors.Is(err, cm.ErrListenerClosed) {
					ended <- nil
					return
				}
			}
		}()
	})
	t.Cleanup(func() {
		if err := errors.Join(l.Close(), <-ended); err != nil {
			t.Error(err)
		}
	})
	return m.AddrPort(l.Addr().Port()).String()
}

// TestFinalRefusals checks that a client learns why a server does not serve it, and that a Client does not try again.
func TestFinalRefusals(t *testing.T) {
	n := verbstest.NewNetwork(t)
	here, there := n.Machine(), n.Machine()
	for _, c := range []struct {
		name    string
		reply   []byte
		refusal error
		want    error
		text    string
	}{
		{"accepted with other versions", foreignHello(), nil, ErrVersion,
			"the client speaks version 1, the server versions 2 to 9: update the client"},
		{"refused because of the versions", nil, versions{1, 1}.fromLater(), ErrVersion,
			"the client speaks version 1, the server versions 2 to 9: update the client"},
		{"refused without proof", nil, ErrUnauthenticated, ErrUnauthenticated, "a side has not proved its identity"},
		{"another protocol", []byte("another"), nil, ErrProtocol, "both sides have to use package rdma"},
		{"refused by another protocol", nil, ErrProtocol, ErrProtocol, "the peer does not follow the protocol"},
	} {
		addr := refusingListener(t, there, c.reply, c.refusal)
		here.Run(func() {
			ctx := bounded(t)
			_, err := Dial(ctx, addr, nil)
			cl := NewClient(addr, &ClientOptions[struct{}]{MinBackoff: time.Hour, MaxBackoff: time.Hour})
			f := func(context.Context, *Conn, struct{}) error { return nil }
			doErr, retryErr := cl.Do(ctx, f), cl.Retry(ctx, f)
			for _, err := range []error{err, doErr, retryErr} {
				if !errors.Is(err, c.want) || errors.Is(err, cm.ErrRejected) != (c.refusal != nil) ||
					strings.Count(err.Error(), c.text) != 1 {
					t.Errorf("%s: the error is %v", c.name, err)
				}
			}
			if !strings.Contains(doErr.Error(), "does not try again") {
				t.Errorf("%s: Do returns %v", c.name, doErr)
			}
			if err := cl.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// fromLater returns why a later version, which speaks versions 2 to 9, refuses a client with these versions.
func (v versions) fromLater() error {
	old := spoken
	spoken = versions{2, 9}
	defer func() { spoken = old }()
	return v.check(client)
}

// TestListenerRefusesVersion checks what a client of a later version and the listener learn.
func TestListenerRefusesVersion(t *testing.T) {
	n := verbstest.NewNetwork(t)
	here, there := n.Machine(), n.Machine()
	ctx := bounded(t)
	refused := make(chan error, 1)
	var l *Listener
	ended := make(chan error, 1)
	there.Run(func() {
		var err error
		l, err = Listen(":7471", &ListenOptions{Refused: func(_ netip.AddrPort, err error) { refused <- err }})
		good(t, l, err)
		go func() { _, err := l.Accept(ctx); ended <- err }()
	})
	here.Run(func() {
		_, err := cm.Dial(ctx, there.AddrPort(7471).String(), &cm.Options{PrivateData: foreignHello()})
		for side, err := range map[string]error{"client": err, "listener": <-refused} {
			const text = "the client speaks versions 2 to 9, the server version 1: update the server"
			if !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), text) {
				t.Errorf("the error of the %s is %v", side, err)
			}
		}
	})
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	<-ended // by Close
}
