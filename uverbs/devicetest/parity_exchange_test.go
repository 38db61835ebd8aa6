package devicetest

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
)

// deliver sends a message to the peer, which must have posted a receive, and checks
// what arrives. If the send fails, it returns the status of the send.
func (p *player) deliver(t testing.TB, op uverbs.Opcode, qp int) error {
	t.Helper()
	p.chill(t)
	p.peer.chill(t)
	want := p.fill(t)
	if p.advise != nil {
		p.advise(t, p)
	}
	p.post(t, qp, uverbs.SendWR{Opcode: op, SGL: p.outgoing(), RemoteAddr: p.addr, RKey: p.rkey, Imm: parityImm})
	if _, err := p.done(t); err != nil {
		return err
	}
	wc, err := p.peer.done(t)
	check(t, err)
	if imm := wc.Flags&uverbs.WCWithImm != 0; imm != (op == uverbs.OpSendImm || op == uverbs.OpWriteImm) || imm &&
		wc.Imm != parityImm {
		t.Fatalf("%v completed as %+v", op, wc)
	}
	if int(wc.ByteLen) != p.offset()+len(want) {
		t.Fatalf("%d bytes were received, %d sent", wc.ByteLen, p.offset()+len(want))
	}
	same(t, p.peer.received(t), want)
	return nil
}

// traffic sends messages in both directions, as utils.traffic of pyverbs' tests does.
func traffic(t testing.TB, client *player, op uverbs.Opcode) {
	t.Helper()
	players := [2]*player{client, client.peer}
	for qp := range client.qps {
		for _, p := range players {
			p.receive(t, qp)
		}
	}
	for range client.rounds {
		for qp := range client.qps {
			for _, p := range players {
				check(t, p.deliver(t, op, qp))
				p.peer.receive(t, qp)
			}
		}
	}
}

// remote reads or writes the peer's memory, and checks the memory at both ends. If
// the request fails, it checks that nothing has changed and returns the error.
func (p *player) remote(t testing.TB, op uverbs.Opcode) error {
	t.Helper()
	p.chill(t)
	p.peer.chill(t)
	mine, theirs := p.fill(t), p.peer.fill(t)
	wr := uverbs.SendWR{Opcode: op, RemoteAddr: p.addr, RKey: p.rkey}
	if op == uverbs.OpAtomicWrite {
		wr.Swap = binary.NativeEndian.Uint64(mine)
	} else {
		wr.SGL = p.outgoing()
	}
	p.post(t, 0, wr)
	if _, err := p.done(t); err != nil {
		same(t, p.sent(t), mine)
		same(t, p.peer.sent(t), theirs)
		return err
	}
	if op == uverbs.OpRead {
		mine = theirs
	}
	same(t, p.sent(t), mine)
	same(t, p.peer.sent(t), mine)
	return nil
}

// remoteTraffic reads or writes in both directions, as utils.rdma_traffic does.
func remoteTraffic(t testing.TB, client *player, op uverbs.Opcode) {
	t.Helper()
	for range client.rounds {
		check(t, client.remote(t, op))
		check(t, client.peer.remote(t, op))
	}
}

// fails checks that a request has failed with the status want.
func fails(t testing.TB, err error, want uverbs.WCStatus) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("completed with %v, want %v", err, want)
	}
}

// needs skips the test if the device does not report the capability flag.
func needs(t testing.TB, flag uverbs.DeviceCapFlags, feature string) {
	t.Helper()
	if must(openDevice(t).QueryDevice())(t).CapFlags&flag == 0 {
		features.Missing(t, feature, errors.New("DeviceAttr.CapFlags says so"))
	}
}
