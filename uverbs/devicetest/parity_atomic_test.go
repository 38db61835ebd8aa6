package devicetest

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceParityAtomic has the tests of tests/test_atomic.py.
func TestDeviceParityAtomic(t *testing.T) {
	open := setup{rounds: 10, size: 8, access: uverbs.RemoteAtomic, qpAccess: uverbs.RemoteAtomic}
	noQP, noMR, odd := open, open, open
	noQP.qpAccess, noMR.access, odd.size = uverbs.LocalWrite, 0, 9
	traffic := func(op uverbs.Opcode) func(*testing.T) {
		return func(t *testing.T) {
			client, _ := newPlayers(t, open)
			atomicTraffic(t, client, op)
		}
	}
	fail := func(s setup, want uverbs.WCStatus, spoil func(*player, *uverbs.SendWR)) func(*testing.T) {
		return func(t *testing.T) {
			client, server := newPlayers(t, s)
			wr := uverbs.SendWR{Opcode: uverbs.OpFetchAdd, SGL: []uverbs.SGE{client.mr.SGE(0, 8)}, RemoteAddr: client.addr,
				RKey: client.rkey, CompareAdd: 1}
			spoil(client, &wr)
			mine, theirs := client.fill(t), server.fill(t)
			client.post(t, 0, wr)
			_, err := client.done(t)
			fails(t, err, want)
			same(t, client.sent(t), mine)
			if want == uverbs.WCLocProtErr {
				return // the peer has executed the atomic
			}
			same(t, server.sent(t), theirs)
		}
	}
	for name, run := range map[string]func(*testing.T){
		"test_atomic_cmp_and_swap":      traffic(uverbs.OpCompareSwap),
		"test_atomic_fetch_and_add":     traffic(uverbs.OpFetchAdd),
		"test_xrc_atomic_cmp_and_swap":  xrcAtomics(open, uverbs.OpCompareSwap),
		"test_xrc_atomic_fetch_and_add": xrcAtomics(open, uverbs.OpFetchAdd),
		"test_atomic_invalid_qp_access": fail(noQP, uverbs.WCRemInvReqErr, func(*player, *uverbs.SendWR) {}),
		"test_atomic_invalid_mr_access": fail(noMR, uverbs.WCRemAccessErr, func(*player, *uverbs.SendWR) {}),
		"test_atomic_non_aligned_addr": fail(odd, uverbs.WCRemInvReqErr,
			func(_ *player, wr *uverbs.SendWR) { wr.RemoteAddr++ }),
		"test_atomic_invalid_rkey": fail(open, uverbs.WCRemAccessErr, func(_ *player, wr *uverbs.SendWR) { wr.RKey++ }),
		"test_atomic_invalid_lkey": fail(open, uverbs.WCLocProtErr,
			func(p *player, wr *uverbs.SendWR) { wr.SGL[0].LKey++ }),
	} {
		t.Run(name, run)
	}
}

// atomic executes an atomic on the first word of the peer's memory, whose value
// before is was, and checks the values at both ends.
func (p *player) atomic(t testing.TB, op uverbs.Opcode, was, operand, swap uint64) error {
	t.Helper()
	p.setWord(t, ^was)
	p.peer.setWord(t, was)
	p.post(t, 0, uverbs.SendWR{Opcode: op, SGL: []uverbs.SGE{p.mr.SGE(0, 8)}, RemoteAddr: p.addr, RKey: p.rkey,
		CompareAdd: operand, Swap: swap})
	if _, err := p.done(t); err != nil {
		return err
	}
	want := was + operand
	if op == uverbs.OpCompareSwap {
		want = was
		if was == operand {
			want = swap
		}
	}
	if n := p.word(t); n != was {
		t.Fatalf("%v found %#x, there was %#x", op, n, was)
	}
	if n := p.peer.word(t); n != want {
		t.Fatalf("%v of %#x and %#x left %#x, want %#x", op, was, operand, n, want)
	}
	return nil
}

// word returns the first word of the player's memory, and setWord sets it.
func (p *player) word(t testing.TB) uint64 { return binary.NativeEndian.Uint64(p.load(t, p.mr, 0, 8)) }

func (p *player) setWord(t testing.TB, n uint64) {
	p.store(t, p.mr, 0, binary.NativeEndian.AppendUint64(nil, n))
}

// atomicTraffic executes atomics in both directions, as utils.atomic_traffic does.
// Every second compare-and-swap finds the value that it compares with.
func atomicTraffic(t testing.TB, client *player, op uverbs.Opcode) {
	t.Helper()
	for i := range uint64(client.rounds) {
		was := 0xf1f2f3f4f5f6f7f8 + i
		for _, p := range []*player{client, client.peer} {
			check(t, p.atomic(t, op, was, was+1+i%2, 7*was))
			check(t, p.atomic(t, op, was, was, 7*was))
		}
	}
}
