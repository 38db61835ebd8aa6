package devicetest

import (
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// TestDeviceParityFlow has the tests of tests/test_flow.py.
func TestDeviceParityFlow(t *testing.T) {
	eth := func(kind uint16) ether.FlowEth {
		f := toRawMAC(rawMAC)
		f.Val.SrcMAC, f.Mask.SrcMAC = [6]byte{0x24, 0x8a, 0x07, 0xa5, 0x28, 0xc9}, wholeMAC
		f.Val.EtherType, f.Mask.EtherType = kind, 0xffff
		return f
	}
	all4, all6 := [4]byte{255, 255, 255, 255}, [16]byte{}
	for i := range all6 {
		all6[i] = 255
	}
	ip4 := ether.FlowIPv4{Val: ether.IPv4Filter{Src: [4]byte{10, 9, 8, 1}, Dst: [4]byte{10, 9, 8, 2}, Proto: 17},
		Mask: ether.IPv4Filter{Src: all4, Dst: all4, Proto: 255}}
	ip6 := func(proto uint8) ether.FlowIPv6 {
		return ether.FlowIPv6{Val: ether.IPv6Filter{
			Src: [16]byte{0: 0xfd, 15: 1}, Dst: [16]byte{0: 0xfd, 15: 2}, NextHeader: proto},
			Mask: ether.IPv6Filter{Src: all6, Dst: all6, NextHeader: 255}}
	}
	ports, allPorts := ether.PortFilter{Dst: 5678, Src: 1234}, ether.PortFilter{Dst: 0xffff, Src: 0xffff}
	udp, tcp := ether.FlowUDP{Val: ports, Mask: allPorts}, ether.FlowTCP{Val: ports, Mask: allPorts}
	for name, c := range map[string]struct {
		packet rawPacket
		specs  []ether.FlowSpec
	}{
		"test_eth_spec_flow_traffic":  {rawPacket{}, []ether.FlowSpec{eth(0x800)}},
		"test_ipv4_spec_flow_traffic": {rawPacket{}, []ether.FlowSpec{ip4}},
		"test_ipv6_spec_flow_traffic": {rawPacket{v6: true}, []ether.FlowSpec{eth(0x86dd), ip6(17)}},
		"test_udp_spec_flow_traffic":  {rawPacket{}, []ether.FlowSpec{eth(0x800), ip4, udp}},
		"test_tcp_spec_flow_traffic":  {rawPacket{v6: true, tcp: true}, []ether.FlowSpec{eth(0x86dd), ip6(6), tcp}},
	} {
		t.Run(name, func(t *testing.T) {
			client, server := newRawTap(t, 0), newRawTap(t, 0)
			must(ether.CreateFlow(server.qp, ether.FlowAttr{Specs: c.specs}))(t)
			c.packet.dst, c.packet.from, c.packet.payload = rawMAC, 1, 1024
			frame := c.packet.frame()
			for i := range 10 {
				server.listen(t, uint64(i))
				client.send(t, frame, 18, 0)
				if wc := server.next(t); wc.WRID != uint64(i) || int(wc.ByteLen) != len(frame) {
					t.Fatalf("received: %+v", wc)
				}
				same(t, server.mr.Bytes()[rawTo:][:len(frame)], frame)
			}
			if len(c.specs) == 1 { // a frame of another type matches no flow
				other := c.packet
				other.v6 = true
				server.listen(t, 20)
				client.send(t, other.frame(), 18, 0)
				client.send(t, frame, 18, 0)
				if wc := server.next(t); wc.WRID != 20 || int(wc.ByteLen) != len(frame) {
					t.Errorf("received: %+v", wc)
				}
			}
		})
	}
}

var rssKey = []byte{0x2c, 0xc6, 0x81, 0xd1, 0x5b, 0xdb, 0xf4, 0xf7, 0xfc, 0xa2, 0x83, 0x19, 0xdb, 0x1a, 0x3e, 0x94,
	0x6b, 0x9e, 0x38, 0xd9, 0x2c, 0x9c, 0x03, 0xd1, 0xad, 0x99, 0x44, 0xa7, 0xd9, 0x56, 0x3d, 0x59, 0x06, 0x3c, 0x25, 0xf3,
	0xfc, 0x1f, 0xdc, 0x2a}

// TestDeviceParityRSS has the tests of tests/test_rss_traffic.py.
func TestDeviceParityRSS(t *testing.T) {
	t.Run("test_rss_traffic", rssTraffic)
}

// rssTraffic checks that packets from many addresses are distributed over eight WQs
// with two CQs, and that those from one address always go to the same WQ.
func rssTraffic(t *testing.T) {
	const wqs, perWQ, addresses = 8, 32, 60
	client, server := newRawTap(t, 0), newTap(t)
	cqs := []*uverbs.CQ{server.cq, must(server.dev.CreateCQ(uverbs.CQConfig{Entries: 256}))(t)}
	var list []*ether.WQ
	for i := range wqs {
		q := must(ether.CreateWQ(server.pd, ether.WQConfig{CQ: cqs[i%2], MaxWR: perWQ, MaxSGE: 2}))(t)
		check(t, q.Ready())
		for range perWQ {
			must(q.PostRecv(uverbs.RecvWR{WRID: uint64(i), SGL: []uverbs.SGE{server.mr.SGE(rawTo, rawRoom)}}))(t)
		}
		list = append(list, q)
	}
	table := must(ether.CreateRWQIndTable(server.dev, list...))(t)
	rss := must(ether.CreateRSSQP(server.pd, ether.RSSConfig{Table: table, Function: ether.RSSToeplitz,
		Key: rssKey, Fields: ether.RSSSrcIPv4 | ether.RSSDstIPv4}))(t)
	must(ether.CreateFlow(rss, ether.FlowAttr{Specs: []ether.FlowSpec{toRawMAC(rawMAC)}}))(t)
	chosen := map[byte]uint64{}
	used := map[uint64]int{}
	for i := range 2 * addresses {
		from := byte(i%addresses + 1)
		frame := rawPacket{dst: rawMAC, from: from, payload: 1000}.frame()
		client.send(t, frame, 18, 0)
		wc := oneOf(t, server, cqs)
		if int(wc.ByteLen) != len(frame) || wc.QPNum != list[wc.WRID].WQN() {
			t.Fatalf("received: %+v", wc)
		}
		same(t, server.mr.Bytes()[rawTo:][:len(frame)], frame)
		if before, seen := chosen[from]; seen && before != wc.WRID {
			t.Errorf("address %d went to WQ %d, then to %d", from, before, wc.WRID)
		}
		chosen[from] = wc.WRID
		used[wc.WRID]++
	}
	if len(used) < wqs/2 {
		t.Errorf("%d addresses went to %d of %d WQs", addresses, len(used), wqs)
	}
}

// oneOf waits for a completion in one of the CQs.
func oneOf(t testing.TB, p *tap, cqs []*uverbs.CQ) uverbs.WC {
	t.Helper()
	var wcs [1]uverbs.WC
	for p.ctx.Err() == nil {
		for _, q := range cqs {
			if must(q.Poll(wcs[:]))(t) == 1 {
				check(t, wcs[0].Err())
				return wcs[0]
			}
		}
	}
	t.Fatal("no completion")
	return wcs[0]
}
