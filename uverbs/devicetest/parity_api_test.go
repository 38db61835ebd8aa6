package devicetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// selfAddress returns the attributes of an AH whose destination is the device itself.
func selfAddress(t testing.TB, dev *uverbs.Context) uverbs.AHAttr {
	t.Helper()
	g := must(dev.SelectGID(0, netip.Addr{}))(t)
	return uverbs.AHAttr{IsGlobal: true, DGID: g.GID, SGIDIndex: uint8(g.Index), HopLimit: 1, Port: uint8(g.Port)}
}

// hasEthernet skips the test if port 1 is not an Ethernet port.
func hasEthernet(t testing.TB, dev *uverbs.Context) {
	t.Helper()
	if l := must(dev.QueryPort(1))(t).LinkLayer; l != uverbs.LinkEthernet {
		features.Missing(t, features.EthernetIB, fmt.Errorf("the link layer is %v", l))
	}
}

// TestDeviceParityAddr has the tests of tests/test_addr.py.
func TestDeviceParityAddr(t *testing.T) {
	dev := openDevice(t)
	pd := must(dev.AllocPD())(t)
	attr := selfAddress(t, dev)
	create := func(t *testing.T) *uverbs.AH {
		t.Helper()
		ah, err := pd.CreateAH(attr)
		skipType(t, uverbs.UD, err)
		return must(ah, err)(t)
	}
	t.Run("test_create_ah", func(t *testing.T) { create(t) })
	t.Run("test_create_ah_roce", func(t *testing.T) {
		hasEthernet(t, dev)
		create(t)
		local := attr
		local.IsGlobal = false
		if _, err := pd.CreateAH(local); !errors.Is(err, unix.EINVAL) {
			t.Errorf("an AH without a GRH: %v", err)
		}
	})
	t.Run("test_destroy_ah", func(t *testing.T) {
		ah := create(t)
		check(t, ah.Close())
		check(t, ah.Close())
	})
}

// TestDeviceParityPD has the tests of tests/test_pd.py.
func TestDeviceParityPD(t *testing.T) {
	dev := openDevice(t)
	t.Run("test_alloc_pd", func(t *testing.T) { must(dev.AllocPD())(t) })
	t.Run("test_dealloc_pd", func(t *testing.T) { check(t, must(dev.AllocPD())(t).Close()) })
	t.Run("test_multiple_pd_creation", func(t *testing.T) {
		for range 200 {
			check(t, must(dev.AllocPD())(t).Close())
		}
	})
	t.Run("test_destroy_pd_twice", func(t *testing.T) {
		pd := must(dev.AllocPD())(t)
		check(t, pd.Close())
		check(t, pd.Close())
	})
}

// TestDeviceParityCQ has the tests of tests/test_cq.py.
func TestDeviceParityCQ(t *testing.T) {
	t.Run("test_create_cq", func(t *testing.T) {
		dev := openDevice(t)
		for _, entries := range cqSizes(t, dev) {
			for vector := range min(2, dev.CompVectors()) {
				check(t, must(dev.CreateCQ(uverbs.CQConfig{Entries: entries, Vector: vector, NoEvents: true}))(t).Close())
			}
		}
		must(dev.CreateCQ(uverbs.CQConfig{Entries: dev.CompVectors(), Vector: dev.CompVectors() - 1}))(t)
	})
	t.Run("test_create_cq_with_comp_channel", func(t *testing.T) {
		dev := openDevice(t)
		for _, entries := range cqSizes(t, dev) {
			ch := must(dev.CreateCompChannel())(t)
			cq := must(dev.CreateCQ(uverbs.CQConfig{Entries: entries, Channel: ch}))(t)
			if cq.Entries() < entries {
				t.Errorf("%d entries, asked for %d", cq.Entries(), entries)
			}
			check(t, cq.Close())
			check(t, ch.Close())
		}
	})
	t.Run("test_create_cq_bad_flow", func(t *testing.T) { badCQ(t, uverbs.CQConfig{}) })
	t.Run("test_resize_cq", resizeCQ)
}

func cqSizes(t testing.TB, dev *uverbs.Context) []int {
	t.Helper()
	a := must(dev.QueryDevice())(t)
	return []int{1, a.MaxCQE / 2, a.MaxCQE}
}

