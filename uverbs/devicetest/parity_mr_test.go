package devicetest

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestDeviceParityMR has the tests of tests/test_mr.py.
func TestDeviceParityMR(t *testing.T) {
	for name, run := range map[string]func(*testing.T){
		"test_reg_mr_bad_flags":         badAccess,
		"test_mr_rereg_access":          reregAccess,
		"test_mr_rereg_access_bad_flow": reregLessAccess,
		"test_mr_rereg_addr":            reregAddr,
		"test_mr_rereg_pd":              reregPD,
		"test_mr_rereg_atomic":          reregAtomic,
		"test_reg_mw_wrong_type": func(t *testing.T) {
			if _, err := must(openDevice(t).AllocPD())(t).AllocMW(3); !errors.Is(err, uverbs.ErrInvalid) ||
				!errors.Is(err, unix.EINVAL) {
				t.Errorf("a window of type 3: %v", err)
			}
		},
		"test_mw_type1":                   window(uverbs.MWType1, nil),
		"test_invalidate_mw_type1":        window(uverbs.MWType1, rebind),
		"test_mw_type2":                   window(uverbs.MWType2, nil),
		"test_mw_type2_invalidate_local":  window(uverbs.MWType2, invalidateLocal),
		"test_mw_type2_invalidate_remote": window(uverbs.MWType2, invalidateRemote),
		"test_mw_type2_invalidate_dealloc": window(
			uverbs.MWType2, func(t testing.TB, _ *player, w *uverbs.MW) { check(t, w.Close()) }),
		"test_create_dm_mr":        createDMMR,
		"test_dm_bad_access":       badDMAccess,
		"test_dm_bad_registration": badDMRegistration,
		"test_dm_traffic":          func(t *testing.T) { traffic(t, dmClient(t, 0), uverbs.OpSend) },
		"test_dm_remote_traffic":   func(t *testing.T) { remoteTraffic(t, dmClient(t, dmRemote), uverbs.OpWrite) },
		"test_dm_remote_write_traffic_imm": func(t *testing.T) {
			traffic(t, dmClient(t, dmRemote), uverbs.OpWriteImm)
		},
		"test_dm_remote_read_traffic": func(t *testing.T) { remoteTraffic(t, dmClient(t, dmRemote), uverbs.OpRead) },
		"test_dm_atomic_fetch_add":    func(t *testing.T) { atomicTraffic(t, dmClient(t, dmRemote), uverbs.OpFetchAdd) },
		"test_dm_atomic_cmp_swp":      func(t *testing.T) { atomicTraffic(t, dmClient(t, dmRemote), uverbs.OpCompareSwap) },
	} {
		t.Run(name, run)
	}
}

func badAccess(t *testing.T) {
	pd := must(openDevice(t).AllocPD())(t)
	for _, access := range []uverbs.Access{uverbs.RemoteWrite, uverbs.RemoteAtomic} {
		if _, err := pd.Alloc(1<<20, access); !errors.Is(err, uverbs.ErrInvalid) || !errors.Is(err, unix.EINVAL) {
			t.Errorf("registered with %v alone: %v", access, err)
		}
	}
}

// reregister changes the registration of a player's memory, and gives the peer the
// new rkey.
func reregister(t *testing.T, p *player, flags uverbs.ReregFlags, pd *uverbs.PD, access uverbs.Access) {
	t.Helper()
	err := p.mr.Rereg(flags, pd, nil, access)
	if errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, features.ReregMR, err)
	}
	check(t, err)
	p.peer.rkey = p.mr.RKey()
}

func reregAccess(t *testing.T) {
	client, server := newPlayers(t, setup{rounds: 10, qpAccess: uverbs.RemoteWrite})
	for _, p := range []*player{client, server} {
		reregister(t, p, uverbs.ReregAccess, nil, uverbs.LocalWrite|uverbs.RemoteWrite)
	}
	remoteTraffic(t, client, uverbs.OpWrite)
}

func reregLessAccess(t *testing.T) {
	client, server := newPlayers(t, setup{rounds: 10, access: uverbs.RemoteWrite, qpAccess: uverbs.RemoteWrite})
	remoteTraffic(t, client, uverbs.OpWrite)
	reregister(t, server, uverbs.ReregAccess, nil, uverbs.LocalWrite)
	fails(t, client.remote(t, uverbs.OpWrite), uverbs.WCRemAccessErr)
}

// reregAddr moves an MR to other memory while a receive into the old memory is
// posted.
func reregAddr(t *testing.T) {
	client, server := newPlayers(t, setup{rounds: 10})
	server.receive(t, 0)
	old := server.mr.Addr()
	room := must(unix.Mmap(-1, 0, server.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))(t)
	t.Cleanup(func() { check(t, errors.Join(server.mr.Close(), unix.Munmap(room))) })
	err := server.mr.Rereg(uverbs.ReregTranslation, nil, room, 0)
	if errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, features.ReregMemory, err)
	}
	check(t, err)
	if server.mr.Addr() == old || server.mr.Len() != server.size {
		t.Errorf("registered again, %d bytes are at %#x, where they were", server.mr.Len(), old)
	}
	fails(t, client.deliver(t, uverbs.OpSend, 0), uverbs.WCRemOpErr)
	restart(t, client, server)
	client.rkey = server.mr.RKey()
	traffic(t, client, uverbs.OpSend)
}

