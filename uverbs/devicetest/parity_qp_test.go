package devicetest

import (
	"errors"
	"math"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestDeviceParityQP has the tests of tests/test_qp.py.
func TestDeviceParityQP(t *testing.T) {
	const rc, uc, ud, raw = uverbs.RC, uverbs.UC, uverbs.UD, uverbs.RawPacket
	tests := map[string]func(*testing.T){
		"test_create_rc_qp_no_attr":       func(t *testing.T) { createQP(t, rc, uverbs.StateReset) },
		"test_create_uc_qp_no_attr":       func(t *testing.T) { createQP(t, uc, uverbs.StateReset) },
		"test_create_rc_qp_with_attr":     func(t *testing.T) { createQP(t, rc, uverbs.StateInit) },
		"test_create_uc_qp_with_attr":     func(t *testing.T) { createQP(t, uc, uverbs.StateInit) },
		"test_create_rc_qp_ex_no_attr":    func(t *testing.T) { createQP(t, rc, uverbs.StateReset) },
		"test_create_uc_qp_ex_no_attr":    func(t *testing.T) { createQP(t, uc, uverbs.StateReset) },
		"test_create_rc_qp_ex_with_attr":  func(t *testing.T) { createQP(t, rc, uverbs.StateInit) },
		"test_create_uc_qp_ex_with_attr":  func(t *testing.T) { createQP(t, uc, uverbs.StateInit) },
		"test_create_ud_qp_no_attr":       func(t *testing.T) { createQP(t, ud, uverbs.StateReset) },
		"test_create_ud_qp_with_attr":     func(t *testing.T) { createQP(t, ud, uverbs.StateRTS) },
		"test_create_ud_qp_ex_no_attr":    func(t *testing.T) { createQP(t, ud, uverbs.StateReset) },
		"test_create_ud_qp_ex_with_attr":  func(t *testing.T) { createQP(t, ud, uverbs.StateRTS) },
		"test_query_rc_qp":                func(t *testing.T) { createQP(t, rc, uverbs.StateReset) },
		"test_query_uc_qp":                func(t *testing.T) { createQP(t, uc, uverbs.StateReset) },
		"test_query_ud_qp":                func(t *testing.T) { createQP(t, ud, uverbs.StateReset) },
		"test_create_raw_qp_no_attr":      func(t *testing.T) { createQP(t, raw, uverbs.StateReset) },
		"test_create_raw_qp_with_attr":    func(t *testing.T) { createQP(t, raw, uverbs.StateRTS) },
		"test_create_raw_qp_ex_no_attr":   func(t *testing.T) { createQP(t, raw, uverbs.StateReset) },
		"test_create_raw_qp_ex_with_attr": func(t *testing.T) { createQP(t, raw, uverbs.StateRTS) },
		"test_query_raw_qp":               func(t *testing.T) { createQP(t, raw, uverbs.StateReset) },
		"test_query_data_in_order":        dataInOrder,
		"test_modify_ud_qp":               modifyUD,
		"test_create_raw_qp_ex_with_illegal_caps_max_send_wr": func(t *testing.T) {
			illegal(t, func(c *uverbs.QPConfig) { c.MaxSendWR = math.MaxInt32 })
		},
		"test_create_raw_qp_ex_with_illegal_caps_max_recv_wr": func(t *testing.T) {
			illegal(t, func(c *uverbs.QPConfig) { c.MaxRecvWR = math.MaxInt32 })
		},
		"test_create_raw_qp_ex_with_illegal_caps_max_send_sge": func(t *testing.T) {
			illegal(t, func(c *uverbs.QPConfig) { c.MaxSendSGE = math.MaxUint16 })
		},
		"test_create_raw_qp_ex_with_illegal_caps_max_recv_sge": func(t *testing.T) {
			illegal(t, func(c *uverbs.QPConfig) { c.MaxRecvSGE = math.MaxUint16 })
		},
	}
	for name, run := range tests {
		t.Run(name, run)
	}
}

// largeQP returns a PD and the configuration of a QP with large queues.
func largeQP(t testing.TB, kind uverbs.QPType) (*uverbs.PD, uverbs.QPConfig) {
	t.Helper()
	dev := openDevice(t)
	a := must(dev.QueryDevice())(t)
	return must(dev.AllocPD())(t), uverbs.QPConfig{
		Type: kind, SendCQ: must(dev.CreateCQ(uverbs.CQConfig{Entries: 100}))(t), MaxSendWR: a.MaxQPWR / 64,
		MaxRecvWR: a.MaxQPWR / 128, MaxSendSGE: a.MaxSGE / 2, MaxRecvSGE: a.MaxSGE / 4, QKey: qkey}
}

// createQP creates a QP, moves it to a state, and queries its state and
// capabilities.
func createQP(t *testing.T, kind uverbs.QPType, state uverbs.QPState) {
	pd, cfg := largeQP(t, kind)
	for _, cfg.SignalAll = range []bool{false, true} {
		qp, err := pd.CreateQP(cfg)
		if kind == uverbs.RawPacket {
			hasRaw(t, pd.Context(), err)
		}
		skipType(t, kind, err)
		check(t, err)
		switch state {
		case uverbs.StateInit:
			check(t, qp.Init())
		case uverbs.StateRTS:
			check(t, qp.Ready())
		}
		a := must(qp.Query(uverbs.MaskState | uverbs.MaskCap))(t)
		if rnic(pd.Context()) { // siw reports INIT for RESET, and always SignalAll
			if a.State == uverbs.StateInit && state == uverbs.StateReset {
				a.State = state
			}
			a.SignalAll = cfg.SignalAll
		}
		if qp.State() != state || a.State != state || a.SignalAll != cfg.SignalAll {
			t.Errorf("%v QP: %+v, want %v", kind, a, state)
		}
		for _, c := range []uverbs.QPCap{a.Cap, qp.Cap()} {
			if c.MaxSendWR < cfg.MaxSendWR || c.MaxRecvWR < cfg.MaxRecvWR || c.MaxSendSGE < cfg.MaxSendSGE ||
				c.MaxRecvSGE < cfg.MaxRecvSGE {
				t.Errorf("%v QP holds %+v, asked for %+v", kind, c, cfg)
			}
		}
		check(t, qp.Close())
	}
}

// illegal checks that a QP with more resources than any device has is refused.
func illegal(t *testing.T, edit func(*uverbs.QPConfig)) {
	pd, cfg := largeQP(t, uverbs.UD)
	edit(&cfg)
	_, err := pd.CreateQP(cfg)
	skipType(t, cfg.Type, err)
	if !errors.Is(err, uverbs.ErrInvalid) || !errors.Is(err, unix.EINVAL) {
		t.Errorf("CreateQP: %v", err)
	}
}

// dataInOrder checks that DataInOrder returns a valid value for each operation.
func dataInOrder(t *testing.T) {
	pd, cfg := largeQP(t, uverbs.UD)
	qp := typedQP(t, pd, cfg)
	check(t, qp.Ready())
	for _, op := range []uverbs.Opcode{uverbs.OpSend, uverbs.OpWrite, uverbs.OpRead} {
		switch o := must(qp.DataInOrder(op))(t); o {
		case 0, uverbs.Aligned128InOrder, uverbs.Aligned128InOrder | uverbs.WholeInOrder:
		default:
			t.Errorf("%v: %#x", op, uint32(o))
		}
	}
}

// modifyUD moves a UD QP through its states and queries the attributes that it
// has set.
func modifyUD(t *testing.T) {
	pd, cfg := largeQP(t, uverbs.UD)
	for range 2 { // C has two functions that create a QP
		qp := typedQP(t, pd, cfg)
		check(t, qp.Modify(uverbs.QPAttr{State: uverbs.StateInit, Port: 1, QKey: 0x123},
			uverbs.MaskState|uverbs.MaskPort|uverbs.MaskPKeyIndex|uverbs.MaskQKey))
		if a := must(qp.Query(uverbs.MaskQKey))(t); a.QKey != 0x123 {
			t.Errorf("QKey %#x", a.QKey)
		}
		check(t, qp.Modify(uverbs.QPAttr{State: uverbs.StateRTR}, uverbs.MaskState))
		check(t, qp.Modify(uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: 0x45}, uverbs.MaskState|uverbs.MaskSQPSN))
		if a := must(qp.Query(uverbs.MaskSQPSN))(t); a.SQPSN != 0x45 {
			t.Errorf("PSN %#x", a.SQPSN)
		}
		check(t, qp.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
		if a := must(qp.Query(uverbs.MaskState))(t); a.State != uverbs.StateReset || qp.State() != uverbs.StateReset {
			t.Errorf("state %v", a.State)
		}
	}
}
