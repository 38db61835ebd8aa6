package devicetest

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// importDevice exports dev and imports it as another Context. It skips the test if
// the driver does not share contexts.
func importDevice(t testing.TB, dev *uverbs.Context) *uverbs.Context {
	t.Helper()
	fd := must(dev.ExportFD())(t)
	defer func() { check(t, unix.Close(fd)) }()
	c, err := uverbs.ImportDevice(fd)
	if errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, features.Import, err)
	}
	check(t, err)
	t.Cleanup(func() { check(t, c.Close()) })
	return c
}

// TestDeviceParitySharedPD has the tests of tests/test_shared_pd.py: a player with an
// imported Context, PD and MR writes to the peer's memory, and the peer to its memory.
func TestDeviceParitySharedPD(t *testing.T) {
	t.Run("test_imported_rc_ex_rdma_write", func(t *testing.T) {
		s := setup{batch: true, rounds: 10, access: uverbs.RemoteWrite, qpAccess: uverbs.RemoteWrite}
		client, maker := newPlayers(t, s)
		server := *maker
		server.dev = importDevice(t, maker.dev)
		server.pd = must(server.dev.ImportPD(maker.pd.Handle()))(t)
		shared := must(server.pd.ImportMR(maker.mr.Handle()))(t)
		if shared.Addr() != maker.mr.Addr() || shared.Len() != maker.mr.Len() || shared.RKey() != maker.mr.RKey() {
			t.Fatalf("the MR is at %#x, %d bytes", shared.Addr(), shared.Len())
		}
		server.cq = must(server.dev.CreateCQ(uverbs.CQConfig{Entries: 100}))(t)
		server.qps = []*uverbs.QP{must(server.pd.CreateQP(
			uverbs.QPConfig{Type: uverbs.RC, SendCQ: server.cq, MaxSendWR: 10, MaxRecvWR: 10, Access: uverbs.RemoteWrite}))(t)}
		check(t, client.qps[0].Close())
		client.qps[0] = must(client.pd.CreateQP(
			uverbs.QPConfig{Type: uverbs.RC, SendCQ: client.cq, MaxSendWR: 10, MaxRecvWR: 10, Access: uverbs.RemoteWrite}))(t)
		client.peer, server.peer = &server, client
		client.connect(t)
		server.connect(t)
		client.rkey = shared.RKey()
		for range s.rounds {
			check(t, client.remote(t, uverbs.OpWrite))
			check(t, server.remote(t, uverbs.OpWrite))
		}
		check(t, server.dev.Close()) // the maker's Context stays open
		check(t, maker.mr.Close())
	})
}
