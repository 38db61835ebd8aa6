//go:build device

package uverbs_test

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm/expect"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestDeviceParityMR is tests/test_mr.py.
func TestDeviceParityMR(t *testing.T) {
	for name, run := range map[string]func(*testing.T){
		"test_reg_mr_bad_flags":         badAccess,
		"test_mr_rereg_access":          reregAccess,
		"test_mr_rereg_access_bad_flow": reregLessAccess,
		"test_mr_rereg_pd":              reregPD,
		"test_mr_rereg_atomic":          reregAtomic,
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

// reregister changes the registration of a player's memory, and tells the peer
// of the key.
func reregister(t *testing.T, p *player, flags uverbs.ReregFlags, pd *uverbs.PD, access uverbs.Access) {
	t.Helper()
	err := p.mr.Rereg(flags, pd, nil, access)
	if errors.Is(err, uverbs.ErrNotSupported) {
		expect.Missing(t, expect.ReregMR, err)
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

// reregPD takes the memory to another PD than the QP's, and back.
func reregPD(t *testing.T) {
	client, server := newPlayers(t, setup{rounds: 10})
	traffic(t, client, uverbs.OpSend)
	other := must(server.dev.AllocPD())(t)
	reregister(t, server, uverbs.ReregPD, other, 0)
	fails(t, client.deliver(t, uverbs.OpSend, 0), uverbs.WCRemOpErr)
	restart(t, client, server)
	reregister(t, server, uverbs.ReregPD, server.pd, 0)
	traffic(t, client, uverbs.OpSend)
	// The memory holds the PD that it is in, and no other.
	reregister(t, server, uverbs.ReregPD, other, 0)
	if err := other.Close(); !errors.Is(err, uverbs.ErrBusy) {
		t.Errorf("Close of a PD with memory: %v", err)
	}
	check(t, server.mr.Close())
	check(t, other.Close())
}

// reregAtomic takes the right from the memory, and gives it again.
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
