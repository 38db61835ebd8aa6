package devicetest

import (
	"cmp"
	"context"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// deviceIP is the device's address. The default is the one of guests or machines in memory.
var deviceIP = cmp.Or(os.Getenv("GOVERBS_ADDRESS"), of("10.9.0.1", "192.0.2.1"))

// limit returns a context that limits a test's waits.
func limit(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var check = errtest.Check

func must[T any](v T, err error) func(testing.TB) T { return errtest.Value(v, err) }

// closing closes c when the test ends.
func closing(t testing.TB, c interface{ Close() error }) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestDeviceEcho runs the usual steps of a program: listen, dial, send, reply.
func TestDeviceEcho(t *testing.T) {
	begin(t)
	ctx := limit(t)
	var mr [2]*uverbs.MR
	post := func(k int) func(*cm.Conn) error {
		return func(c *cm.Conn) (err error) {
			if mr[k], err = c.AllocMsgs(128); err != nil {
				return err
			}
			return c.PostRecv(1, mr[k].SGE(64, 64))
		}
	}
	l := must(cm.Listen(deviceIP+":0", &cm.ListenOptions{
		Options: cm.Options{Setup: post(0), PrivateData: []byte("welcome")}}))(t)
	closing(t, l)
	served := make(chan error, 1)
	go func() {
		served <- func() error {
			c, err := l.Accept(ctx)
			if err != nil {
				return err
			}
			defer c.Close()
			defer mr[0].Close()
			wc, err := c.RecvComp(ctx)
			if err != nil {
				return err
			}
			copy(mr[0].Bytes(), mr[0].Bytes()[64:][:wc.ByteLen])
			if err := c.PostSend(2, uverbs.Signaled, mr[0].SGE(0, int(wc.ByteLen))); err != nil {
				return err
			}
			if _, err := c.SendComp(ctx); err != nil {
				return err
			}
			<-c.Disconnected()
			return nil
		}()
	}()
	c := must(cm.Dial(ctx, l.Addr().String(), &cm.Options{Setup: post(1), PrivateData: []byte("hello")}))(t)
	if got := string(c.PrivateData()[:7]); got != "welcome" {
		t.Errorf("private data is %q", got)
	}
	check(t, c.PostSend(3, uverbs.Signaled, mr[1].SGE(0, copy(mr[1].Bytes(), "ping"))))
	if wc := must(c.SendComp(ctx))(t); wc.WRID != 3 {
		t.Errorf("WRID is %d", wc.WRID)
	}
	wc := must(c.RecvComp(ctx))(t)
	if got := string(mr[1].Bytes()[64:][:wc.ByteLen]); got != "ping" || wc.WRID != 1 {
		t.Errorf("WRID %d brought %q", wc.WRID, got)
	}
	check(t, mr[1].Close())
	check(t, c.Shutdown(ctx))
	check(t, <-served)
}
