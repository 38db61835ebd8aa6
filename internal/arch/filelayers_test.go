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
			"doc errors endian rate access caps attr device gid qpattr path transitions wc status eventtype " +
				"memlock rdmacgroup mem_unsafe pollable record queuelock creations"},
		{"the Context and what its objects have in common",
			"provider ids context wrap devicegone gate object extension eventreader close idle"},
		{"opening and querying a device", "query open wallclock limit gidtable gidselect ahexplain"},
		{"memory, addresses and work requests",
			"td pd domain registration alloc mr mrexplain rereg nullmr dmabuf dm advise mw grh ah wr"},
		{"completions", "cq channel racedetector_unsafe wait resize moderate"},
		{"receive queues that are objects: SRQs", "xrcd srq"},
		{"QPs", "createflags qpconfig queueless qp ece modify mcast mwbind qpclose qpcreate xrcqp batch batch_unsafe " +
			"cquse drain dataorder"},
		{"events, connecting, sharing, doors for other packages", "event cqoverrun endpoint handshake import doors"},
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
		"context: channel",   // the default completion channel
		"object: channel",    // it does not count as in use
		"provider: wr",       // the types of the provider's interfaces
		"provider: qpconfig", // likewise
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
