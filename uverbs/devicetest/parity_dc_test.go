package devicetest

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceParityDC has the tests of tests/test_mlx5_dc.py, except one that maps an address handle to a QP, which the
// software ConnectX does not.
func TestDeviceParityDC(t *testing.T) {
	const access = uverbs.RemoteWrite | uverbs.RemoteRead | uverbs.RemoteAtomic
	pair := setup{kind: uverbs.DCI, pairs: 2, srq: true, batch: true, rounds: 10, access: access, qpAccess: access}
	for name, run := range map[string]func(*testing.T){
		"test_dc_rdma_write": func(t *testing.T) {
			client, _ := newPlayers(t, pair)
			remoteTraffic(t, client, uverbs.OpWrite)
		},
		"test_dc_send": func(t *testing.T) {
			client, _ := newPlayers(t, pair)
			traffic(t, client, uverbs.OpSend)
		},
		"test_dc_atomic": func(t *testing.T) {
			client, _ := newPlayers(t, pair)
			atomicTraffic(t, client, uverbs.OpFetchAdd)
		},
		"test_odp_dc_traffic": func(t *testing.T) {
			s := pair
			s.access = uverbs.OnDemand
			client, _ := newPlayers(t, s)
			traffic(t, client, uverbs.OpSend)
		},
		"test_dc_rdma_write_stream": func(t *testing.T) {
			s := pair
			s.streams = uverbs.DCIStreams{Concurrent: 8, Errored: 4}
			client, _ := newPlayers(t, s)
			remoteTraffic(t, client, uverbs.OpWrite)
		},
		"test_dc_send_stream_bad_flow": func(t *testing.T) {
			s := pair
			s.pairs, s.streams = 1, uverbs.DCIStreams{Concurrent: 8, Errored: 4}
			client, _ := newPlayers(t, s)
			resetStreams(t, client)
		},
		"test_dc_send_stream_bad_flow_qp": func(t *testing.T) {
			s := pair
			s.pairs, s.streams = 1, uverbs.DCIStreams{Concurrent: 8, Errored: 4}
			client, _ := newPlayers(t, s)
			badStreams(t, client)
		},
	} {
		t.Run(name, run)
	}
}

const dctKey = 0xffeeddcc

// openDC creates the player's DCT, and DCIs in place of its QPs. It skips the test if the device does not support DC.
func (p *player) openDC(t testing.TB) {
	t.Helper()
	p.dct = createDC(t, p.pd, uverbs.QPConfig{Type: uverbs.DCT, RecvCQ: p.cq, SRQ: p.srq, DCKey: dctKey,
		Access: p.qpAccess})
	check(t, p.dct.Ready())
	for i := range p.qps {
		p.qps[i] = createDC(t, p.pd, uverbs.QPConfig{Type: uverbs.DCI, SendCQ: p.cq, MaxSendWR: 100,
			MaxSendSGE: len(p.out), DCIStreams: p.streams})
	}
}

func createDC(t testing.TB, pd *uverbs.PD, cfg uverbs.QPConfig) *uverbs.QP {
	t.Helper()
	q, err := pd.CreateQP(cfg)
	if errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, features.DC, err)
	}
	if cfg.DCIStreams.Concurrent > 0 && errors.Is(err, uverbs.ErrInvalid) { // the kernel does not know the flag
		features.Missing(t, features.DCStreams, err)
	}
	check(t, err)
	return q
}

func (p *player) connectDC(t testing.TB) {
	t.Helper()
	remote := endpoint(t, p.peer.dct)
	for _, q := range p.qps {
		check(t, q.Ready())
	}
	p.ah = must(p.pd.CreateAH(must(p.qps[0].AHAttr(remote))(t)))(t)
	p.addr, p.rkey = p.peer.mr.Addr(), p.peer.mr.RKey()
}

// toDCT sets the destination of a request: the peer's DCT. Requests use the streams in turn, and a few that are more
// than the device carries out at the same time.
func (p *player) toDCT(wr *uverbs.SendWR) {
	wr.AH, wr.QPN, wr.DCKey = p.ah, p.peer.dct.QPN(), dctKey
	if n := p.streams.Concurrent; n > 0 {
		p.stream = p.stream%uint16(n+2) + 1
		wr.DCStream = p.stream
	}
}

// resetStreams lets more streams fail than a DCI tolerates, and resets each, so that the DCI stays in RTS.
func resetStreams(t testing.TB, p *player) {
	t.Helper()
	foreign := must(must(p.dev.AllocPD())(t).Alloc(p.size, uverbs.LocalWrite))(t)
	q := p.qps[0]
	for i := range 2 * p.streams.Errored {
		p.post(t, 0, uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{foreign.SGE(0, p.size)}})
		_, err := p.done(t)
		fails(t, err, uverbs.WCLocProtErr)
		err = mlx5.ResetDCIStream(q, p.stream)
		if errors.Is(err, uverbs.ErrNotSupported) {
			features.Missing(t, features.DCStreamReset, err)
		}
		check(t, err)
		if i == 0 {
			if err := mlx5.ResetDCIStream(q, p.stream+1); !errors.Is(err, uverbs.ErrInvalid) {
				t.Errorf("reset of a stream that has not failed: %v", err)
			}
		}
		if a := must(q.Query(uverbs.MaskState))(t); a.State != uverbs.StateRTS {
			t.Fatalf("after %d errors the DCI is in %v", i+1, a.State)
		}
	}
	traffic(t, p, uverbs.OpSend)
}

// badStreams lets streams of a DCI fail until the DCI is in ERR, and checks that it works again after RESET.
func badStreams(t testing.TB, p *player) {
	t.Helper()
	foreign := must(must(p.dev.AllocPD())(t).Alloc(p.size, uverbs.LocalWrite))(t)
	q := p.qps[0]
	for i := range p.streams.Errored {
		if a := must(q.Query(uverbs.MaskState))(t); a.State != uverbs.StateRTS {
			t.Fatalf("after %d errors the DCI is in %v", i, a.State)
		}
		p.post(t, 0, uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{foreign.SGE(0, p.size)}})
		_, err := p.done(t)
		fails(t, err, uverbs.WCLocProtErr)
	}
	p.post(t, 0, uverbs.SendWR{Opcode: uverbs.OpSend, SGL: p.outgoing()})
	_, err := p.done(t)
	fails(t, err, uverbs.WCWRFlushErr)
	if a := must(q.Query(uverbs.MaskState))(t); a.State != uverbs.StateErr {
		t.Fatalf("after %d errors the DCI is in %v", p.streams.Errored, a.State)
	}
	check(t, q.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
	check(t, q.Ready())
	traffic(t, p, uverbs.OpSend)
}
