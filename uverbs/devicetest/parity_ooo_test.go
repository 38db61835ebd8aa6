package devicetest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceParityOOO has the tests of tests/test_mlx5_ooo_qp.py: QPs whose packets may overtake others.
func TestDeviceParityOOO(t *testing.T) {
	const access = uverbs.RemoteWrite | uverbs.RemoteRead
	pair := setup{options: &mlx5.QPOptions{OutOfOrder: true}, needs: features.OutOfOrder, sends: parityDepth,
		access: access, qpAccess: access}
	for name, run := range map[string]func(*testing.T){
		"test_ooo_qp_bad_flow": func(t *testing.T) {
			_, server := newPlayers(t, pair)
			badOutOfOrder(t, server)
		},
		"test_ooo_qp_send_traffic": func(t *testing.T) {
			client, server := newPlayers(t, pair)
			trafficAtOnce(t, client, server, uverbs.OpSend)
		},
		"test_ooo_qp_rdma_write_imm_traffic": func(t *testing.T) {
			client, server := newPlayers(t, pair)
			trafficAtOnce(t, client, server, uverbs.OpWriteImm)
		},
	} {
		t.Run(name, run)
	}
}

func (p *player) createOutOfOrder(kind uverbs.QPType, receives int) (*uverbs.QP, error) {
	return p.pd.CreateQP(uverbs.QPConfig{Type: kind, SendCQ: p.cq, MaxSendWR: parityDepth, MaxRecvWR: receives,
		Access: p.qpAccess, Options: &mlx5.QPOptions{OutOfOrder: true}})
}

// badOutOfOrder creates a QP with as many receives as there can be, and tries one with more and one of a type that has
// no such option.
func badOutOfOrder(t testing.TB, p *player) {
	t.Helper()
	most := must(mlx5.QueryDevice(p.dev))(t).OutOfOrder.RC
	q := must(p.createOutOfOrder(uverbs.RC, most))(t)
	if a := must(q.Query(uverbs.MaskState | uverbs.MaskCap))(t); a.Cap.MaxRecvWR != most || q.Cap().MaxRecvWR != most {
		t.Errorf("a QP for %d receives has room for %d, and says %d", most, a.Cap.MaxRecvWR, q.Cap().MaxRecvWR)
	}
	if _, err := p.createOutOfOrder(uverbs.RC, most+1); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a QP for %d receives: %v", most+1, err)
	}
	if _, err := p.createOutOfOrder(uverbs.RawPacket, parityDepth); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("a QP for raw packets: %v", err)
	}
}

// trafficAtOnce posts all receives and all requests before it polls. Messages complete in order, and the receive of
// each completion has its message.
func trafficAtOnce(t testing.TB, client, server *player, op uverbs.Opcode) {
	t.Helper()
	n := client.size / client.rounds
	slot := func(p *player, i int) []byte { return p.mr.Bytes()[i*n : (i+1)*n] }
	for i := range client.rounds {
		receive(t, server.qps[0], uverbs.RecvWR{WRID: uint64(i), SGL: []uverbs.SGE{server.mr.SGE(i*n, n)}})
	}
	for i := range client.rounds {
		copy(slot(client, i), bytes.Repeat([]byte{byte(i + 1)}, n))
		client.post(t, 0, uverbs.SendWR{WRID: uint64(i), Opcode: op, Imm: uint32(i + parityImm),
			SGL: []uverbs.SGE{client.mr.SGE(i*n, n)}, RemoteAddr: client.addr + uint64(i*n), RKey: client.rkey})
	}
	used := make(map[uint64]bool)
	for i := range client.rounds {
		sent, err := client.done(t)
		check(t, err)
		got, err := server.done(t)
		check(t, err)
		if used[got.WRID] || sent.WRID != uint64(i) {
			t.Errorf("completion %d: request %d, receive %d", i, sent.WRID, got.WRID)
		}
		used[got.WRID] = true
		at := int(got.WRID)
		if op == uverbs.OpWriteImm {
			if at = i; got.Imm != uint32(i+parityImm) {
				t.Errorf("message %d has the immediate %d", i, got.Imm)
			}
		}
		if !bytes.Equal(slot(server, at), slot(client, i)) {
			t.Errorf("message %d: receive %d has %v", i, at, slot(server, at))
		}
	}
}
