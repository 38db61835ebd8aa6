package engine_test

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
)

// TestPageLists checks the common limit of queues' page lists, and that
// destroying or resizing a queue releases its list.
func TestPageLists(t *testing.T) {
	const most = 1 << 13 // bytes of 1024 pages
	runWorld(t, &world{relaxed: true}, 1, engine.Config{LinkLayer: engine.Ethernet,
		Limits: engine.Limits{Translations: most}}, func(w *world) {
		h := w.hosts[0]
		w.do(func() {
			page, record := h.alloc(4096), h.alloc(8)
			pages := func(n int) engine.Buffer {
				b := engine.Buffer{PageShift: 12}
				for range n {
					b.Pages = append(b.Pages, page)
				}
				return b
			}
			all := pages(most / 8)
			cq := must(h.CreateCQ(engine.CQAttr{Buffer: pages(1), Record: record}))
			tis := must(h.CreateTIS(0)).Number
			destroy := map[string]func(b engine.Buffer) (func() error, error){
				"CQ": func(b engine.Buffer) (func() error, error) {
					c, err := h.CreateCQ(engine.CQAttr{Buffer: b, Record: record})
					return func() error { return h.DestroyCQ(c.Number) }, err
				},
				"QP": func(b engine.Buffer) (func() error, error) {
					q, err := h.CreateQP(engine.QPAttr{PD: h.pd, SendCQ: cq.Number, RecvCQ: cq.Number, LogRQStride: 4, LogRQSize: 2,
						Buffer: b, Record: record})
					return func() error { return h.DestroyQP(q.Number) }, err
				},
				"SRQ": func(b engine.Buffer) (func() error, error) {
					s, err := h.CreateSRQ(engine.SRQAttr{PD: h.pd, LogStride: 5, Buffer: b, Record: record})
					return func() error { return h.DestroySRQ(s.Number) }, err
				},
				"SQ": func(b engine.Buffer) (func() error, error) {
					q, err := h.CreateSQ(engine.SQAttr{CQ: cq.Number, TIS: tis, Buffer: b, Record: record})
					return func() error { return h.DestroySQ(q.Number) }, err
				},
				"RQ": func(b engine.Buffer) (func() error, error) {
					q, err := h.CreateRQ(engine.RQAttr{CQ: cq.Number, LogStride: 4, Buffer: b, Record: record})
					return func() error { return h.DestroyRQ(q.Number) }, err
				},
			}
			for name, create := range destroy {
				if _, err := create(all); !errors.Is(err, engine.ErrLimit) {
					t.Errorf("%s with all pages and one: %v", name, err)
				}
				for range 3 {
					end, err := create(pages(most/8 - 1))
					if err != nil {
						t.Fatalf("%s with all pages: %v", name, err)
					}
					w.must(end())
				}
			}
			for range 3 {
				w.must(cq.Resize(1, false, pages(most/16)))
				w.must(cq.Resize(1, false, pages(1)))
				cq = must(h.CQ(cq.Number))
				h.bytes(record, 4)[3] += 2 // the resize CQE has been polled
			}
			if err := cq.Resize(1, false, all); !errors.Is(err, engine.ErrLimit) {
				t.Errorf("resizing to all pages and one: %v", err)
			}
		})
	})
}
