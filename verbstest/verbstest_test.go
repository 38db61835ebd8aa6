package verbstest_test

import (
	"context"
	"errors"
	"testing"

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

// TestFindDevice checks that a program finds and opens the machine's device.
func TestFindDevice(t *testing.T) {
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

// serveConn sends each message of a connection back.
func serveConn(conn *cm.Conn, size int) error {
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

// TestEcho checks that a client and a server on two machines exchange messages, in several tests at
// a time.
func TestEcho(t *testing.T) {
	for range 3 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			if got, err := newPair(t).echo(); got != "how much?" || err != nil {
				t.Errorf("reply %q, %v", got, err)
			}
		})
	}
}
