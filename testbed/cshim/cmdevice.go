package cshim

import "testing"

// PlayCMOn runs programs on librdmacm on one device: C's with each other, and rdma_client and rdma_server with this
// library's cm. on returns a host for the device of another fabric, whose connection manager has an address. The
// device has no XRC.
func PlayCMOn(t *testing.T, addr string, on func(t *testing.T) *Host) {
	for _, g := range CMGames {
		if g.Program == "rdma_xclient" {
			continue
		}
		t.Run(g.Program, func(t *testing.T) {
			h := on(t)
			PlayCM(t, g, addr, h, h)
		})
	}
	run := func(f func()) { f() }
	t.Run("server in Go", func(t *testing.T) { PlayGoServer(t, run, addr, on(t)) })
	t.Run("client in Go", func(t *testing.T) { PlayGoClient(t, run, addr, on(t)) })
}
