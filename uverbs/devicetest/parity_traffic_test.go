package devicetest

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceParityCQEvents has the tests of tests/test_cq_events.py.
func TestDeviceParityCQEvents(t *testing.T) {
	for name, kind := range map[string]uverbs.QPType{"test_cq_events_rc": uverbs.RC, "test_cq_events_ud": uverbs.UD} {
		t.Run(name, func(t *testing.T) {
			client, _ := newPlayers(t, setup{kind: kind, channel: true})
			traffic(t, client, uverbs.OpSend)
		})
	}
}

// TestDeviceParityRelaxedOrdering has the tests of tests/test_relaxed_ordering.py.
func TestDeviceParityRelaxedOrdering(t *testing.T) {
	for name, kind := range map[string]uverbs.QPType{"test_ro_rc_traffic": uverbs.RC, "test_ro_ud_traffic": uverbs.UD} {
		t.Run(name, func(t *testing.T) {
			client, _ := newPlayers(t, setup{kind: kind, access: uverbs.RelaxedOrdering})
			traffic(t, client, uverbs.OpSend)
		})
	}
	t.Run("test_ro_xrc_traffic", xrcMessages(setup{access: uverbs.RelaxedOrdering}, uverbs.OpSend))
}

// TestDeviceParitySRQ has the tests of tests/test_srq.py.
func TestDeviceParitySRQ(t *testing.T) {
	shared := setup{pairs: 2, srq: true}
	t.Run("test_rc_srq_traffic", func(t *testing.T) {
		client, _ := newPlayers(t, shared)
		traffic(t, client, uverbs.OpSend)
	})
	t.Run("test_resize_srq", func(t *testing.T) {
		_, server := newPlayers(t, shared)
		if must(server.dev.QueryDevice())(t).CapFlags&uverbs.DeviceSRQResize == 0 {
			features.Missing(t, features.SRQResize, errors.New("the device does not say that it resizes SRQs"))
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

// TestDeviceParityCQEx has the tests of tests/test_cqex.py. Go has only one type of CQ.
func TestDeviceParityCQEx(t *testing.T) {
	for name, kind := range map[string]uverbs.QPType{
		"test_rc_traffic_cq_ex": uverbs.RC, "test_ud_traffic_cq_ex": uverbs.UD} {
		t.Run(name, func(t *testing.T) {
			client, _ := newPlayers(t, setup{kind: kind, entries: 2000})
			traffic(t, client, uverbs.OpSend)
		})
	}
	t.Run("test_xrc_traffic_cq_ex", xrcMessages(setup{entries: 2000}, uverbs.OpSend))
	t.Run("test_create_cq_ex", func(t *testing.T) {
		dev := openDevice(t)
		for _, cfg := range []uverbs.CQConfig{{}, {SingleGoroutine: true}, {NoEvents: true}} {
			cfg.Entries = 10
			check(t, must(dev.CreateCQ(cfg))(t).Close())
		}
	})
	t.Run("test_create_cq_ex_bad_flow", func(t *testing.T) { badCQ(t, uverbs.CQConfig{SingleGoroutine: true}) })
}
