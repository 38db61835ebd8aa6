//go:build vm

package interop

import (
	"fmt"
	"slices"
	"strings"
)

// The output of rping on standard error in a successful run.
var (
	serverLeft = []string{"server DISCONNECT EVENT...", "wait for RDMA_READ_ADV state 10"}
	clientLeft = []string{"client DISCONNECT EVENT..."}
)

// rpingCases print or compare every text at each end.
var rpingCases = []cmCase{
	rping("rping", "-v -a {addr} -p {port}", "-vV -C 10 -a {addr} -p {port}", 10, 64),
	rping("rping_long", "-S 65535 -a {addr} -p {port}", "-V -C 20 -S 65535 -I {addr} -a {addr} -p {port}", 0, 0),
	rping("rping_short", "-v -S 23 -a {addr} -p {port}", "-v -C 100 -S 23 -a {addr} -p {port}", 100, 23),
	rping("rping_own_qp", "-vq -a {addr} -p {port}", "-qvV -C 10 -a {addr} -p {port}", 10, 64),
	rping("rping_server_own_qp", "-vq -a {addr} -p {port}", "-vV -C 3 -a {addr} -p {port}", 3, 64),
	rping("rping_client_own_qp", "-v -a {addr} -p {port}", "-qvV -C 3 -a {addr} -p {port}", 3, 64),
	rping("rping_any", "-a ::0 -p {port}", "-V -C 2 -a {addr} -p {port}", 0, 0), // takes IPv4 as well
}

// rping returns a case with a number of printed pings of a size.
func rping(name, server, client string, printed, size int) cmCase {
	return cmCase{name: name, space: "TCP",
		server: cmEnd{"rping", "-s " + server, pings("server ping data", printed, size), serverLeft},
		client: cmEnd{"rping", "-c " + client, pings("ping data", printed, size), clientLeft},
	}
}

// pings returns the output of rping: each text is the ping's number followed by the
// characters from A to z repeatedly, starting with the next character each time.
func pings(label string, n, size int) string {
	var b strings.Builder
	for ping := range n {
		text := fmt.Appendf(nil, "rdma-ping-%d: ", ping)
		for c := ping; len(text) < size-1; c++ {
			text = append(text, 'A'+byte(c%('z'-'A'+1)))
		}
		fmt.Fprintf(&b, "%s: %s\n", label, text[:size-1])
	}
	return b.String()
}

var ucmatoseCases = []cmCase{
	ucmatose("ucmatose", "", "", true),
	ucmatose("ucmatose_many", "-c 20 -C 7 -S 333", "-b {addr} -c 20 -C 7 -S 333 -t 32 -a 14", true),
	ucmatose("ucmatose_long", "-c 2 -C 3 -S 100000", "-c 2 -C 3 -S 100000", true),
	ucmatose("ucmatose_none", "-c 3 -C 0", "-c 3 -C 0", false),
	ucmatose("ucmatose_migrate", "-m -f ip", "-m -f ip -P tcp", true, "migrating to new event channel"),
}

func ucmatose(name, server, client string, data bool, extra ...string) cmCase {
	s := []string{"cmatose: starting server", "initiating data transfers", "completing sends", "receiving data transfers",
		"data transfers complete", "cmatose: disconnecting", "disconnected", "test complete", "return status 0"}
	c := []string{"cmatose: starting client", "cmatose: connecting", "receiving data transfers", "sending replies",
		"data transfers complete", "test complete", "return status 0"}
	s, c = slices.Insert(s, 5, extra...), slices.Insert(c, 5, extra...)
	if !data {
		s, c = slices.Delete(s, 1, 5), slices.Delete(c, 2, 5)
	}
	return cmCase{name: name, space: "TCP",
		server: cmEnd{"ucmatose", "-b {addr} -p {port} " + server, lines(s...), nil},
		client: cmEnd{"ucmatose", "-s {addr} -p {port} " + client, lines(c...), nil},
	}
}

// udaddy has no option for its port, so there is one server at a time.
var udaddyCases = []cmCase{
	udaddy("udaddy", "", "", true),
	udaddy("udaddy_many", "-c 5 -C 9 -S 1000", "-b {addr} -c 5 -C 9 -S 1000 -t 32", true),
	udaddy("udaddy_long", "-C 3 -S 4096", "-C 3 -S 4096 -P udp -f ip", true),
	udaddy("udaddy_none", "-C 0", "-C 0", false),
}

func udaddy(name, server, client string, data bool) cmCase {
	s := []string{
		"udaddy: starting server",
		"receiving data transfers",
		"sending replies",
		"data transfers complete",
		"test complete",
		"return status 0",
	}
	c := []string{"udaddy: starting client", "udaddy: connecting", "initiating data transfers", "receiving data transfers",
		"data transfers complete", "test complete", "return status 0"}
	if !data {
		s, c = slices.Delete(s, 1, 4), slices.Delete(c, 2, 5)
	}
	return cmCase{name: name, space: "UDP",
		server: cmEnd{"udaddy", "-b {addr} " + server, lines(s...), nil},
		client: cmEnd{"udaddy", "-s {addr} " + client, lines(c...), nil},
	}
}

var rdmaServerCases = []cmCase{{name: "rdma_client", space: "TCP",
	server: cmEnd{"rdma_server", "-s {addr} -p {port}", lines("rdma_server: start", "rdma_server: end 0"), nil},
	client: cmEnd{"rdma_client", "-s {addr} -p {port}", lines("rdma_client: start", "rdma_client: end 0"), nil},
}}

func lines(l ...string) string { return strings.Join(l, "\n") + "\n" }
