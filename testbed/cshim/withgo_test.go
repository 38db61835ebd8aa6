//go:build vm

package cshim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// C's rdma_client asks a server in Go.
func TestGoServer(t *testing.T) {
	n := verbstest.NewNetwork(t)
	server, client := n.Machine(), n.Machine()
	cshim.PlayGoServer(t, server.Run, server.Addr().String(), cshim.New(t, client))
}

// A client in Go asks C's rdma_server.
func TestGoClient(t *testing.T) {
	n := verbstest.NewNetwork(t)
	server, client := n.Machine(), n.Machine()
	cshim.PlayGoClient(t, client.Run, server.Addr().String(), cshim.New(t, server))
}

// A server in Go plays with C's ibv_rc_pingpong.
func TestGoPingpong(t *testing.T) {
	const rounds, size = 100, 4096
	n := verbstest.NewNetwork(t)
	server, client := n.Machine(), n.Machine()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := start(t, cshim.New(t, client).Command("ibv_rc_pingpong", "-e", "-g", "3", "-n", fmt.Sprint(rounds), "-s",
		fmt.Sprint(size), "-p", port, "127.0.0.1"))
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	server.Run(func() {
		if err := errors.Join(playRounds(t.Context(), conn, rounds, size), conn.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	c.finish(t)
}

// playRounds connects as ibv_rc_pingpong does, and returns each message.
func playRounds(ctx context.Context, conn net.Conn, rounds, size int) (err error) {
	dev, err := uverbs.Open("")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	pd, err := dev.AllocPD()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pd.Close()) }()
	mr, err := pd.Alloc(size, uverbs.LocalWrite)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mr.Close()) }()
	cq, err := dev.CreateCQ(uverbs.CQConfig{Entries: 2 * rounds})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cq.Close()) }()
	qp, err := pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: rounds, SignalAll: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, qp.Close()) }()
	if err := qp.Init(); err != nil {
		return err
	}
	for i := range rounds {
		if _, err := qp.PostRecv(uverbs.RecvWR{WRID: uint64(i), SGL: []uverbs.SGE{mr.SGE(0, size)}}); err != nil {
			return err
		}
	}
	if err := exchange(conn, qp); err != nil {
		return err
	}
	for received := 0; received < rounds; {
		var wcs [1]uverbs.WC
		if _, err := cq.PollWait(ctx, wcs[:]); err != nil {
			return err
		}
		if wcs[0].Status != uverbs.WCSuccess {
			return fmt.Errorf("a completion is %v", wcs[0].Status)
		}
		if wcs[0].Opcode != uverbs.WCRecv {
			continue
		}
		if _, err := qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{mr.SGE(0, size)}}); err != nil {
			return err
		}
		received++
	}
	return qp.Drain(ctx)
}

// exchange exchanges addresses as ibv_rc_pingpong's server does, and connects.
func exchange(conn net.Conn, qp *uverbs.QP) error {
	const record = len("0000:000000:000000:00000000000000000000000000000000") + 1
	b := make([]byte, record)
	if _, err := io.ReadFull(conn, b); err != nil {
		return err
	}
	var lid, qpn, psn uint32
	var gid []byte
	if _, err := fmt.Sscanf(string(b), "%x:%x:%x:%x", &lid, &qpn, &psn, &gid); err != nil {
		return err
	}
	local, err := qp.Endpoint()
	if err != nil {
		return err
	}
	err = qp.Connect(uverbs.Endpoint{QPN: qpn, PSN: psn, GID: uverbs.GID(gid), MTU: uverbs.MTU1024, RdAtomic: 1})
	if err != nil {
		return err
	}
	reply := fmt.Appendf(nil, "%04x:%06x:%06x:%x\x00", local.LID, local.QPN, local.PSN, local.GID[:])
	if _, err := conn.Write(reply); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, b[:len("done")+1])
	return err
}
