package cm

import (
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// The typical steps of a program: listen, dial, send, reply.
func TestEcho(t *testing.T) {
	newRig(t)
	ctx := limit(t)
	l := closing(t, good(Listen("192.0.2.1:0", &Options{PrivateData: []byte("welcome"), Setup: func(c *Conn) error { return c.PostRecv(1, uverbs.SGE{Length: 64}) }}))(t))
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
	c := good(Dial(ctx, l.Addr().String(), &Options{PrivateData: []byte("hello"), Setup: func(c *Conn) error { return c.PostRecv(3, uverbs.SGE{Length: 64}) }}))(t)
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
