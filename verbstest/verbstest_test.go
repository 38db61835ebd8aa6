package verbstest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/leak/leaktest"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

// TestDevices checks that a program finds and opens the machine's device.
func TestDevices(t *testing.T) {
	m := verbstest.New(t)
	all := must(uverbs.Devices())(t)
	if len(all) != 1 || all[0].Name != m.Device() || all[0].Driver() != "mlx5" {
		t.Fatalf("devices: %+v", all)
	}
	c := must(uverbs.Open(""))(t)
	defer c.Close()
	a := must(c.QueryDevice())(t)
	if a.NodeGUID != all[0].NodeGUID {
		t.Errorf("node GUID %v, listed as %v", a.NodeGUID, all[0].NodeGUID)
	}
	p := must(c.QueryPort(1))(t)
	if p.State != uverbs.PortActive || p.LinkLayer != uverbs.LinkEthernet {
		t.Errorf("port: %+v", p)
	}
}

// serve accepts one connection and sends each of its messages back.
func serve(l *cm.Listener, size int) error {
	conn, err := l.Accept(context.Background())
	if err != nil {
		return err
	}
	mr := conn.ID().Context.(*uverbs.MR)
	for {
		wc, err := conn.RecvComp(context.Background())
		if errors.Is(err, cm.ErrDisconnected) {
			return conn.Close()
		}
		if err != nil {
			return errors.Join(err, conn.Close())
		}
		err = errors.Join(conn.PostRecv(0, mr.SGE(0, size)),
			conn.PostSend(1, uverbs.Signaled, mr.SGE(0, int(wc.ByteLen))))
		if err != nil {
			return errors.Join(err, conn.Close())
		}
		if _, err := conn.SendComp(context.Background()); err != nil {
			return errors.Join(err, conn.Close())
		}
	}
}

func echo(ctx context.Context, addr string, size int, text string) (_ string, err error) {
	var mr *uverbs.MR
	conn, err := cm.Dial(ctx, addr, &cm.Options{Setup: func(c *cm.Conn) (err error) {
		if mr, err = c.AllocMsgs(2 * size); err != nil {
			return err
		}
		return c.PostRecv(1, mr.SGE(size, size))
	}})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close(), mr.Close()) }()
	n := copy(mr.Bytes(), text)
	if err := conn.PostSend(2, uverbs.Signaled, mr.SGE(0, n)); err != nil {
		return "", err
	}
	if _, err := conn.SendComp(ctx); err != nil {
		return "", err
	}
	wc, err := conn.RecvComp(ctx)
	if err != nil {
		return "", err
	}
	return string(mr.Bytes()[size:][:wc.ByteLen]), conn.Shutdown(ctx)
}

// TestEcho checks that a client and a server on two machines exchange messages.
func TestEcho(t *testing.T) {
	for range 3 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			const size = 4096
			net := verbstest.NewNetwork(t)
			server, client := net.Machine(), net.Machine()
			done := make(chan error, 1)
			server.Run(func() {
				l := must(cm.Listen(":7471", &cm.Options{Setup: func(c *cm.Conn) error {
					mr, err := c.AllocMsgs(size)
					if err != nil {
						return err
					}
					c.Own(mr)
					c.ID().Context = mr
					return c.PostRecv(0, mr.SGE(0, size))
				}}))(t)
				go func() { done <- errors.Join(serve(l, size), l.Close()) }()
			})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			client.Run(func() {
				if got := must(echo(ctx, server.AddrPort(7471).String(), size, "how much?"))(t); got != "how much?" {
					t.Errorf("reply %q", got)
				}
			})
			check(t, <-done)
		})
	}
}
