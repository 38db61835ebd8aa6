//go:build !device

package valkey_test

import (
	"testing"

	"github.com/goverbs/goverbs/verbstest"
)

func TestConn(t *testing.T) {
	n := verbstest.NewNetwork(t)
	server, client := n.Machine(), n.Machine()
	testConn(t, server.AddrPort(6379).String(), server.Run, client.Run)
}
