package devicetest

import (
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceParityODP has the tests of tests/test_odp.py. The pages are dropped before
// each message, so that every message causes page faults, which emulated CPUs handle
// slowly: there are 25 rounds, not 100.
func TestDeviceParityODP(t *testing.T) {
	const remoteAccess = uverbs.RemoteWrite | uverbs.RemoteRead | uverbs.RemoteAtomic
	rc := setup{rounds: 25, access: uverbs.OnDemand | remoteAccess, qpAccess: remoteAccess, cold: true}
	messages := func(s setup) func(*testing.T) {
		return func(t *testing.T) {
			client, _ := newPlayers(t, s)
			traffic(t, client, uverbs.OpSend)
		}
	}
	remote := func(op uverbs.Opcode) func(*testing.T) {
		return func(t *testing.T) {
			client, _ := newPlayers(t, rc)
			remoteTraffic(t, client, op)
		}
	}
	advised := func(s setup, flags uverbs.AdviseFlags, advices ...uverbs.Advice) func(*testing.T) {
		return func(t *testing.T) {
			for _, advice := range advices {
				s.advise = func(t testing.TB, p *player) {
					t.Helper()
					p.prefetch(t, advice, flags)
				}
				messages(s)(t)
			}
		}
	}
	atomics := func(op uverbs.Opcode) func(*testing.T) {
		return func(t *testing.T) {
			s := rc
			s.cold = false
			client, _ := newPlayers(t, s)
			atomicTraffic(t, client, op)
		}
	}
	mixed, ud := rc, setup{kind: uverbs.UD, rounds: 25, access: uverbs.OnDemand, inbox: true, cold: true}
	mixed.mixed = true
	implicit := rc
	implicit.implicit = true
	xrc := setup{rounds: 25, access: uverbs.OnDemand, cold: true}
	for name, run := range map[string]func(*testing.T){
		"test_odp_rc_traffic":              messages(rc),
		"test_odp_rc_mixed_mr":             messages(mixed),
		"test_odp_ud_traffic":              messages(ud),
		"test_odp_rc_rdma_read":            remote(uverbs.OpRead),
		"test_odp_rc_rdma_write":           remote(uverbs.OpWrite),
		"test_odp_rc_atomic_cmp_and_swp":   atomics(uverbs.OpCompareSwap),
		"test_odp_rc_atomic_fetch_and_add": atomics(uverbs.OpFetchAdd),
		"test_odp_sync_prefetch_rc_traffic": advised(
			rc, uverbs.AdviseFlush, uverbs.AdvicePrefetch, uverbs.AdvicePrefetchWrite),
		"test_odp_async_prefetch_rc_traffic":               advised(rc, 0, uverbs.AdvicePrefetch, uverbs.AdvicePrefetchWrite),
		"test_odp_prefetch_sync_no_page_fault_rc_traffic":  advised(rc, uverbs.AdviseFlush, uverbs.AdvicePrefetchNoFault),
		"test_odp_prefetch_async_no_page_fault_rc_traffic": advised(rc, 0, uverbs.AdvicePrefetchNoFault),
		"test_odp_implicit_rc_traffic":                     messages(implicit),
		"test_odp_implicit_sync_prefetch_rc_traffic":       advised(implicit, uverbs.AdviseFlush, uverbs.AdvicePrefetchWrite),
		"test_odp_implicit_async_prefetch_rc_traffic":      advised(implicit, 0, uverbs.AdvicePrefetchWrite),
		"test_odp_xrc_traffic":                             xrcMessages(xrc, uverbs.OpSend),
	} {
		t.Run(name, run)
	}
}
