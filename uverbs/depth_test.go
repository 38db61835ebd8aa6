package uverbs

import (
	"slices"
	"testing"
)

// A depthQP is a QP of a provider that must know how many READs the peer serves.
type depthQP struct {
	*fakeQP
	depths []uint8
}

func (q *depthQP) SetRdAtomic(n uint8) { q.depths = append(q.depths, n) }

// TestProviderLearnsDepth checks that the provider is told the number of READs that Connect and Modify set, so that it
// can refuse READs on a connection without any.
func TestProviderLearnsDepth(t *testing.T) {
	for _, depth := range []uint8{0, 1} {
		_, qp := raw(t, "10.1.1.1")
		p := &depthQP{fakeQP: qp.impl.(*fakeQP)}
		qp.impl = p
		check(t, qp.Connect(Endpoint{QPN: 1, MTU: MTU1024, GID: gid("10.1.1.2"), RdAtomic: depth}))
		if !slices.Equal(p.depths, []uint8{depth}) {
			t.Errorf("a peer that serves %d READs: the provider is told %d", depth, p.depths)
		}
	}
}
