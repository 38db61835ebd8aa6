package engine_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// A pair is two connected queue pairs with registered memory.
type pair struct {
	a, b   *qp
	am, bm *region
}

func newPair(w *world, a engine.QPAttr) *pair {
	p := &pair{}
	w.loop.Run(func() {
		p.a, p.b = w.hosts[0].newQP(a), w.hosts[len(w.hosts)-1].newQP(a)
		p.am, p.bm = p.a.h.register(1<<16, allRights), p.b.h.register(1<<16, allRights)
		connect(p.a, p.b)
	})
	return p
}

// worlds are the configurations in which data must arrive.
var worlds = []struct {
	name   string
	hosts  int
	config engine.Config
}{
	{"loopback", 1, engine.Config{CQEVersion: 1}},
	{"subnet", 2, engine.Config{CQEVersion: 1}},
	{"ethernet", 2, engine.Config{CQEVersion: 1, LinkLayer: engine.Ethernet}},
	{"ethernet loopback", 1, engine.Config{CQEVersion: 1, LinkLayer: engine.Ethernet}},
}

func inWorlds(t *testing.T, f func(w *world)) {
	for _, x := range worlds {
		t.Run(x.name, func(t *testing.T) { run(t, x.hosts, x.config, f) })
	}
}

// TestRC transfers SENDs, WRITEs and READs of sizes around the MTU, with WQEs
// at all offsets of the ring.
func TestRC(t *testing.T) {
	inWorlds(t, func(w *world) {
		p := newPair(w, engine.QPAttr{})
		for i, n := range []int{2, 16, 63, 64, 1023, 1024, 1025, 4096, 5000, 30000} {
			what := fmt.Sprintf("%d bytes", n)
			want := pattern(n, i)
			p.am.put(i, want)
			w.do(func() {
				p.b.recv(p.bm, 3, n+2)
				p.a.post(wqe{op: prm.OpcodeSendImm, imm: 0x1234}.data(p.am, i, n))
			})
			p.a.scq.expect(what+" sent", sent)
			p.b.rcq.expect(what+" received", cqe{op: prm.CQERespSendImm, bytes: uint32(n), imm: 0x1234})
			if !bytes.Equal(p.bm.get(3, n), want) {
				w.t.Errorf("SEND of %s: other bytes arrived", what)
			}
			w.do(func() { p.a.post(wqe{op: prm.OpcodeWrite}.raddr(p.bm, 7).data(p.am, i, n)) })
			p.a.scq.expect(what+" written", sent)
			if !bytes.Equal(p.bm.get(7, n), want) {
				w.t.Errorf("WRITE of %s: other bytes arrived", what)
			}
			want = pattern(n, 99)
			p.bm.put(11, want)
			w.do(func() { p.a.post(wqe{op: prm.OpcodeRead}.raddr(p.bm, 11).data(p.am, 0, n/2).data(p.am, 40000, n-n/2)) })
			p.a.scq.expect(what+" read", cqe{op: prm.CQEReq, bytes: uint32(n)})
			if got := append(p.am.get(0, n/2), p.am.get(40000, n-n/2)...); !bytes.Equal(got, want) {
				w.t.Errorf("READ of %s: other bytes arrived", what)
			}
		}
	})
}
