//go:build device

package uverbs_test

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestDeviceParityCQEvents is tests/test_cq_events.py.
func TestDeviceParityCQEvents(t *testing.T) {
	for name, kind := range map[string]uverbs.QPType{"test_cq_events_rc": uverbs.RC, "test_cq_events_ud": uverbs.UD} {
		t.Run(name, func(t *testing.T) {
			client, _ := newPlayers(t, setup{kind: kind, channel: true})
			traffic(t, client, uverbs.OpSend)
		})
	}
}

// TestDeviceParityRelaxedOrdering is tests/test_relaxed_ordering.py.
func TestDeviceParityRelaxedOrdering(t *testing.T) {
	for name, kind := range map[string]uverbs.QPType{"test_ro_rc_traffic": uverbs.RC, "test_ro_ud_traffic": uverbs.UD} {
		t.Run(name, func(t *testing.T) {
			client, _ := newPlayers(t, setup{kind: kind, access: uverbs.RelaxedOrdering})
			traffic(t, client, uverbs.OpSend)
		})
	}
}

// TestDeviceParitySRQ is tests/test_srq.py.
func TestDeviceParitySRQ(t *testing.T) {
	shared := setup{pairs: 2, srq: true}
	t.Run("test_rc_srq_traffic", func(t *testing.T) {
		client, _ := newPlayers(t, shared)
		traffic(t, client, uverbs.OpSend)
	})
	t.Run("test_resize_srq", func(t *testing.T) {
		_, server := newPlayers(t, shared)
		if must(server.dev.QueryDevice())(t).CapFlags&uverbs.DeviceSRQResize == 0 {
			t.Fatal("the device cannot resize an SRQ")
		}
		was := must(server.srq.Query())(t).MaxWR
		size := min(2*was, must(server.dev.QueryDevice())(t).MaxSRQWR)
		check(t, server.srq.Modify(uverbs.SRQAttr{MaxWR: size}, uverbs.SRQMaskMaxWR))
		if a := must(server.srq.Query())(t); a.MaxWR < size || size <= was {
			t.Errorf("resized from %d to %d: %+v", was, size, a)
		}
	})
	t.Run("test_modify_srq_limit", func(t *testing.T) {
		client, server := newPlayers(t, shared)
		for range 10 {
			server.receive(t, 0)
		}
		check(t, server.srq.Modify(uverbs.SRQAttr{Limit: 7}, uverbs.SRQMaskLimit))
		if a := must(server.srq.Query())(t); a.Limit != 7 {
			t.Errorf("the limit is %d", a.Limit)
		}
		for range 4 {
			check(t, client.deliver(t, uverbs.OpSend, 0))
		}
		if e := must(server.dev.NextEvent(server.ctx))(t); e.Type != uverbs.EventSRQLimitReached || e.SRQ != server.srq {
			t.Errorf("event %v", e)
		}
	})
}

// TestDeviceParityQPEx is tests/test_qpex.py: requests that go through the
// batch builder.
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
		"test_qp_ex_rc_rdma_write_imm":         messages(rc, uverbs.OpWriteImm, uverbs.RemoteWrite),
		"test_qp_ex_rc_rdma_write":             remote(uverbs.OpWrite, uverbs.RemoteWrite, 1024),
		"test_qp_ex_rc_rdma_write_zero_length": remote(uverbs.OpWrite, uverbs.RemoteWrite, 0),
		"test_qp_ex_rc_rdma_read":              remote(uverbs.OpRead, uverbs.RemoteRead, 1024),
		"test_qp_ex_rc_rdma_read_zero_size":    remote(uverbs.OpRead, uverbs.RemoteRead, 0),
		"test_qp_ex_rc_atomic_cmp_swp":         atomics(uverbs.OpCompareSwap),
		"test_qp_ex_rc_atomic_fetch_add":       atomics(uverbs.OpFetchAdd),
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

// refused checks that a post was refused, and that errno is C's.
func refused(t testing.TB, err, want error, errno unix.Errno) {
	t.Helper()
	if !errors.Is(err, want) || !errors.Is(err, errno) {
		t.Errorf("refused with %v, want %v (%v)", err, want, errno)
	}
}

// TestDeviceParityCQEx is tests/test_cqex.py. There is one kind of CQ in Go.
func TestDeviceParityCQEx(t *testing.T) {
	for name, kind := range map[string]uverbs.QPType{"test_rc_traffic_cq_ex": uverbs.RC, "test_ud_traffic_cq_ex": uverbs.UD} {
		t.Run(name, func(t *testing.T) {
			client, _ := newPlayers(t, setup{kind: kind, entries: 2000})
			traffic(t, client, uverbs.OpSend)
		})
	}
	t.Run("test_create_cq_ex", func(t *testing.T) {
		dev := openDevice(t)
		for _, cfg := range []uverbs.CQConfig{{}, {SingleGoroutine: true}, {NoEvents: true}} {
			cfg.Entries = 10
			check(t, must(dev.CreateCQ(cfg))(t).Close())
		}
	})
	t.Run("test_create_cq_ex_bad_flow", func(t *testing.T) { badCQ(t, uverbs.CQConfig{SingleGoroutine: true}) })
}
