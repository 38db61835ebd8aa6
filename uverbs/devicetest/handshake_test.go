package devicetest

import (
	"errors"
	"net"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceHandshake connects two QPs over TCP.
func TestDeviceHandshake(t *testing.T) { testHandshake(t, nil) }

func testHandshake(t *testing.T, adjust func(*uverbs.QPConfig)) {
	t.Helper()
	l := newLoop(t, nil)
	a, b := l.newEnd(t, adjust), l.newEnd(t, adjust)
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

// TestDeviceEveryGID connects with every RoCE v2 address of the port, IPv4 and IPv6.
func TestDeviceEveryGID(t *testing.T) {
	families := make(map[bool]int)
	dev := openDevice(t)
	needEndpoints(t, dev)
	for _, g := range must(dev.GIDs(1))(t) {
		if g.Type != uverbs.GIDTypeRoCEv2 {
			continue
		}
		t.Run(g.GID.String(), func(t *testing.T) {
			l := newLoop(t, func(c *uverbs.QPConfig) { c.GID = &g })
			if got := endpoint(t, l.a.qp).GID; got != g.GID {
				t.Fatalf("the endpoint has %v", got)
			}
			l.a.fill(1)
			post(t, l.a.qp, uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
				SGL: []uverbs.SGE{l.a.mr.SGE(0, bufSize)}, RemoteAddr: l.b.mr.Addr(), RKey: l.b.mr.RKey()})
			l.success(t, l.a, 1, uverbs.WCWrite)
			same(t, l.b.mr.Bytes(), l.a.mr.Bytes())
		})
		families[g.GID.Addr().Is4()]++
	}
	if families[true] == 0 || families[false] == 0 {
		t.Errorf("the port has %d IPv4 and %d IPv6 addresses of RoCE v2: nothing was shown for one of them", families[true],
			families[false])
	}
}
