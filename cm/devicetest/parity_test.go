package devicetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceRDMACM runs the tests of rdma-core's tests/test_rdmacm.py under their names: the same calls in the same
// order on both sides, and the same checks. docs/evidence/parity.md has the results of both. The two processes of a
// Python test are goroutines here.
func TestDeviceRDMACM(t *testing.T) {
	begin(t)
	for _, test := range []struct {
		name  string
		needs func(*testing.T)
		play  func(*player)
	}{
		{"test_rdmacm_sync_traffic", nil, func(p *player) {
			p.connectSync()
			p.traffic()
			p.disconnectSync()
		}},
		{"test_rdmacm_async_traffic", nil, func(p *player) {
			p.ackTimeout = 21
			p.connect()
			p.traffic()
			p.disconnect()
		}},
		{"test_rdmacm_async_reject_traffic", nil, func(p *player) {
			p.reject = "connection rejected"
			p.connect()
		}},
		{"test_rdmacm_async_multicast_traffic", needUD, func(p *player) {
			p.join()
			p.multicastTraffic()
			p.leave()
		}},
		// C has two functions to join, and only the second has flags. The only one here joins as a full member if the
		// test calls C's first function.
		{"test_rdmacm_async_ex_multicast_traffic", needUD, func(p *player) {
			p.join()
			p.multicastTraffic()
			p.leave()
		}},
		{"test_rdmacm_async_ex_leave_multicast_traffic", needUD, func(p *player) {
			p.join()
			p.multicastTraffic()
			p.leaveAndSend()
		}},
		{"test_rdmacm_async_traffic_external_qp", needExternal, func(p *player) {
			p.external = true
			p.connect()
			p.externalTraffic()
			p.disconnect()
		}},
		{"test_rdmacm_async_udp_traffic", needUD, func(p *player) {
			p.ps = cm.PSUDP
			p.connect()
			p.traffic()
		}},
		{"test_rdmacm_async_read", nil, func(p *player) {
			p.alloc = (*cm.ID).AllocRead
			p.connect()
			p.remoteTraffic((*cm.ID).PostRead, false)
			p.disconnect()
		}},
		{"test_rdmacm_async_write", nil, func(p *player) {
			p.alloc = (*cm.ID).AllocWrite
			p.connect()
			p.remoteTraffic((*cm.ID).PostWrite, true)
			p.disconnect()
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			hasAddress(t)
			if test.needs != nil {
				test.needs(t)
			}
			playBoth(t, test.play)
		})
	}
}

// needExternal skips a test on iWARP, where rdma_cm connects no QPs but those of its ids.
func needExternal(t *testing.T) {
	t.Helper()
	if rnic() {
		features.Missing(t, features.Endpoint, errors.New("the device is one of iWARP"))
	}
}

// hasAddress skips tests that need an IP address on an InfiniBand port.
func hasAddress(t testing.TB) {
	t.Helper()
	c := must(uverbs.Open(rdmaDevice()))(t)
	defer func() { check(t, c.Close()) }()
	if l := must(c.QueryPort(1))(t).LinkLayer; l != uverbs.LinkEthernet {
		features.Missing(t, features.EthernetIB, fmt.Errorf("the link layer is %v", l))
	}
}

// These are the messages of the Python tests.
const (
	parityPort     = "7471"
	parityMessages = 10
	paritySize     = 1024
)

// A player is one side of a Python test. In Python it is a process, here a goroutine.
type player struct {
	testing.TB // Fatal only ends the player
	ctx        context.Context
	cancel     context.CancelCauseFunc
	passive    bool
	in, out    chan struct{} // of the barrier
	notes      chan note     // from one side to the other

	ps         cm.PortSpace
	ackTimeout uint8 // 0: the default
	reject     string
	external   bool // the QP is the program's, not the id's
	alloc      func(*cm.ID, int) (*uverbs.MR, error)

	ch    *cm.EventChannel
	id    *cm.ID // the id that the player has created
	conn  *cm.ID // the connection's: on the passive side that of the request
	sync  *cm.SyncID
	qp    *uverbs.QP // the external one
	mr    *uverbs.MR
	ud    cm.UDParam // the destination of datagrams
	qpn   uint32     // the other side's
	group *cm.Membership
}

// A note is what one side sends to the other.
type note struct {
	addr uint64
	key  uint32
}

// playBoth runs both sides of a test.
func playBoth(t *testing.T, play func(*player)) {
	ctx, cancel := context.WithCancelCause(limit(t))
	defer cancel(nil)
	a, b := make(chan struct{}, 1), make(chan struct{}, 1)
	notes := make(chan note, 2)
	var sides sync.WaitGroup
	for _, p := range []*player{{passive: true, in: a, out: b}, {in: b, out: a}} {
		p.TB, p.ctx, p.cancel, p.notes = t, ctx, cancel, notes
		p.ps, p.alloc = cm.PSTCP, (*cm.ID).AllocMsgs
		sides.Go(func() { play(p) })
	}
	sides.Wait()
}

