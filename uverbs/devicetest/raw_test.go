package devicetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// A tap is one end of raw packets. A device delivers its own packets only if two programs have
// it open, so each tap has a separate Context.
type tap struct {
	ctx context.Context
	dev *uverbs.Context
	pd  *uverbs.PD
	mr  *uverbs.MR
	cq  *uverbs.CQ
	qp  *uverbs.QP
}

// newTap returns a tap without a QP.
func newTap(t testing.TB) *tap {
	t.Helper()
	p := &tap{dev: openDevice(t)}
	var cancel context.CancelFunc
	p.ctx, cancel = context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	p.pd = must(p.dev.AllocPD())(t)
	p.mr = must(p.pd.Alloc(bufSize, uverbs.LocalWrite))(t)
	p.cq = must(p.dev.CreateCQ(uverbs.CQConfig{Entries: 256}))(t)
	return p
}

// newRawTap returns a tap with a raw packet QP in RTS.
func newRawTap(t testing.TB, flags uverbs.QPCreateFlags) *tap {
	t.Helper()
	p := newTap(t)
	var err error
	p.qp, err = p.pd.CreateQP(uverbs.QPConfig{
		Type: uverbs.RawPacket, SendCQ: p.cq, MaxSendWR: 32, MaxRecvWR: 32, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInline: 128,
		CreateFlags: flags})
	hasRaw(t, p.dev, err)
	check(t, p.qp.Ready())
	return p
}

// hasRaw skips the test if err reports that the device does not support raw packets.
func hasRaw(t testing.TB, dev *uverbs.Context, err error) {
	t.Helper()
	if !errors.Is(err, uverbs.ErrNotSupported) {
		check(t, err)
		return
	}
	feature := features.RawPacket
	if must(dev.QueryPort(1))(t).LinkLayer == uverbs.LinkInfiniBand {
		feature = features.RawPacketIB
	}
	features.Missing(t, feature, err)
}

const rawTo, rawRoom = 1 << 15, 2048 // where frames are received

func (p *tap) listen(t testing.TB, id uint64) {
	t.Helper()
	receive(t, p.qp, uverbs.RecvWR{WRID: id, SGL: []uverbs.SGE{p.mr.SGE(rawTo, rawRoom)}})
}

func (p *tap) next(t testing.TB) uverbs.WC {
	t.Helper()
	var wcs [1]uverbs.WC
	must(p.cq.PollWait(p.ctx, wcs[:]))(t)
	check(t, wcs[0].Err())
	return wcs[0]
}

// send sends a frame, with some of its bytes inline.
func (p *tap) send(t testing.TB, frame []byte, inline int, f uverbs.SendFlags) {
	t.Helper()
	copy(p.mr.Bytes(), frame)
	wr := uverbs.SendWR{WRID: 1, Opcode: uverbs.OpSend, Flags: f | uverbs.Signaled, Inline: frame[:inline]}
	if inline < len(frame) {
		wr.SGL = []uverbs.SGE{p.mr.SGE(inline, len(frame)-inline)}
	}
	post(t, p.qp, wr)
	if wc := p.next(t); wc.Opcode != uverbs.WCSend || wc.WRID != 1 || wc.QPNum != p.qp.QPN() {
		t.Fatalf("sent: %+v", wc)
	}
}

// A rawPacket describes a frame.
type rawPacket struct {
	dst     [6]byte
	vlan    uint16 // 0: none
	v6, tcp bool
	from    byte // last byte of the sender's address
	payload int
}

var rawMAC = [6]byte{0x24, 0x8a, 0x07, 0xa5, 0x28, 0xc8}

// frame returns the packet, with the checksum of IPv4 but without one of TCP or UDP.
func (r rawPacket) frame() []byte {
	b := append(append([]byte{}, r.dst[:]...), 0x24, 0x8a, 0x07, 0xa5, 0x28, 0xc9)
	if r.vlan != 0 {
		b = binary.BigEndian.AppendUint16(append(b, 0x81, 0), r.vlan)
	}
	proto, head := byte(17), 8
	if r.tcp {
		proto, head = 6, 20
	}
	n := uint16(head + r.payload)
	if r.v6 {
		b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0)
		b = append(binary.BigEndian.AppendUint16(b, n), proto, 64)
		for _, last := range []byte{r.from, 2} {
			b = append(append(append(b, 0xfd), make([]byte, 14)...), last)
		}
	} else {
		at := len(b) + 2
		b = append(b, 8, 0, 0x45, 0)
		b = binary.BigEndian.AppendUint16(b, n+20)
		b = append(b, 0, 0, 0x40, 0, 64, proto, 0, 0, 10, 9, 8, r.from, 10, 9, 8, 2)
		binary.BigEndian.PutUint16(b[at+10:], ^onesSum(b[at:at+20]))
	}
	b = append(b, 4, 210, 22, 46) // ports 1234 and 5678
	if r.tcp {
		b = append(b, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0)
	} else {
		b = append(binary.BigEndian.AppendUint16(b, n), 0, 0)
	}
	for i := range r.payload {
		b = append(b, byte(i))
	}
	return b
}

