package verbstest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

const messageSize = 4096

// The program under test: a server, and a client that sends a message and returns the reply.

func listen(addr string) (*cm.Listener, error) {
	return cm.Listen(addr, &cm.ListenOptions{Options: cm.Options{Setup: func(c *cm.Conn) error {
		mr, err := c.AllocMsgs(messageSize)
		if err != nil {
			return err
		}
		c.Own(mr)
		c.ID().Context = mr
		return c.PostRecv(0, mr.SGE(0, messageSize))
	}}})
}

func serve(l *cm.Listener) error {
	for {
		conn, err := l.Accept(context.Background())
		if errors.Is(err, cm.ErrListenerClosed) {
			return nil
		}
		if err == nil {
			err = serveConn(conn, messageSize)
		}
		if err != nil {
			return err
		}
	}
}

func request(addr, text string) (string, error) {
	return echo(context.Background(), addr, messageSize, text)
}

func TestRequest(t *testing.T) {
	net := verbstest.NewNetwork(t)
	server, client := net.Machine(), net.Machine()
	server.Run(func() {
		l, err := listen(":7471") // before the client dials
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- serve(l) }() // until l is closed
		t.Cleanup(func() {
			if err := errors.Join(l.Close(), <-served); err != nil {
				t.Error(err)
			}
		})
	})
	client.Run(func() {
		reply, err := request(server.AddrPort(7471).String(), "hello")
		if err != nil || reply != "hello" {
			t.Errorf("reply %q, %v", reply, err)
		}
	})
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
