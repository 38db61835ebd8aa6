package mistakes

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestPolledAfterArm checks that a CQ which is armed with completions and then polled is not reported, whether it is
// closed or left, and that one which is not polled is.
func TestPolledAfterArm(t *testing.T) {
	for _, c := range []struct {
		name              string
		polled, cq, close bool
	}{
		{"polled, left", true, false, false},
		{"polled, the CQ closed", true, true, false},
		{"polled, all closed", true, false, true},
		{"not polled, left", false, false, false},
		{"not polled, all closed", false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &recorder{TB: t}
			m := verbstest.NewNetwork(r).Machine()
			m.Run(func() {
				p := newPair(m.Device(), config{})
				p.armWith(2)
				var wcs [4]uverbs.WC
				if c.polled {
					if n := must(p.b.cq.Poll(wcs[:])); n != 2 {
						t.Errorf("polled %d completions", n)
					}
				}
				if c.cq {
					check(p.b.qp.Close())
					check(p.b.cq.Close())
				}
				if c.close {
					p.close()
				}
			})
			r.end()
			reported := strings.Contains(strings.Join(r.errors, "\n"), "lost-wakeup")
			if reported == c.polled {
				t.Errorf("reported: %q", r.errors)
			}
		})
	}
}

// armWith arms the CQ of the second end when it has n completions.
func (p *pair) armWith(n int) {
	for range n {
		must(p.b.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{p.b.mr.SGE(0, 64)}}))
		p.send(64)
	}
	check(p.b.cq.Arm(false))
}