func onesSum(b []byte) uint16 {
	sum := uint32(0)
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

var wholeMAC = [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func toRawMAC(mac [6]byte) ether.FlowEth {
	return ether.FlowEth{Val: ether.EthFilter{DstMAC: mac}, Mask: ether.EthFilter{DstMAC: wholeMAC}}
}

// TestDeviceRawPacket checks that frames arrive unchanged, with their flow's tag, and that frames
// that match no flow do not arrive.
func TestDeviceRawPacket(t *testing.T) {
	a, b := newRawTap(t, 0), newRawTap(t, 0)
	flow := must(ether.CreateFlow(b.qp, ether.FlowAttr{
		Specs: []ether.FlowSpec{toRawMAC(rawMAC), ether.FlowActionTag{ID: 0x12345}}}))(t)
	sums := must(a.dev.QueryDevice())(t).CapFlags&uverbs.DeviceRawIPCsum != 0
	id := uint64(10)
	for _, payload := range []int{18, 64, 500, 1400} {
		frame := rawPacket{dst: rawMAC, payload: payload}.frame()
		for _, inline := range []int{0, 18, 34, min(len(frame), 128)} {
			for _, flags := range []uverbs.SendFlags{0, ether.IPCsum} {
				if flags != 0 && !sums {
					continue
				}
				id++
				b.listen(t, id)
				a.send(t, frame, inline, flags)
				wc := b.next(t)
				got := b.mr.Bytes()[rawTo:][:wc.ByteLen]
				if wc.WRID != id || wc.Opcode != uverbs.WCRecv || wc.QPNum != b.qp.QPN() || ether.FlowTag(&wc) != 0x12345 {
					t.Fatalf("received: %+v", wc)
				}
				if flags != 0 {
					if wc.Flags&ether.WCIPCsumOK == 0 || bytes.Equal(got[40:42], []byte{0, 0}) {
						t.Errorf("checksums were asked for: %+v, % x", wc, got[:42])
					}
					copy(got[40:42], []byte{0, 0})
				}
				same(t, got, frame)
			}
		}
	}
	// A frame to another address is dropped. The one after it arrives.
	other := rawMAC
	other[5]++
	b.listen(t, 5)
	a.send(t, rawPacket{dst: other, payload: 100}.frame(), 18, 0)
	a.send(t, rawPacket{dst: rawMAC, payload: 200}.frame(), 18, 0)
	if wc := b.next(t); wc.WRID != 5 || wc.ByteLen != 242 {
		t.Errorf("received: %+v", wc)
	}
	// Without a flow no frame arrives.
	check(t, flow.Close())
	back := must(ether.CreateFlow(b.qp, ether.FlowAttr{Specs: []ether.FlowSpec{toRawMAC(other)}}))(t)
	b.listen(t, 6)
	a.send(t, rawPacket{dst: rawMAC, payload: 100}.frame(), 18, 0)
	a.send(t, rawPacket{dst: other, payload: 300}.frame(), 18, 0)
	if wc := b.next(t); wc.WRID != 6 || wc.ByteLen != 342 || ether.FlowTag(&wc) != 0 {
		t.Errorf("received: %+v", wc)
	}
	if err := b.qp.Close(); !errors.Is(err, uverbs.ErrBusy) {
		t.Errorf("Close under a flow: %v", err)
	}
	check(t, back.Close())
}

// TestDeviceRawPacketVLAN checks that flows match a VLAN tag, and that the completion contains it.
func TestDeviceRawPacketVLAN(t *testing.T) {
	a, b := newRawTap(t, 0), newRawTap(t, ether.QPCVLANStripping)
	eth := toRawMAC(rawMAC)
	eth.Val.VLANTag, eth.Mask.VLANTag = 0x123, 0xfff
	must(ether.CreateFlow(b.qp, ether.FlowAttr{Specs: []ether.FlowSpec{eth}}))(t)
	b.listen(t, 1)
	for _, vlan := range []uint16{0x124, 0x6123} {
		a.send(t, rawPacket{dst: rawMAC, vlan: vlan, payload: 64}.frame(), 18, 0)
	}
	wc := b.next(t)
	if tag, ok := ether.CVLAN(&wc); !ok || tag != 0x6123 {
		t.Errorf("the tag is %#x, %v", tag, ok)
	}
	same(t, b.mr.Bytes()[rawTo:][:wc.ByteLen], rawPacket{dst: rawMAC, payload: 64}.frame())
}

// TestDeviceRawPacketStates checks that receives are flushed in ERR, and that the QP works again
// after RESET.
func TestDeviceRawPacketStates(t *testing.T) {
	a, b := newRawTap(t, 0), newRawTap(t, 0)
	must(ether.CreateFlow(b.qp, ether.FlowAttr{Specs: []ether.FlowSpec{toRawMAC(rawMAC)}}))(t)
	b.listen(t, 3)
	check(t, b.qp.Modify(uverbs.QPAttr{State: uverbs.StateErr}, uverbs.MaskState))
	var wcs [1]uverbs.WC
	must(b.cq.PollWait(b.ctx, wcs[:]))(t)
	if wc := wcs[0]; wc.WRID != 3 || wc.Status != uverbs.WCWRFlushErr || wc.QPNum != b.qp.QPN() {
		t.Errorf("flushed: %+v", wc)
	}
	check(t, b.qp.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
	check(t, b.qp.Init())
	b.listen(t, 4)
	check(t, b.qp.Ready())
	frame := rawPacket{dst: rawMAC, payload: 64}.frame()
	a.send(t, frame, 18, 0)
	if wc := b.next(t); wc.WRID != 4 || int(wc.ByteLen) != len(frame) {
		t.Errorf("received: %+v", wc)
	}
}

// TestDeviceRawPacketTimestamps checks that completions have timestamps, which can be converted to
// wall-clock time.
func TestDeviceRawPacketTimestamps(t *testing.T) {
	a, b := newRawTap(t, 0), newRawTap(t, 0)
	must(ether.CreateFlow(b.qp, ether.FlowAttr{Specs: []ether.FlowSpec{toRawMAC(rawMAC)}}))(t)
	before := must(b.dev.QueryClock())(t)
	b.listen(t, 1)
	a.send(t, rawPacket{dst: rawMAC, payload: 64}.frame(), 18, 0)
	wc := b.next(t)
	after := must(b.dev.QueryClock())(t)
	if wc.Timestamp < before || wc.Timestamp > after {
		t.Errorf("received at %d, between %d and %d", wc.Timestamp, before, after)
	}
	const slack = time.Minute // the kernel does not synchronize the two clocks
	if at := must(b.dev.WallClock(wc.Timestamp))(t); time.Since(at).Abs() > slack {
		t.Errorf("received at %v, now it is %v", at, time.Now())
	}
}

// TestDeviceRawPacketRights checks that the error of a process without CAP_NET_RAW names the
// capability.
func TestDeviceRawPacketRights(t *testing.T) {
	if os.Geteuid() == 0 {
		newRawTap(t, 0)
	}
	if !asUser(t) {
		return
	}
	p := newTap(t)
	_, err := p.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: p.cq, MaxSendWR: 1})
	if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Errorf("as an ordinary user: %v", err)
	}
}

