package rdma

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// joinOne returns a member of a group on a machine of an InfiniBand network, where an address is a LID.
func joinOne(t *testing.T) (*Group, *verbstest.Machine) {
	t.Helper()
	n := verbstest.NewNetwork(t, verbstest.InfiniBand())
	n.Allow(verbstest.Destination)
	m := n.Machine()
	var g *Group
	m.Run(func() {
		var err error
		g, err = JoinGroup(bounded(t), "239.1.2.3", nil)
		good(t, g, err)
	})
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g, m
}

// peerAt returns the sender of a datagram that came from a LID.
func peerAt(t *testing.T, lid int) Peer {
	wc := uverbs.WC{SLID: uint16(lid)}
	key, err := wc.AHKey(nil)
	return Peer{good(t, key, err), 0x1234}
}

// TestRoutes checks that the cache of addresses does not grow without limit, however many addresses the peers have, and
// that it keeps those that were used last.
func TestRoutes(t *testing.T) {
	t.Parallel()
	g, m := joinOne(t)
	ctx := bounded(t)
	commandsOf := func(lid int) int {
		before := m.Commands()
		if err := g.SendTo(ctx, []byte("x"), peerAt(t, lid)); err != nil {
			t.Fatal(err)
		}
		g.resolving.Wait()
		return m.Commands() - before
	}
	if first, again := commandsOf(1), commandsOf(1); first == 0 || first > 2 || again != 0 {
		t.Errorf("the first datagram to a peer costs %d commands, and the next %d", first, again)
	}
	for lid := 2; lid <= 3*maxPeers; lid++ {
		commandsOf(lid)
		if lid%100 == 0 && commandsOf(1) != 0 {
			t.Fatalf("the address of a peer in use was removed after %d others", lid)
		}
		if n := len(g.peers); n > maxPeers {
			t.Fatalf("%d addresses are kept", n)
		}
	}
	if len(g.peers) != maxPeers || commandsOf(3*maxPeers) != 0 || commandsOf(2) == 0 {
		t.Errorf("%d addresses are kept, or not the last ones", len(g.peers))
	}
	if err := g.reap(); err != nil {
		t.Fatal(err)
	}
	for key, r := range g.peers {
		if r.busy < 0 || r.busy > datagramSends {
			t.Errorf("%+v has %d users", key, r.busy)
		}
	}
}

// routeTo returns the route to the sender of a datagram that came from a LID, for a call that uses it.
func routeTo(t *testing.T, g *Group, lid int) *route {
	t.Helper()
	r, err := g.route(bounded(t), nil, peerAt(t, lid))
	if err == nil && r == nil {
		g.resolving.Wait()
		r, err = g.route(bounded(t), nil, peerAt(t, lid))
	}
	return good(t, r, err)
}

// TestRoutesInUse checks that an address that a call uses is not removed, although all are in use.
func TestRoutesInUse(t *testing.T) {
	g, _ := joinOne(t)
	var used []*route
	for lid := 1; lid <= maxPeers+10; lid++ {
		used = append(used, routeTo(t, g, lid))
	}
	for i, r := range used {
		if again := routeTo(t, g, i+1); again != r {
			t.Fatalf("address %d is another", i+1)
		}
		g.routeDone(r)
		g.routeDone(r)
	}
	g.routeDone(routeTo(t, g, maxPeers+11))
	if n := len(g.peers); n > maxPeers+10 {
		t.Errorf("%d addresses are kept", n)
	}
}

