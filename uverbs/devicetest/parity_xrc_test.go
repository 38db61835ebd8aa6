package devicetest

import (
	"errors"
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
)

// targets are the target QPs of a player's XRC connections, and their domain. The
// QPs of the player itself are initiators.
type targets struct {
	domain *uverbs.XRCD
	qps    []*uverbs.QP
}

// openXRCD opens an XRC domain. It skips the test if the device does not support XRC.
func openXRCD(t testing.TB, dev *uverbs.Context, file *os.File, flags uverbs.XRCDFlags) *uverbs.XRCD {
	t.Helper()
	x, err := dev.OpenXRCD(file, flags)
	if errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, features.XRC, err)
	}
	check(t, err)
	return x
}

// domainFile returns a new file that identifies a shared domain.
func domainFile(t testing.TB) *os.File {
	t.Helper()
	f := must(os.CreateTemp(t.TempDir(), "xrcd"))(t)
	t.Cleanup(func() { check(t, f.Close()) })
	return f
}

func (p *player) openXRC(t testing.TB) {
	t.Helper()
	p.xrc = &targets{domain: openXRCD(t, p.dev, domainFile(t), uverbs.XRCDCreate)}
	p.srq = must(p.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: parityDepth * len(p.qps), XRCD: p.xrc.domain, CQ: p.cq}))(t)
	for i := range p.qps {
		p.xrc.qps = append(p.xrc.qps, must(p.xrc.domain.CreateQP(uverbs.QPConfig{Access: p.qpAccess}))(t))
		p.qps[i] = must(p.pd.CreateQP(uverbs.QPConfig{
			Type: uverbs.XRCSend, SendCQ: p.cq, MaxSendWR: 10, MaxSendSGE: len(p.out)}))(t)
	}
}

func (p *player) connectXRC(t testing.TB) {
	t.Helper()
	for i, target := range p.xrc.qps {
		check(t, target.Connect(endpoint(t, p.peer.qps[i])))
		check(t, p.qps[i].Connect(endpoint(t, p.peer.xrc.qps[i])))
	}
	p.addr, p.rkey = p.peer.mr.Addr(), p.peer.mr.RKey()
}

// xrcMessages sends messages in both directions, as utils.xrc_traffic does.
func xrcMessages(s setup, op uverbs.Opcode) func(*testing.T) {
	s.kind, s.pairs = uverbs.XRCSend, 2
	return func(t *testing.T) {
		client, _ := newPlayers(t, s)
		traffic(t, client, op)
	}
}

func xrcAtomics(s setup, op uverbs.Opcode) func(*testing.T) {
	s.kind, s.pairs = uverbs.XRCSend, 2
	return func(t *testing.T) {
		client, _ := newPlayers(t, s)
		atomicTraffic(t, client, op)
	}
}
