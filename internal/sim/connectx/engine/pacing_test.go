package engine_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// A paced is a send queue whose frames of 1000 bytes take a millisecond each with rate 1, and half of it with rate 2,
// which permits a burst of three frames.
type paced struct {
	w *world
	n *nic
	m *region
}

func newPaced(w *world) *paced {
	p := &paced{w: w}
	w.do(func() {
		p.n = w.hosts[0].newNIC(1, engine.TIRAttr{})
		p.m = p.n.h.register(4096, allRights)
		p.m.put(0, udp(w.hosts[0].MAC(), w.hosts[0].MAC(), 1, 2, make([]byte, 1000-42)))
		w.must(p.n.h.SetRate(1, engine.Rate{Limit: 8000}))
		w.must(p.n.h.SetRate(2, engine.Rate{Limit: 16000, Burst: 2000}))
	})
	return p
}

// post posts n frames.
func (p *paced) post(n int) {
	for range n {
		p.n.post(wqe{op: prm.OpcodeSend}.eth(0, nil).data(p.m, 0, 1000))
	}
}

// times returns after how many half milliseconds each of n frames is complete.
func (p *paced) times(n int) (at []int) {
	synctest.Wait()
	for i := range 100 {
		for range p.n.scq.poll() {
			at = append(at, i)
		}
		if len(at) == n {
			return at
		}
		p.w.later(500 * time.Microsecond)
	}
	return at
}

// TestPacing checks when the frames of a send queue leave, with several rates.
func TestPacing(t *testing.T) {
	for name, c := range map[string]struct {
		index uint16
		want  []int
	}{
		"no limit":          {0, []int{0, 0, 0, 0, 0, 0}},
		"a rate":            {1, []int{0, 2, 4, 6, 8, 10}},
		"a rate with burst": {2, []int{0, 0, 0, 1, 2, 3}},
		"an empty entry":    {3, []int{0, 0, 0, 0, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
				p := newPaced(w)
				w.loop.Run(func() {
					w.must(p.n.h.SetSQRate(p.n.number, c.index))
					p.post(6)
				})
				if got := p.times(6); !slices.Equal(got, c.want) {
					w.t.Errorf("the frames left after %v half milliseconds, want %v", got, c.want)
				}
			})
		})
	}
}

// TestPacingChanges checks that a changed rate, an error and a reset take effect while frames wait.
func TestPacingChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change func(h *host, sq uint32)
		want   []int
	}{
		"the queue's rate": {func(h *host, sq uint32) { h.w.must(h.SetSQRate(sq, 2)) }, []int{0, 1, 1, 1, 2}},
		"the entry": {func(h *host, _ uint32) { h.w.must(h.SetRate(1, engine.Rate{Limit: 4000})) },
			[]int{0, 1, 5, 9, 13}},
		"no entry": {func(h *host, _ uint32) { h.w.must(h.SetRate(1, engine.Rate{})) }, []int{0, 1, 1, 1, 1}},
		"an error": {func(h *host, sq uint32) { h.w.must(h.ModifySQ(sq, engine.QueueReady, engine.QueueError)) },
			[]int{0, 1, 1, 1, 1}},
		"a reset": {func(h *host, sq uint32) { h.w.must(h.ModifySQ(sq, engine.QueueReady, engine.QueueReset)) },
			[]int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
				p := newPaced(w)
				w.loop.Run(func() {
					w.must(p.n.h.SetSQRate(p.n.number, 1))
					p.post(5)
				})
				w.loop.Run(func() { w.loop.After(500*time.Microsecond, func() { c.change(p.n.h, p.n.number) }) })
				if got := p.times(len(c.want)); !slices.Equal(got, c.want) {
					w.t.Errorf("the requests completed after %v half milliseconds, want %v", got, c.want)
				}
			})
		})
	}
	run(t, 1, engine.Config{LinkLayer: engine.Ethernet}, func(w *world) {
		p := newPaced(w)
		if err := p.n.h.SetRate(0, engine.Rate{Limit: 1}); err == nil {
			w.t.Error("entry 0 was set")
		}
		if err := p.n.h.SetSQRate(p.n.number+1, 1); err == nil {
			w.t.Error("an unknown queue has a rate")
		}
	})
}