// TestDeviceWQ moves WQs through their states, and checks that they cannot be closed while other
// objects use them.
func TestDeviceWQ(t *testing.T) {
	p := newTap(t)
	wq, err := ether.CreateWQ(p.pd, ether.WQConfig{CQ: p.cq, MaxWR: 8, MaxSGE: 2})
	hasRaw(t, p.dev, err)
	check(t, wq.Ready())
	for i := range 8 {
		must(wq.PostRecv(uverbs.RecvWR{WRID: uint64(i), SGL: []uverbs.SGE{p.mr.SGE(0, 100)}}))(t)
	}
	if _, err := wq.PostRecv(uverbs.RecvWR{}); err != uverbs.ErrQueueFull {
		t.Errorf("a full WQ: %v", err)
	}
	check(t, wq.Modify(ether.WQAttr{State: ether.WQStateErr}, ether.WQMaskState))
	for i := range 8 {
		var wcs [1]uverbs.WC
		must(p.cq.PollWait(p.ctx, wcs[:]))(t)
		if wc := wcs[0]; wc.WRID != uint64(i) || wc.Status != uverbs.WCWRFlushErr || wc.QPNum != wq.WQN() {
			t.Errorf("flushed: %+v", wc)
		}
	}
	if err := wq.Modify(ether.WQAttr{State: ether.WQStateRdy}, ether.WQMaskState); !errors.Is(err, uverbs.ErrInvalid) {
		t.Logf("ERR to RDY: %v", err) // devices may accept it
	}
	check(t, wq.Modify(ether.WQAttr{State: ether.WQStateReset}, ether.WQMaskState))
	check(t, wq.Ready())
	must(wq.PostRecv(uverbs.RecvWR{WRID: 9}))(t)
	table := must(ether.CreateRWQIndTable(p.dev, wq, wq))(t)
	if err := wq.Close(); !errors.Is(err, uverbs.ErrBusy) {
		t.Errorf("Close under a table: %v", err)
	}
	check(t, table.Close())
	check(t, wq.Close())
}