// badCQ checks that a CQ with too many entries, or with a completion vector that
// does not exist, is refused.
func badCQ(t *testing.T, cfg uverbs.CQConfig) {
	dev := openDevice(t)
	large, vector := cfg, cfg
	large.Entries = must(dev.QueryDevice())(t).MaxCQE + 1
	vector.Entries, vector.Vector = 100, dev.CompVectors()+1
	for _, cfg := range []uverbs.CQConfig{large, vector} {
		if _, err := dev.CreateCQ(cfg); !errors.Is(err, uverbs.ErrInvalid) || !errors.Is(err, unix.EINVAL) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

// resizeCQ shrinks, enlarges and fills a CQ. Then it tries to shrink the CQ to fewer
// entries than it has completions, and checks that no completion is lost.
func resizeCQ(t *testing.T) {
	client, server := newPlayers(t, setup{kind: uverbs.UD, entries: 3})
	for _, entries := range []int{1, 7} {
		check(t, client.cq.Resize(entries))
		if n := client.cq.Entries(); n < entries {
			t.Errorf("resized to %d: %d entries", entries, n)
		}
	}
	const sends = 6 // one less than the CQ has room for
	check(t, server.cq.Resize(sends))
	client.fill(t)
	for id := range uint64(sends) {
		server.receive(t, 0)
		client.post(t, 0, uverbs.SendWR{WRID: id, Opcode: uverbs.OpSend, SGL: client.outgoing()})
	}
	for range sends {
		must(server.done(t))(t)
	}
	if strings.HasPrefix(client.dev.Name(), "rxe") { // other drivers drop the completions of a QP in RESET
		for client.qps[0].SendsOutstanding() > 0 {
			check(t, client.ctx.Err())
			runtime.Gosched()
		}
		// The last completion may not be in the CQ yet. RESET waits for it.
		check(t, client.qps[0].Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
	}
	if err := client.cq.Resize(1); err != nil && !errors.Is(err, unix.EINVAL) {
		t.Errorf("shrunk under completions: %v", err)
	}
	for id := range uint64(sends) {
		if wc, err := client.done(t); err != nil || wc.WRID != id {
			t.Errorf("completion %d: %d, %v", id, wc.WRID, err)
		}
	}
}

// TestDeviceParityFork has the tests of tests/test_fork.py. It checks that registered
// memory still belongs to the process after it has started children.
func TestDeviceParityFork(t *testing.T) {
	t.Run("test_is_fork_initialized", func(t *testing.T) {
		if rnic(openDevice(t)) {
			forkConnected(t)
			return
		}
		client, server := newPlayers(t, setup{})
		client.receive(t, 0)
		server.receive(t, 0)
		for range 2 {
			for _, p := range []*player{client, server} {
				child := exec.Command(os.Args[0], "-test.run=^$")
				check(t, child.Start())
				check(t, p.deliver(t, uverbs.OpSend, 0))
				p.peer.receive(t, 0)
				check(t, child.Wait())
			}
		}
	})
}

// forkConnected is test_is_fork_initialized with a connection of rdma_cm, the only one of iWARP.
func forkConnected(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l := must(cm.Listen(cmp.Or(os.Getenv("GOVERBS_ADDRESS"), "10.9.0.1")+":0", nil))(t)
	defer l.Close()
	dialed := make(chan error, 1)
	var ends [2]*cm.Conn
	go func() {
		var err error
		ends[0], err = cm.Dial(ctx, l.Addr().String(), nil)
		dialed <- err
	}()
	ends[1] = must(l.Accept(ctx))(t)
	defer ends[1].Close()
	check(t, <-dialed)
	defer ends[0].Close()
	for i := range 4 {
		from, to := ends[i%2], ends[1-i%2]
		out, in := must(from.AllocMsgs(64))(t), must(to.AllocMsgs(64))(t)
		child := exec.Command(os.Args[0], "-test.run=^$")
		check(t, child.Start())
		check(t, to.PostRecv(1, in.SGE(0, 64)))
		check(t, from.PostSend(2, uverbs.Signaled, out.SGE(0, copy(out.Bytes(), "a child runs"))))
		must(from.SendComp(ctx))(t)
		wc := must(to.RecvComp(ctx))(t)
		if got := string(in.Bytes()[:wc.ByteLen]); got != "a child runs" {
			t.Errorf("%q arrived", got)
		}
		check(t, child.Wait())
		check(t, out.Close())
		check(t, in.Close())
	}
}