// reregPD moves an MR to a PD other than the QP's, and back.
func reregPD(t *testing.T) {
	client, server := newPlayers(t, setup{rounds: 10})
	traffic(t, client, uverbs.OpSend)
	other := must(server.dev.AllocPD())(t)
	reregister(t, server, uverbs.ReregPD, other, 0)
	fails(t, client.deliver(t, uverbs.OpSend, 0), uverbs.WCRemOpErr)
	restart(t, client, server)
	reregister(t, server, uverbs.ReregPD, server.pd, 0)
	traffic(t, client, uverbs.OpSend)
	// The MR keeps its present PD from being closed, and no other PD.
	reregister(t, server, uverbs.ReregPD, other, 0)
	if err := other.Close(); !errors.Is(err, uverbs.ErrBusy) {
		t.Errorf("Close of a PD with memory: %v", err)
	}
	check(t, server.mr.Close())
	check(t, other.Close())
}

// reregAtomic removes the right to atomics from an MR, and restores it.
func reregAtomic(t *testing.T) {
	client, server := newPlayers(t, setup{rounds: 10, access: uverbs.RemoteAtomic, qpAccess: uverbs.RemoteAtomic})
	for _, p := range []*player{client, server} {
		reregister(t, p, uverbs.ReregAccess, nil, uverbs.LocalWrite)
	}
	fails(t, client.atomic(t, uverbs.OpFetchAdd, 1, 2, 0), uverbs.WCRemAccessErr)
	restart(t, client, server)
	for _, p := range []*player{client, server} {
		reregister(t, p, uverbs.ReregAccess, nil, uverbs.LocalWrite|uverbs.RemoteAtomic)
	}
	atomicTraffic(t, client, uverbs.OpFetchAdd)
}

// window binds a memory window to the memory of each player, and writes through
// them. Then it invalidates the windows and checks that writes fail.
func window(kind uverbs.MWType, invalidate func(testing.TB, *player, *uverbs.MW)) func(*testing.T) {
	return func(t *testing.T) {
		client, server := newPlayers(t, setup{rounds: 10, access: uverbs.MWBindAccess, qpAccess: uverbs.RemoteWrite})
		players := [2]*player{client, server}
		var windows [2]*uverbs.MW
		for i, p := range players {
			windows[i] = must(p.pd.AllocMW(kind))(t)
			p.bind(t, windows[i], uverbs.MWRange{MR: p.mr, Len: p.size, Access: uverbs.RemoteWrite})
			p.peer.rkey = windows[i].RKey()
		}
		remoteTraffic(t, client, uverbs.OpWrite)
		if invalidate == nil {
			return
		}
		for i, p := range players {
			invalidate(t, p, windows[i])
		}
		fails(t, client.remote(t, uverbs.OpWrite), uverbs.WCRemAccessErr)
	}
}

// bind binds a window to a range. The window gets a new key.
func (p *player) bind(t testing.TB, w *uverbs.MW, r uverbs.MWRange) {
	t.Helper()
	if w.Type() == uverbs.MWType1 {
		check(t, w.Bind(p.qps[0], 0, uverbs.Signaled, r))
	} else {
		key := uverbs.IncRKey(w.RKey())
		p.post(t, 0, uverbs.SendWR{Opcode: uverbs.OpBindMW, Bind: &uverbs.MWBind{MW: w, RKey: key, MWRange: r}})
		w.SetRKey(key)
	}
	_, err := p.done(t)
	check(t, err)
}

func rebind(t testing.TB, p *player, w *uverbs.MW) { p.bind(t, w, uverbs.MWRange{}) }

func invalidateLocal(t testing.TB, p *player, w *uverbs.MW) {
	t.Helper()
	p.post(t, 0, uverbs.SendWR{Opcode: uverbs.OpLocalInv, InvalidateRKey: w.RKey()})
	_, err := p.done(t)
	check(t, err)
}

// invalidateRemote invalidates a window with a SEND of the peer.
func invalidateRemote(t testing.TB, p *player, w *uverbs.MW) {
	t.Helper()
	p.receive(t, 0)
	want := p.peer.fill(t)
	p.peer.post(t, 0, uverbs.SendWR{Opcode: uverbs.OpSendInv, SGL: p.peer.outgoing(), InvalidateRKey: w.RKey()})
	_, err := p.peer.done(t)
	check(t, err)
	wc, err := p.done(t)
	check(t, err)
	if wc.Flags&uverbs.WCWithInv == 0 || wc.Imm != w.RKey() {
		t.Errorf("the window's key is %#x, the completion %+v", w.RKey(), wc)
	}
	same(t, p.received(t), want)
}
