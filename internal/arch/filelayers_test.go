package arch

import (
	"slices"
	"strings"
	"testing"
)

// A fileLayer is a group of files of a package. They use files of their own layer and of those
// before it.
type fileLayer struct{ about, files string }

// fileLayers is a map of large packages for readers, from the bottom up.
var fileLayers = map[string][]fileLayer{
	"uverbs": {
		{"values: errors, attributes, requests without objects, limits of the process",
			"doc errors endian rate mr_access device_caps device_attr device gid qp_attr qp_path qp_transitions wc " +
				"wc_status event_type limits_memlock limits_rdmacgroup mem_unsafe mem_reuse file_pollable cq_record " +
				"queue_lock context_creations"},
		{"the Context and what its objects have in common",
			"provider context_ids context context_wrap context_gone queue_gate object context_extension " +
				"context_eventreader context_close context_idle"},
		{"opening and querying a device",
			"context_query context_open context_wallclock context_limit gid_table gid_select ah_explain"},
		{"memory, addresses and work requests",
			"pd_td pd pd_parent mr_registration mem_alloc mr mr_explain mr_rereg mr_null mr_dmabuf dm mr_advise mw grh " +
				"ah wr"},
		{"completions", "cq_polling cq cq_channel queue_race_unsafe cq_wait cq_resize cq_moderate"},
		{"receive queues that are objects: SRQs", "srq_xrcd srq"},
		{"QPs", "qp_createflags qp_config qp_queueless qp qp_ece qp_modify qp_mcast mw_bind qp_close qp_create qp_xrc " +
			"qp_batch qp_batch_unsafe qp_completions qp_drain qp_dataorder"},
		{"events, connecting, sharing, doors for other packages",
			"context_event cq_overrun qp_endpoint qp_handshake context_import doors"},
	},
	"cm": {
		{"values: errors, addresses, parameters, the phases of an id; devices; the kernel's descriptor",
			"doc errors reason addr param life host reject node setup"},
		{"an id, its QP's states, its groups, its events, its end", "id ece qpstate xrc multicast event record end"},
		{"where the events of ids are read", "channel sync pump destination"},
		{"the commands of an id", "resolve options service connect qp srq verbs close"},
		{"processing events, calls that wait", "process migrate next synccalls addrinfo"},
		{"connections, listeners, groups", "conn conncalls request handshakes listener dial group doors"},
	},
	"provider/mlx5": {
		{"values: errors, the environment, registers, the formats of requests, records, tables of queues",
			"doc errors env options uar uarfixed record wqe table views_unsafe"},
		{"the context", "context object ah clock wallclock sourceport domain"},
		{"the queues of a CQ, an SRQ and a QP",
			"size cq rq srq srqfault send_queue send_segments send_request bind frame send_batch send_post send_fast_unsafe"},
		{"polling", "poll pollany short_unsafe scatter"},
		{"QPs, WQs, DCTs", "qp dc ece outoforder wq rq_unsafe zencode_unsafe send_raw purge watched"},
		{"extensions, the interfaces of the driver",
			"dcistream lagport ratelimit reservedqpn memoryop memoryop_unsafe devicememory drain import interfaces"},
	},
	"rdma": {
		{"values: errors, what is on the wire, options",
			"doc errors callerror wire trailer metadata options hello tlsoptions seal histogram"},
		{"the state of a Conn, its memory and its hooks", "state pool buffer slice misuse hooks"},
		{"messages, also large ones; credits, waits, the end", "conn wait flow budget message send fence recv offer " +
			"incoming end sealed shared sharing"},
		{"memory of peers", "token region onesided batch flush"},
		{"calls", "call callinto reply cancel arrived stats"},
		{"connections that are idle or silent", "idle keepalive"},
		{"establishing connections", "tls dial served listener slot rails client"},
		{"servers, groups", "serve handle shutdown group grouproute"},
	},
	"rsocket": {
		{"values: errors, what is on the wire, the configuration", "doc errors wire config ibaddr"},
		{"a Conn: its queues, credits and waits", "conn send recv wait keepalive"},
		{"the calls of a Conn", "io mapping writemr end"},
		{"establishing connections", "dial limits listener"},
		{"a PacketConn: its wire, sockets, QPs, peers and waits",
			"packetwire packetsocket packet packetqp packetpeer packetwait"},
		{"its routes", "packetroute"},
		{"its contact messages, reads and writes", "packetcontact packetio"},
	},
}

