//go:build vm

package interop

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// xrcCases test programs that rxe does not support. The tool that shows listeners
// calls the port space IB IPoIB.
var xrcCases = []cmCase{rdmaX("rdma_xclient", "TCP", ""), rdmaX("rdma_xclient_xrc", "IPoIB", " -c x")}

func rdmaX(name, space, args string) cmCase {
	return cmCase{name: name, space: space,
		server: cmEnd{"rdma_xserver", "-p {port}" + args, lines("rdma_xserver: start", "rdma_xserver: end 0"), nil},
		client: cmEnd{"rdma_xclient", "-s {addr} -p {port}" + args, lines("rdma_xclient: start", "rdma_xclient: end 0"), nil},
	}
}

// testXRC sends a message over RC and over XRC.
func (h *host) testXRC(t *testing.T) {
	for _, c := range xrcCases {
		for _, p := range pairs {
			t.Run(c.name+"/"+p.String(), func(t *testing.T) {
				skipAlike(t, p, p.server == goSide) // rxe has no XRC
				h.runCM(t, c, p, address)
			})
		}
	}
}

// gidCases are run on InfiniBand. In the arguments, {addr} is a GID, and the program
// sets the path to it.
var gidCases = []cmCase{
	ucmatose("ucmatose", "-f gid -c 2 -C 5 -S 3333", "-f gid -b {addr} -c 2 -C 5 -S 3333", true),
	ucmatose("ucmatose_ib", "-f gid -P ib -C 3", "-f gid -P ib -b {addr} -C 3", true),
}

// routes provides paths to librdmacm instead of ibacm, because there is no subnet
// manager.
const routes = "../connectx/judge/testdata/routes.py"

// testGIDs connects the port to itself by its GID. The C client asks for the path;
// ours gets the LID as an option.
func (h *host) testGIDs(t *testing.T) {
	source, err := os.ReadFile(routes)
	if err != nil {
		t.Fatal(err)
	}
	r := h.start(t, "python3", "-c", string(source))
	defer r.Kill()
	if !r.Stdout.Await("ready") {
		t.Fatalf("the path service does not run:\n%v", r)
	}
	port := "/sys/class/infiniband/" + h.device + "/ports/1/"
	gid := strings.TrimSpace(h.output(t, "cat", port+"gids/0"))
	lid := strings.TrimSpace(h.output(t, "cat", port+"lid"))
	for _, c := range gidCases {
		for _, p := range pairs {
			c := c
			if p.client == goSide {
				c.client.args += " --dlid " + lid
			}
			t.Run(c.name+"/"+p.String(), func(t *testing.T) { h.playByGID(t, c, p, gid) })
		}
	}
}

// playByGID runs a case. There is no way to see that a server listens at a GID, so a
// client that is too early is rejected, and runs again. If only its first connection
// was too early, the server has ended because of the others.
func (h *host) playByGID(t *testing.T, c cmCase, p pair, gid string) {
	var server, client *program.Process
	port := ""
	for range 100 {
		if server == nil || !server.Running() {
			port = h.port()
			s := h.cmEnd(c.server, p.server, gid, port)
			server = h.start(t, s.path, s.args...)
		}
		e := h.cmEnd(c.client, p.client, gid, port)
		client = h.start(t, e.path, e.args...)
		<-client.Ended
		if !strings.Contains(client.Stdout.String(), "RDMA_CM_EVENT_REJECTED") {
			break
		}
	}
	serverErr, clientErr := program.Finish(server, client)
	if serverErr != nil || clientErr != nil {
		t.Fatal(fmt.Errorf("server: %v\n%v\nclient: %v\n%v", serverErr, server, clientErr, client))
	}
	c.server.check(t, server)
	c.client.check(t, client)
}