// TestUnknownPeers checks senders that cannot be replied to.
func TestUnknownPeers(t *testing.T) {
	g, _ := joinOne(t)
	ctx := bounded(t)
	grh := make([]byte, uverbs.GRHLen) // to a GID that the port does not have
	binary.BigEndian.PutUint32(grh, 6<<28)
	grh[6], grh[8], grh[24] = 0x1b, 0xfe, 0xfe
	wc := uverbs.WC{Flags: uverbs.WCGRH}
	key, err := wc.AHKey(grh)
	stranger := Peer{good(t, key, err), 1}
	if err := g.SendTo(ctx, nil, stranger); err != nil {
		t.Errorf("SendTo before the address is resolved: %v", err)
	}
	g.resolving.Wait()
	if err := g.SendTo(ctx, nil, stranger); !errors.Is(err, uverbs.ErrInvalid) || !errors.Is(err, cm.ErrUnreachable) {
		t.Errorf("SendTo returns %v", err)
	}
	if err := g.SendTo(ctx, nil, Peer{}); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("SendTo without a peer returns %v", err)
	}
	if err := g.Send(ctx, nil); err != nil {
		t.Error(err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if _, err := g.route(bounded(t), nil, peerAt(t, 5)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("route after Close returns %v", err)
	}
}

// TestForgedSources checks that members whose addresses cannot be resolved stop neither the caller nor datagrams to
// others, and that their number is limited.
func TestForgedSources(t *testing.T) {
	g, m := joinOne(t)
	ctx := bounded(t)
	routeDone := func(lid int) { g.routeDone(routeTo(t, g, lid)) }
	routeDone(1)
	m.SetCommandTime(5 * time.Second) // the kernel asks the network, for longer than the calls below take
	for range maxWaiting {
		if err := g.SendTo(ctx, []byte("reply"), peerAt(t, 2)); err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	if err := g.SendTo(short, nil, peerAt(t, 2)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d datagrams wait for an address, and another one: %v", maxWaiting, err)
	}
	send := func(first, n int) {
		for lid := first; lid < first+n; lid++ {
			if err := g.SendTo(ctx, nil, peerAt(t, lid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(3, maxResolvers-1) // one resolves the address 2
	for wanted := 1; wanted > 0; <-time.After(time.Millisecond) {
		g.mu.Lock()
		wanted = len(g.wanted)
		g.mu.Unlock()
	}
	send(1000, maxWanted) // which no resolver takes
	if err := g.SendTo(ctx, nil, peerAt(t, 5000)); !errors.Is(err, cm.ErrUnreachable) {
		t.Errorf("an address beyond the limit: %v", err)
	}
	g.mu.Lock()
	if r := g.peers[peerAt(t, 2).key]; !r.resolving || len(r.waiting) != maxWaiting || g.resolvers > maxResolvers {
		t.Errorf("the route is %+v, and %d addresses are being resolved", r, g.resolvers)
	}
	g.mu.Unlock()
	if err := g.SendTo(ctx, []byte("reply"), peerAt(t, 1)); err != nil {
		t.Errorf("to a member whose address is known: %v", err)
	}
	m.SetCommandTime(0)
	g.resolving.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.waiting != 0 || len(g.wanted) != 0 || g.resolvers != 0 {
		t.Errorf("%d datagrams wait for %d addresses", g.waiting, len(g.wanted))
	}
	for key, r := range g.peers {
		if r.resolving || r.err != nil || r.waiting != nil {
			t.Errorf("the route to %v is %+v", key, r)
		}
	}
}

// TestOwnDatagrams checks which datagrams are this member's. Members on other machines may have the same QPN, and
// without a GRH the memory in front of a datagram has what was there before.
func TestOwnDatagrams(t *testing.T) {
	g := &Group{qpn: 7, gid: uverbs.GID{10: 0xff, 11: 0xff, 12: 10, 13: 9, 14: 0, 15: 1}}
	v4 := func(last byte) []byte {
		b := make([]byte, uverbs.GRHLen)
		b[20] = 0x45
		copy(b[32:], []byte{10, 9, 0, last})
		return b
	}
	v6 := func(last byte) []byte {
		b := make([]byte, uverbs.GRHLen)
		b[0] = 0x60
		copy(b[8:], g.gid[:])
		b[23] = last
		return b
	}
	undefined := func(b []byte) []byte { // as the bytes before an IPv4 header are
		copy(b, v6(9)[:20])
		return b
	}
	for _, test := range []struct {
		name string
		qpn  uint32
		grh  []byte
		flag uverbs.WCFlags
		own  bool
	}{
		{"own, IPv4", 7, v4(1), uverbs.WCGRH, true},
		{"own, IPv4 after undefined bytes", 7, undefined(v4(1)), uverbs.WCGRH, true},
		{"another machine, IPv4 after undefined bytes", 7, undefined(v4(2)), uverbs.WCGRH, false},
		{"own, GIDs", 7, v6(1), uverbs.WCGRH, true},
		{"another QP, IPv4", 8, v4(1), uverbs.WCGRH, false},
		{"another QP, GIDs", 8, v6(1), uverbs.WCGRH, false},
		{"another machine, IPv4", 7, v4(2), uverbs.WCGRH, false},
		{"another machine, GIDs", 7, v6(2), uverbs.WCGRH, false},
		{"no GRH", 7, v4(1), 0, false},
		{"no GRH after one with GIDs", 7, v6(1), 0, false},
	} {
		wc := uverbs.WC{SrcQP: test.qpn, Flags: test.flag}
		if own := g.isOwn(&wc, test.grh); own != test.own {
			t.Errorf("%s: own is %v", test.name, own)
		}
	}
}

// FuzzDatagram checks that what datagram accepts is within the receive and has a sender, whatever is in the header and
// the completion.
func FuzzDatagram(f *testing.F) {
	v4, v6 := make([]byte, 60), make([]byte, 60)
	v4[20], v6[0], v6[6] = 0x45, 0x60, 0x1b
	for _, grh := range [][]byte{v4, v6, {}} {
		for _, length := range []uint32{0, 39, 40, 41, 60, 104, 105, 1 << 31} {
			f.Add(grh, length, uint32(5), true)
			f.Add(grh, length, uint32(7), false)
		}
	}
	f.Fuzz(func(t *testing.T, grh []byte, length, qpn uint32, global bool) {
		const mtu, slots = 64, 3
		g := &Group{qpn: 7, mtu: mtu, recvLen: uverbs.GRHLen + mtu, uses: make([]atomic.Uint32, slots)}
		g.recvMem = make([]byte, slots*g.recvLen)
		slot := g.recvMem[uverbs.GRHLen+mtu:][:uverbs.GRHLen+mtu]
		copy(slot, grh)
		wc := uverbs.WC{WRID: 1, ByteLen: length, SrcQP: qpn}
		if global {
			wc.Flags = uverbs.WCGRH
		}
		d, ok := g.datagram(&wc)
		switch {
		case !ok && d.b != nil:
			t.Error("a datagram that is not accepted has bytes")
		case !ok:
		case length < uverbs.GRHLen || length > uverbs.GRHLen+mtu:
			t.Errorf("a datagram of %d bytes with its header is accepted", length)
		case len(d.Bytes()) != int(length)-uverbs.GRHLen || cap(d.Bytes()) != len(d.Bytes()):
			t.Errorf("%d bytes of %d", len(d.Bytes()), length)
		case string(d.Bytes()) != string(slot[uverbs.GRHLen:length]) || d.From().qpn != qpn || d.slot != 1:
			t.Error("another datagram")
		}
	})
}
