package engine_test

import (
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx/engine"
	"github.com/goverbs/goverbs/testbed/connectx/prm"
	"github.com/goverbs/goverbs/testbed/connectx/transport"
)

// tcp is the 54 bytes of headers in front of a piece of a TCP stream.
func tcp(dst, src [6]byte) []byte {
	f := udp(dst, src, 1000, 2000, nil)
	f[23] = 6
	return append(f[:38], 0, 0, 1, 0, 0, 0, 0, 0, 0x50, 0x99, 0, 0, 0, 0, 0, 0)
}

// tso is a request to cut n bytes of a stream into frames.
func tso(header []byte, mss uint16, m *region, n int) wqe {
	w := wqe{op: prm.OpcodeTSO}.eth(0xc0, header)
	be.PutUint16(w.segments[6:], mss)
	return w.data(m, 0, n)
}

// TestSegmentationOfOthers: what is no stream of TCP is not cut, wherever its
// headers are.
func TestSegmentationOfOthers(t *testing.T) {
	for name, change := range map[string]func(f []byte){
		"no TCP header": func(f []byte) { clear(f[34:]) },
		"a fragment":    func(f []byte) { f[20] = 0x20 },
		"UDP":           func(f []byte) { f[23] = 17 },
		"no IP":         func(f []byte) { f[12] = 9 },
	} {
		for _, inline := range []bool{false, true} {
			run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
				var n *nic
				w.do(func() {
					n = w.hosts[0].newNIC(1, engine.TIRAttr{})
					m := n.h.register(4096, allRights)
					f := tcp(n.h.MAC(), n.h.MAC())
					change(f)
					m.put(0, f)
					if inline {
						n.post(tso(f, 100, m, 54))
					} else {
						n.post(tso(nil, 100, m, 54))
					}
				})
				if got := n.scq.poll(); len(got) != 1 || got[0].syndrome != uint8(transport.LocalQPOp) {
					w.t.Errorf("%s, inline %t: %+v", name, inline, got)
				}
			})
		}
	}
}
