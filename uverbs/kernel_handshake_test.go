//go:build device

package uverbs_test

import (
	"errors"
	"net"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceHandshake connects two QPs over TCP.
func TestDeviceHandshake(t *testing.T) {
	l := newLoop(t, nil)
	a, b := l.newEnd(t, nil), l.newEnd(t, nil)
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer listener.Close()
	served := make(chan error)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			err = errors.Join(b.qp.Handshake(l.ctx, conn), conn.Close())
		}
		served <- err
	}()
	conn := must(net.Dial("tcp", listener.Addr().String()))(t)
	defer conn.Close()
	check(t, a.qp.Init())
	check(t, a.qp.Handshake(l.ctx, conn))
	check(t, <-served)
	receive(t, b.qp, uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{b.mr.SGE(0, 64)}})
	post(t, a.qp, uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("over TCP")})
	l.success(t, a, 2, uverbs.WCSend)
	l.success(t, b, 1, uverbs.WCRecv)
	same(t, b.mr.Bytes()[:8], []byte("over TCP"))
}
