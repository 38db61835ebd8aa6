package devicetest

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestDeviceParityQPEx has the tests of tests/test_qpex.py. Their requests are posted
// as batches.
func TestDeviceParityQPEx(t *testing.T) {
	const rc, ud = uverbs.RC, uverbs.UD
	messages := func(kind uverbs.QPType, op uverbs.Opcode, access uverbs.Access) func(*testing.T) {
		return func(t *testing.T) {
			client, _ := newPlayers(t, setup{kind: kind, batch: true, access: access, qpAccess: access})
			traffic(t, client, op)
		}
	}
	remote := func(op uverbs.Opcode, access uverbs.Access, size int) func(*testing.T) {
		return func(t *testing.T) {
			client, server := newPlayers(t, setup{batch: true, access: access, qpAccess: access})
			client.size, server.size = size, size
			remoteTraffic(t, client, op)
		}
	}
	atomics := func(op uverbs.Opcode) func(*testing.T) {
		return func(t *testing.T) {
			client, _ := newPlayers(t, setup{batch: true, size: 8, access: uverbs.RemoteAtomic, qpAccess: uverbs.RemoteAtomic})
			atomicTraffic(t, client, op)
		}
	}
	flush := func(placement uverbs.Placement, want uverbs.WCStatus) func(*testing.T) {
		return func(t *testing.T) {
			needs(t, uverbs.DeviceFlushGlobal, features.Flush)
			client, _ := newPlayers(t, setup{batch: true, access: uverbs.RemoteWrite | uverbs.FlushGlobal,
				qpAccess: uverbs.RemoteWrite | uverbs.FlushGlobal | uverbs.FlushPersistent})
			flushTraffic(t, client, placement, want)
		}
	}
	for name, run := range map[string]func(*testing.T){
		"test_qp_ex_ud_send":     messages(ud, uverbs.OpSend, 0),
		"test_qp_ex_ud_send_imm": messages(ud, uverbs.OpSendImm, 0),
		"test_qp_ex_ud_zero_size": func(t *testing.T) {
			client, server := newPlayers(t, setup{kind: ud, batch: true})
			client.size, server.size = 0, 0
			traffic(t, client, uverbs.OpSend)
		},
		"test_qp_ex_rc_send":                   messages(rc, uverbs.OpSend, 0),
		"test_qp_ex_rc_send_imm":               messages(rc, uverbs.OpSendImm, 0),
		"test_qp_ex_xrc_send":                  xrcMessages(setup{batch: true}, uverbs.OpSend),
		"test_qp_ex_xrc_send_imm":              xrcMessages(setup{batch: true}, uverbs.OpSendImm),
		"test_qp_ex_rc_rdma_write_imm":         messages(rc, uverbs.OpWriteImm, uverbs.RemoteWrite),
		"test_qp_ex_rc_rdma_write":             remote(uverbs.OpWrite, uverbs.RemoteWrite, 1024),
		"test_qp_ex_rc_rdma_write_zero_length": remote(uverbs.OpWrite, uverbs.RemoteWrite, 0),
		"test_qp_ex_rc_rdma_read":              remote(uverbs.OpRead, uverbs.RemoteRead, 1024),
		"test_qp_ex_rc_rdma_read_zero_size":    remote(uverbs.OpRead, uverbs.RemoteRead, 0),
		"test_qp_ex_rc_atomic_cmp_swp":         atomics(uverbs.OpCompareSwap),
		"test_qp_ex_rc_atomic_fetch_add":       atomics(uverbs.OpFetchAdd),
		"test_qp_ex_rc_flush":                  flush(uverbs.PlacementGlobal, uverbs.WCSuccess),
		"test_qp_ex_rc_flush_type_violate":     flush(uverbs.PlacementPersistent, uverbs.WCRemAccessErr),
		"test_qp_ex_rc_atomic_write": func(t *testing.T) {
			needs(t, uverbs.DeviceAtomicWrite, features.AtomicWrite)
			client, _ := newPlayers(t, setup{batch: true, size: 8, access: uverbs.RemoteWrite, qpAccess: uverbs.RemoteWrite})
			remoteTraffic(t, client, uverbs.OpAtomicWrite)
		},
		"test_qp_ex_rc_bind_mw": bindBatch,
		"test_post_receive_qp_state_bad_flow": func(t *testing.T) {
			_, server := newPlayers(t, setup{kind: ud, batch: true})
			check(t, server.qps[0].Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
			_, err := server.qps[0].PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{server.mr.SGE(0, server.size)}})
			refused(t, err, uverbs.ErrState, unix.EINVAL)
		},
		"test_post_send_qp_state_bad_flow": func(t *testing.T) {
			client, _ := newPlayers(t, setup{kind: ud, batch: true})
			check(t, client.qps[0].Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
			err := client.tryPost(0, uverbs.SendWR{Opcode: uverbs.OpSend, SGL: client.outgoing()})
			refused(t, err, uverbs.ErrState, unix.EINVAL)
		},
		"test_full_rq_bad_flow": func(t *testing.T) {
			_, server := newPlayers(t, setup{kind: ud, batch: true})
			wr := uverbs.RecvWR{SGL: []uverbs.SGE{server.mr.SGE(0, server.size)}}
			for range must(server.qps[0].Query(uverbs.MaskCap))(t).Cap.MaxRecvWR {
				receive(t, server.qps[0], wr)
			}
			_, err := server.qps[0].PostRecv(wr)
			refused(t, err, uverbs.ErrQueueFull, unix.ENOMEM)
		},
		"test_rq_with_larger_sgl_bad_flow": func(t *testing.T) {
			_, server := newPlayers(t, setup{kind: ud, batch: true})
			many := make([]uverbs.SGE, must(server.qps[0].Query(uverbs.MaskCap))(t).Cap.MaxRecvSGE+1)
			for i := range many {
				many[i] = server.mr.SGE(i, 1)
			}
			_, err := server.qps[0].PostRecv(uverbs.RecvWR{SGL: many})
			refused(t, err, uverbs.ErrTooManySGEs, unix.EINVAL)
		},
	} {
		t.Run(name, run)
	}
}

