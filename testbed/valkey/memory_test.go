//go:build vm && !device

package valkey_test

import (
	"strconv"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/foreign"
	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/verbstest"
)

// prepare makes a rig of two machines in memory. It returns a function that waits until the server listens.
func (r *rig) prepare() func() {
	n := verbstest.NewNetwork(r.t)
	server, client := n.Machine(), n.Machine()
	h := cshim.New(r.t, server)
	r.network = n
	r.addr, r.onClient = server.AddrPort(6379).String(), client.Run
	r.process = h.ValkeyServer(server.Addr().String())
	return func() { h.Await(func(s foreign.Stats) bool { return s.Listens > 0 }) }
}

// A network that loses packets makes calls slower and changes nothing else.
func TestLoss(t *testing.T) {
	r := start(t)
	c, ctx := r.dial(), limit(t)
	remove := r.network.AddFault(verbstest.PacketFault{Action: verbstest.Drop, Probability: 0.002})
	defer remove()
	values(t, c, 1<<20, 4<<20)
	for i := range 1000 {
		check(t, c.Do(ctx, c.B().Set().Key("k").Value(strconv.Itoa(i)).Build()).Error())
	}
}
