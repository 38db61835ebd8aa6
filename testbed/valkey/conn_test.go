package valkey_test

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/net/nettest"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/valkeyrdma"
	"github.com/goverbs/goverbs/verbstest"
)

// The connections of package valkeyrdma do what every net.Conn does.
func TestValkey(t *testing.T) {
	n := verbstest.NewNetwork(t)
	server, client := n.Machine(), n.Machine()
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		var l net.Listener
		server.Run(func() { l, err = valkeyrdma.Listen(":6379") })
		if err != nil {
			return nil, nil, nil, err
		}
		client.Run(func() { c1, err = valkeyrdma.DialContext(t.Context(), server.AddrPort(6379).String()) })
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
