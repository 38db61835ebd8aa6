package cshim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/sim/foreign"
	"github.com/goverbs/goverbs/uverbs"
)

const msgLen = 16 // of rdma_client and rdma_server

// PlayGoServer lets C's rdma_client ask a server in Go at an address. The functions passed to run use the server's
// machine.
func PlayGoServer(t testing.TB, run func(func()), addr string, client *Host) {
	t.Helper()
	served := make(chan error, 1)
	run(func() {
		l, err := cm.Listen(":7471", &cm.ListenOptions{Options: cm.Options{Setup: postReceive}})
		if err != nil {
			t.Fatal(err)
		}
		go func() { served <- errors.Join(serveOne(t.Context(), l), l.Close()) }()
	})
	out, err := client.Command("rdma_client", "-s", addr).CombinedOutput()
	if want := "rdma_client: start\nrdma_client: end 0\n"; err != nil || string(out) != want {
		t.Fatalf("rdma_client: %v\n%s", err, out)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// postReceive allocates the memory of a connection and posts its receive.
func postReceive(c *cm.Conn) error {
	mr, err := c.AllocMsgs(2 * msgLen)
	if err != nil {
		return err
	}
	c.Own(mr)
	c.ID().Context = mr
	return c.PostRecv(1, mr.SGE(0, msgLen))
}

func serveOne(ctx context.Context, l *cm.Listener) error {
	c, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	wc, err := c.RecvComp(ctx)
	if err == nil && wc.ByteLen != msgLen {
		err = fmt.Errorf("a message of %d bytes", wc.ByteLen)
	}
	if err != nil {
		return errors.Join(err, c.Close())
	}
	err = c.PostSend(2, uverbs.Signaled, c.ID().Context.(*uverbs.MR).SGE(msgLen, msgLen))
	if err == nil {
		_, err = c.SendComp(ctx)
	}
	<-c.Disconnected()
	return errors.Join(err, c.Close())
}

// PlayGoClient lets a client in Go ask C's rdma_server at an address. The function passed to run uses the client's
// machine.
func PlayGoClient(t testing.TB, run func(func()), addr string, server *Host) {
	t.Helper()
	s := server.Command("rdma_server", "-s", addr)
	var out bytes.Buffer
	s.Stdout, s.Stderr = &out, &out
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	server.Await(func(s foreign.Stats) bool { return s.Listens > 0 })
	run(func() {
		if err := askOne(t.Context(), addr+":7471"); err != nil {
			t.Error(err)
			_ = s.Process.Kill() // Wait reports it
		}
	})
	err := s.Wait()
	if want := "rdma_server: start\nrdma_server: end 0\n"; err != nil || out.String() != want {
		t.Errorf("rdma_server: %v\n%s", err, out.String())
	}
}

func askOne(ctx context.Context, addr string) error {
	c, err := cm.Dial(ctx, addr, &cm.Options{Setup: postReceive})
	if err != nil {
		return err
	}
	err = c.PostSend(2, uverbs.Signaled, c.ID().Context.(*uverbs.MR).SGE(msgLen, msgLen))
	if err == nil {
		_, err = c.RecvComp(ctx)
	}
	return errors.Join(err, c.Close())
}
