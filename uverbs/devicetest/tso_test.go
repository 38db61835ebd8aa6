package devicetest

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// TestDeviceTSO sends parts of a TCP stream with one request each, which the device divides into frames, and checks the
// frames that arrive.
func TestDeviceTSO(t *testing.T) {
	a := newTap(t)
	var err error
	a.qp, err = a.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: a.cq, MaxSendWR: 4, MaxSendSGE: 2,
		MaxTSOHeader: 74})
	hasRaw(t, a.dev, err)
	check(t, a.qp.Ready())
	if caps := must(ether.QueryDevice(a.dev))(t).TSO; caps.MaxSize < 1<<13 || caps.SupportedQPTs>>uverbs.RawPacket&1 == 0 {
		t.Errorf("a QP for TSO was created, but the device reports %+v", caps)
	}
	b := newRawTap(t, 0)
	must(ether.CreateFlow(b.qp, ether.FlowAttr{Specs: []ether.FlowSpec{toRawMAC(rawMAC)}}))(t)
	flags := uverbs.Signaled
	if must(a.dev.QueryDevice())(t).CapFlags&uverbs.DeviceRawIPCsum != 0 {
		flags |= ether.IPCsum
	}
	for _, v6 := range []bool{false, true} {
		for _, length := range []int{1, 700, 701, 3000} {
			for _, inBatch := range []bool{false, true} {
				stream{a, b, v6, flags, length}.send(t, inBatch)
			}
		}
	}
}

// A stream is a part of a TCP stream from a to b.
type stream struct {
	a, b   *tap
	v6     bool
	flags  uverbs.SendFlags
	length int
}

const segmentSize = 700 // the MSS

// headers returns the headers of the stream, and where those of IP and TCP begin.
func (s stream) headers() (b []byte, ip, tcp int) {
	b, ip, tcp = rawPacket{dst: rawMAC, v6: s.v6, tcp: true, from: 1}.frame(), 14, 34
	if s.v6 {
		tcp = 54
	}
	b[tcp+13] = 0x18 // PSH, ACK
	return b, ip, tcp
}

func (s stream) send(t *testing.T, inBatch bool) {
	t.Helper()
	headers, ip, tcp := s.headers()
	data := s.a.mr.Bytes()[:s.length]
	for i := range data {
		data[i] = byte(i * 7)
	}
	frames := (s.length + segmentSize - 1) / segmentSize
	for i := range frames {
		receive(t, s.b.qp, uverbs.RecvWR{WRID: uint64(i), SGL: []uverbs.SGE{s.b.mr.SGE(rawTo+i*rawRoom, rawRoom)}})
	}
	first := (s.length + 1) / 2
	sgl := [2]uverbs.SGE{s.a.mr.SGE(0, first), s.a.mr.SGE(first, s.length-first)}
	if inBatch {
		batch := s.a.qp.StartSend()
		batch.TSO(1, s.flags, headers, segmentSize)
		for _, g := range sgl {
			batch.SGE(g)
		}
		check(t, batch.Submit())
	} else {
		post(t, s.a.qp, uverbs.SendWR{WRID: 1, Opcode: uverbs.OpTSO, Flags: s.flags, Inline: headers, MSS: segmentSize,
			SGL: sgl[:]})
	}
	if wc := s.a.next(t); wc.Opcode != uverbs.WCTSO || wc.WRID != 1 || wc.QPNum != s.a.qp.QPN() {
		t.Fatalf("sent: %+v", wc)
	}
	for i := range frames {
		wc := s.b.next(t)
		part := data[i*segmentSize : min((i+1)*segmentSize, s.length)]
		if wc.WRID != uint64(i) || int(wc.ByteLen) != len(headers)+len(part) {
			t.Fatalf("frame %d of %d, with %d bytes of data: %+v", i, frames, len(part), wc)
		}
		got := s.b.mr.Bytes()[rawTo+i*rawRoom:][:wc.ByteLen]
		if s.flags&ether.IPCsum != 0 {
			s.checkSums(t, got[ip:], tcp-ip)
		}
		want := append(append([]byte{}, headers...), part...)
		binary.BigEndian.PutUint32(want[tcp+4:], binary.BigEndian.Uint32(headers[tcp+4:])+uint32(i*segmentSize))
		if i < frames-1 {
			want[tcp+13] &^= 8 // PSH
		}
		copy(want[tcp+16:tcp+18], got[tcp+16:]) // its checksum
		if s.v6 {
			binary.BigEndian.PutUint16(want[ip+4:], uint16(len(want)-tcp))
		} else {
			binary.BigEndian.PutUint16(want[ip+2:], uint16(len(want)-ip))
			copy(want[ip+4:ip+6], got[ip+4:])    // its identification
			copy(want[ip+10:ip+12], got[ip+10:]) // and checksum
		}
		same(t, got, want)
	}
}

// checkSums checks the checksums of a packet, in which TCP begins at tcp.
func (s stream) checkSums(t *testing.T, packet []byte, tcp int) {
	t.Helper()
	addrs := packet[12:20]
	if s.v6 {
		addrs = packet[8:40]
	} else if sum := onesSum(packet[:tcp]); sum != 0xffff {
		t.Errorf("with its checksum, the header of IPv4 has the sum %#x", sum)
	}
	pseudo := binary.BigEndian.AppendUint16(append([]byte{}, addrs...), uint16(len(packet)-tcp))
	pseudo = append(append(pseudo, 0, 6), packet[tcp:]...)
	if len(pseudo)%2 != 0 {
		pseudo = append(pseudo, 0)
	}
	if sum := onesSum(pseudo); sum != 0xffff {
		t.Errorf("with its checksum, the segment has the sum %#x", sum)
	}
}