// upwardUses are the uses of a higher layer, as user: used. A Context refers to the channels of
// its CQs, and to its provider, whose methods have configurations and requests as
// parameters. An id refers to the SyncID or the channel that reads its events. In rdma, one
// queue carries the messages, calls and accesses to memory of a Conn, and the leader handles the
// completions of all of them.
var upwardUses = map[string][]string{
	"uverbs": {
		"context: cq_channel", // the channels of its CQs
		"provider: wr",        // the types of the provider's interfaces
		"provider: qp_config", // likewise
	},
	"cm": {
		"id: destination", // of its events
	},
	"provider/mlx5": {
		"env: size",                // rounds up
		"views_unsafe: cq",         // views of its ring
		"views_unsafe: send_queue", // likewise
		"wqe: send_queue",          // fills its tables of the fast path
		"table: rq",                // the queues in a table
		"table: srq",               // likewise
		"table: send_queue",        // likewise
		"table: frame",             // likewise
		"context: frame",           // how much of a frame a request has
		"context: reservedqpn",     // those of the context
		"cq: poll",                 // the index that no queue has
		"rq: qp",                   // methods of a QP
		"send_batch: qp",           // likewise
		"send_fast_unsafe: qp",     // likewise
		"frame: qp",                // likewise
		"frame: outoforder",        // queries the device
		"srq: watched",             // the SRQ that a program gets
		"pollany: purge",           // whether a CQE is about a receive
		"outoforder: lagport",      // an attribute of the device
		"outoforder: ratelimit",    // likewise
	},
	"rdma": {
		"options: state",     // Trace has a Conn
		"state: message",     // that has arrived
		"state: budget",      // of the listener
		"state: region",      // the shares that Close ends
		"buffer: budget",     // released with its Buffer
		"buffer: recv",       // the slot of a message
		"buffer: sharing",    // likewise
		"wait: call",         // whether a call can be posted
		"wait: arrived",      // whether Handle can go on
		"flow: cancel",       // sent with the credits
		"send: onesided",     // checks of Buffers, operations that the same queue completes
		"offer: region",      // the window of an offer
		"incoming: onesided", // a READ fetches the message
		"incoming: call",     // a large reply
		"recv: call",         // a call or reply that has arrived
		"recv: cancel",       // likewise
		"end: call",          // which the end of a Conn ends
		"end: cancel",        // likewise
	},
	"rsocket": {
		"errors: conn",          // the addresses in an error
		"conn: mapping",         // which Close closes
		"recv: mapping",         // one that the peer has sent
		"wait: io",              // whether reading or writing has ended
		"packet: packetroute",   // the goroutine that ListenPacket starts
		"packet: packetcontact", // likewise
		"packet: packetio",      // what has arrived, and the limit of a write
	},
}

func TestFileLayers(t *testing.T) {
	for pkg, layers := range fileLayers {
		t.Run(pkg, func(t *testing.T) {
			g := newFileGraph(t, pkg, exportData(t, []string{pkg}))
			layerOf := map[string]int{}
			for i, l := range layers {
				for f := range strings.FieldsSeq(l.files) {
					if _, ok := layerOf[f]; ok {
						t.Errorf("%s is in two layers", f)
					}
					layerOf[f] = i
				}
			}
			for _, f := range g.files {
				if _, ok := layerOf[strings.TrimSuffix(f, ".go")]; !ok {
					t.Errorf("%s/%s: fileLayers does not list it", pkg, f)
				}
			}
			if len(layerOf) > len(g.files) {
				t.Errorf("fileLayers lists %d files, the package has %d", len(layerOf), len(g.files))
			}
			allowed := slices.Clone(upwardUses[pkg])
			for e, names := range g.uses {
				from, to := strings.TrimSuffix(g.files[e.from], ".go"), strings.TrimSuffix(g.files[e.to], ".go")
				if layerOf[from] >= layerOf[to] {
					continue
				}
				i := slices.Index(allowed, from+": "+to)
				if i < 0 {
					t.Errorf("%s.go (%s) uses %s.go (%s): %s", from, layers[layerOf[from]].about, to,
						layers[layerOf[to]].about, strings.Join(names, ", "))
					continue
				}
				allowed = slices.Delete(allowed, i, i+1)
			}
			for _, use := range allowed {
				t.Errorf("upwardUses lists %q, which does not exist", use)
			}
		})
	}
}