// Fatal reports an error and ends both players.
func (p *player) Fatal(args ...any) {
	p.Helper()
	p.Error(append([]any{map[bool]string{true: "passive side:", false: "active side:"}[p.passive]}, args...)...)
	p.cancel(errors.New("the other side has failed"))
	runtime.Goexit()
}

// wait is the barrier: it returns when both sides have called it.
func (p *player) wait() {
	p.Helper()
	select {
	case p.out <- struct{}{}:
	case <-p.ctx.Done():
		p.Fatal(context.Cause(p.ctx))
	}
	select {
	case <-p.in:
	case <-p.ctx.Done():
		p.Fatal(context.Cause(p.ctx))
	}
}

// note reads the note of the other side.
func (p *player) note() note {
	p.Helper()
	select {
	case n := <-p.notes:
		return n
	case <-p.ctx.Done():
		p.Fatal(context.Cause(p.ctx))
		return note{}
	}
}

// addrInfo returns the address of the device and the port, which both sides use.
func (p *player) addrInfo() *cm.AddrInfo {
	p.Helper()
	hints := &cm.AddrInfo{PortSpace: p.ps, Flags: cm.Passive}
	if !p.passive {
		hints = &cm.AddrInfo{PortSpace: p.ps, Src: netip.AddrPortFrom(netip.MustParseAddr(deviceIP), 0)}
	}
	return &must(cm.GetAddrInfo(p.ctx, deviceIP, parityPort, hints))(p)[0]
}

// connectSync establishes a connection of synchronous ids.
func (p *player) connectSync() {
	cfg := uverbs.QPConfig{MaxSendWR: 1, MaxRecvWR: 10, SignalAll: true}
	s := must(cm.CreateEP(p.ctx, p.addrInfo(), nil, &cfg))(p)
	closing(p, s)
	if p.passive {
		check(p, s.Listen(0))
		p.wait()
		s = must(s.GetRequest(p.ctx))(p)
		closing(p, s)
		check(p, s.Accept(p.ctx, nil))
	} else {
		p.wait()
		check(p, s.Connect(p.ctx, nil))
	}
	p.sync, p.conn = s, s.ID
	p.register()
}

func (p *player) disconnectSync() { check(p, p.sync.Disconnect(p.ctx)) }

// register registers the memory of all messages.
func (p *player) register() {
	p.mr = must(p.alloc(p.conn, paritySize+uverbs.GRHLen))(p)
	closing(p, p.mr)
}

// write fills the memory with the letter of this side.
func (p *player) write(n int) {
	letter := byte('c')
	if p.passive {
		letter = 's'
	}
	copy(p.mr.Bytes(), bytes.Repeat([]byte{letter}, n))
}

// validate checks that the memory has a message of the other side.
func (p *player) validate(off int) {
	p.Helper()
	want := bytes.Repeat([]byte{map[bool]byte{true: 'c', false: 's'}[p.passive]}, paritySize)
	if got := p.mr.Bytes()[off:][:paritySize]; !bytes.Equal(got, want) {
		p.Fatal("data validation failure: received", string(got))
	}
}

// room returns the number of bytes before the message in a receive of a datagram.
func (p *player) room() int {
	if p.ps == cm.PSUDP {
		return uverbs.GRHLen
	}
	return 0
}

// traffic sends messages in both directions.
func (p *player) traffic() {
	all := p.mr.SGE(0, p.mr.Len())
	for range parityMessages {
		if p.passive {
			check(p, p.conn.PostRecv(0, all))
			p.wait()
			p.wait()
			wc := must(p.conn.RecvComp(p.ctx))(p)
			p.validate(p.room())
			p.reply(wc)
			p.wait()
			continue
		}
		p.write(paritySize + p.room())
		p.wait()
		if p.ps == cm.PSTCP {
			check(p, p.conn.PostSend(0, uverbs.Signaled, all))
		} else {
			p.datagram(must(p.conn.PD().CreateAH(p.ud.AH))(p), p.ud.QPN)
		}
		must(p.conn.SendComp(p.ctx))(p)
		check(p, p.conn.PostRecv(0, all))
		p.wait()
		p.wait()
		must(p.conn.RecvComp(p.ctx))(p)
		p.validate(p.room())
	}
}

// reply returns a message to its sender.
func (p *player) reply(wc uverbs.WC) {
	if p.ps == cm.PSTCP {
		p.write(paritySize)
		check(p, p.conn.PostSend(0, uverbs.Signaled, p.mr.SGE(0, p.mr.Len())))
	} else {
		ah := must(p.conn.PD().CreateAHFromWC(p.conn.Port(), &wc, p.mr.Bytes()[:uverbs.GRHLen]))(p)
		p.write(paritySize + uverbs.GRHLen)
		p.datagram(ah, p.qpn)
	}
	must(p.conn.SendComp(p.ctx))(p)
}

// datagram posts a datagram. The AH is closed when the test ends.
func (p *player) datagram(ah *uverbs.AH, qpn uint32) {
	p.Helper()
	closing(p, ah)
	check(p, p.conn.PostUDSend(0, uverbs.Signaled, ah, qpn, p.mr.SGE(0, paritySize)))
}
