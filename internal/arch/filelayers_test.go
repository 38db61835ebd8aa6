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
				"wc_status event_type limits_memlock limits_rdmacgroup mem_unsafe file_pollable cq_record queue_lock " +
				"context_creations"},
		{"the Context and what its objects have in common",
			"provider context_ids context context_wrap context_gone queue_gate object context_extension " +
				"context_eventreader context_close context_idle"},
		{"opening and querying a device",
			"context_query context_open context_wallclock context_limit gid_table gid_select ah_explain"},
		{"memory, addresses and work requests",
			"pd_td pd pd_parent mr_registration mem_alloc mr mr_explain mr_rereg mr_null mr_dmabuf dm mr_advise mw grh " +
				"ah wr"},
		{"completions", "cq cq_channel queue_race_unsafe cq_wait cq_resize cq_moderate"},
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
		{"connections, listeners, groups", "conn conncalls request handshakes listener dial group"},
	},
}

// upwardUses are the uses of a higher layer, as user: used. A Context refers to the channel that
// its CQs share, and to its provider, whose methods have configurations and requests as
// parameters. An id refers to the SyncID or the channel that reads its events.
var upwardUses = map[string][]string{
	"uverbs": {
		"context: cq_channel", // the default completion channel
		"object: cq_channel",  // it does not count as in use
		"provider: wr",        // the types of the provider's interfaces
		"provider: qp_config", // likewise
	},
	"cm": {
		"id: destination", // of its events
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
