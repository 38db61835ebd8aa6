package valkey_test

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/net/nettest"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/valkeyrdma"
)

// testConn checks that the connections of package valkeyrdma do what every net.Conn does. The server is at addr.
func testConn(t *testing.T, addr string, onServer, onClient func(func())) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		var l net.Listener
		onServer(func() { l, err = valkeyrdma.Listen(addr) })
		if err != nil {
			return nil, nil, nil, err
		}
		onClient(func() { c1, err = valkeyrdma.DialContext(t.Context(), addr) })
		if err == nil {
			c2, err = l.Accept()
		}
		if err = errors.Join(err, l.Close()); err != nil {
			return nil, nil, nil, err
		}
		return c1, c2, func() {
			if err := errors.Join(c1.Close(), c2.Close()); err != nil {
				t.Error(err)
			}
		}, nil
	})
}