// refused checks that a post was refused with the error want and with C's errno.
func refused(t testing.TB, err, want error, errno unix.Errno) {
	t.Helper()
	if !errors.Is(err, want) || !errors.Is(err, errno) {
		t.Errorf("refused with %v, want %v (%v)", err, want, errno)
	}
}

// flushTraffic flushes the data of WRITEs, as utils.flush_traffic does: first the
// range, then the whole MR, for which the length is ignored.
func flushTraffic(t testing.TB, client *player, placement uverbs.Placement, want uverbs.WCStatus) {
	t.Helper()
	for _, level := range []uverbs.Selectivity{uverbs.SelectRange, uverbs.SelectMR} {
		for i := range client.rounds {
			check(t, client.remote(t, uverbs.OpWrite))
			wr := uverbs.SendWR{Opcode: uverbs.OpFlush, RemoteAddr: client.addr, RKey: client.rkey,
				FlushLength: uint32(client.size), Placement: placement, Selectivity: level}
			if level == uverbs.SelectMR {
				wr.FlushLength = uint32(i * 123456)
			}
			client.post(t, 0, wr)
			wc, err := client.done(t)
			if wc.Status != want {
				t.Fatalf("FLUSH %d: %v, want %v", i, err, want)
			}
			if want != uverbs.WCSuccess {
				return
			}
			if wc.Opcode != uverbs.WCFlush {
				t.Fatalf("FLUSH completed as %+v", wc)
			}
		}
	}
}

// bindBatch binds a window without remote write access in a batch, and checks that a
// WRITE through it fails.
func bindBatch(t *testing.T) {
	access := uverbs.RemoteWrite | uverbs.MWBindAccess
	client, server := newPlayers(t, setup{batch: true, access: access, qpAccess: uverbs.RemoteWrite})
	w := must(server.pd.AllocMW(uverbs.MWType2))(t)
	bind := uverbs.MWBind{MW: w, RKey: uverbs.IncRKey(w.RKey()), MWRange: uverbs.MWRange{MR: server.mr, Len: server.size}}
	check(t, client.remote(t, uverbs.OpWrite)) // with the key of the MR
	server.post(t, 0, uverbs.SendWR{Opcode: uverbs.OpBindMW, Bind: &bind})
	_, err := server.done(t)
	check(t, err)
	client.rkey = bind.RKey
	fails(t, client.remote(t, uverbs.OpWrite), uverbs.WCRemAccessErr)
}
