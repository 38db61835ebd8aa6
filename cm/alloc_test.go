package cm

import (
	"context"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestHotPathAllocatesNothing checks that posting and polling do not allocate if literals are built at the call site,
// as in programs. The tests of the providers check the posts alone.
func TestHotPathAllocatesNothing(t *testing.T) {
	newRig(t)
	ctx := context.Background()
	for _, single := range []bool{false, true} {
		l := syncListener(t, PSTCP)
		a := newSyncID(t, PSTCP)
		check(t, a.ResolveAddr(limit(t), at(here, 0), l.LocalAddr(), 0))
		check(t, a.ResolveRoute(limit(t), 0))
		check(t, a.CreateQP(nil, uverbs.QPConfig{MaxSendWR: 256, MaxRecvWR: 256, MaxInline: 64, MaxSendSGE: 2, MaxRecvSGE: 2,
			SingleGoroutine: single}))
		connectTo(t, l, a)
		mr := closing(t, good(a.AllocMsgs(4096))(t))
		inline := []byte("sixteen bytes ..")
		for name, call := range map[string]func(){
			"PostRecv":        func() { _ = a.PostRecv(1, mr.SGE(0, 64)) },
			"PostRecv, two":   func() { _ = a.PostRecv(1, mr.SGE(0, 64), mr.SGE(64, 64)) },
			"PostSend":        func() { _ = a.PostSend(1, 0, mr.SGE(0, 64)) },
			"PostSend, two":   func() { _ = a.PostSend(1, 0, mr.SGE(0, 64), mr.SGE(64, 64)) },
			"PostSendInline":  func() { _ = a.PostSendInline(1, 0, inline) },
			"PostRead":        func() { _ = a.PostRead(1, 0, 4096, 7, mr.SGE(0, 64)) },
			"PostWrite":       func() { _ = a.PostWrite(1, 0, 4096, 7, mr.SGE(0, 64)) },
			"PostWriteImm":    func() { _ = a.PostWriteImm(1, 0, 4096, 7, 9, mr.SGE(0, 64)) },
			"PostWriteInline": func() { _ = a.PostWriteInline(1, 0, 4096, 7, inline) },
			"SendComp": func() {
				_ = a.PostSend(1, uverbs.Signaled, mr.SGE(0, 64))
				if wc, err := a.SendComp(ctx); err != nil || wc.WRID != 1 {
					t.Errorf("%+v, %v", wc, err)
				}
			},
		} {
			if n := testing.AllocsPerRun(200, call); n != 0 {
				t.Errorf("single goroutine %v: %s allocates %v times", single, name, n)
			}
		}
		if single {
			check(t, a.Disconnect(limit(t)))
		}
	}
}

// TestDatagramsAllocateNothing checks that datagrams and receives in an SRQ do not allocate.
func TestDatagramsAllocateNothing(t *testing.T) {
	newRig(t)
	g := closing(t, good(JoinMulticast(limit(t), group.String(),
		&Options{LocalAddr: at(here, 0), QP: uverbs.QPConfig{MaxSendWR: 16, MaxRecvWR: 16, MaxInline: 64}}))(t))
	mr := closing(t, good(g.AllocMsgs(4096))(t))
	s := newSyncID(t, PSUDP)
	check(t, s.Bind(at(here, 0)))
	check(t, s.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 500}))
	inline := []byte("sixteen bytes ..")
	for name, call := range map[string]func(){
		"Group.PostSend":   func() { _ = g.PostSend(1, 0, mr.SGE(0, 64)) },
		"PostUDSend":       func() { _ = g.id.PostUDSend(1, 0, g.ah, 5, mr.SGE(0, 64)) },
		"PostUDSendInline": func() { _ = g.id.PostUDSendInline(1, 0, g.ah, 5, inline) },
		"PostRecv, SRQ":    func() { _ = s.PostRecv(1, mr.SGE(0, 64)) },
	} {
		if n := testing.AllocsPerRun(200, call); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
