package mlx5

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// tcpHeaders returns the headers of a TCP segment with sequence number 1000: Ethernet with or without a VLAN tag, IPv4
// or IPv6, and TCP with options.
func tcpHeaders(dst [6]byte, vlan, v6 bool, options int) (headers []byte, ip, tcp int) {
	b := append(append([]byte{}, dst[:]...), 2, 0, 0, 0, 0, 9)
	if vlan {
		b = append(b, 0x81, 0, 0x61, 0x23)
	}
	if ip = len(b) + 2; v6 {
		b = append(b, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 6, 64)
		b = append(append(b, make([]byte, 31)...), 7)
	} else {
		b = append(b, 8, 0, 0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	}
	tcp = len(b)
	b = append(b, 0, 7, 0, 8, 0, 0, 1000>>8, 1000&0xff, 0, 0, 0, 5, byte(20+options)<<2, 0x18, 1, 0, 0, 0, 0, 0)
	return append(b, make([]byte, options)...), ip, tcp
}

// newTSOWire returns a wire whose QP has room for long headers, and its place.
func newTSOWire(t *testing.T) (*wire, *place) {
	w := newWire(t, inlineKit(2), uverbs.QPConfig{MaxTSOHeader: 98})
	good(ether.CreateFlow(w.qp, ether.FlowAttr{Specs: []ether.FlowSpec{toMAC(softMAC)}}))(t)
	return w, stand(t, w.desk, w.qp)
}

// TestTSO checks the bytes of TSOs at every place of the ring, and the frames that arrive.
func TestTSO(t *testing.T) {
	w, p := newTSOWire(t)
	kinds := []struct {
		vlan, v6 bool
		options  int
	}{{false, false, 0}, {true, false, 12}, {false, true, 0}, {true, true, 20}, {false, false, 40}}
	for n, blocks := 0, int(p.sq.mask)+1; len(p.laps["TSO"]) < blocks; n++ {
		if n == 20*blocks {
			t.Fatalf("of %d blocks, requests begin at %v", blocks, p.laps)
		}
		k := kinds[n%len(kinds)]
		headers, ip, tcp := tcpHeaders(softMAC, k.vlan, k.v6, k.options)
		for i, length := range []int{1, 500, 501, 3000} {
			w.sendStream(p, headers, ip, tcp, k.v6, (n+i)%2 == 0, length)
		}
	}
}

// sendStream sends a TSO, which requests checksums or does not, and checks what arrives.
func (w *wire) sendStream(p *place, headers []byte, ip, tcp int, v6, sums bool, length int) {
	p.Helper()
	const mss, to, room = 500, 8192, 2048
	data := w.mr.Bytes()[:length]
	for i := range data {
		data[i] = byte(i*7 + p.n)
	}
	frames := (length + mss - 1) / mss
	for i := range frames {
		good(w.qp.PostRecv(uverbs.RecvWR{WRID: uint64(i), SGL: []uverbs.SGE{w.mr.SGE(to+i*room, room)}}))(p.T)
	}
	first := (length + 1) / 2
	wr := uverbs.SendWR{WRID: 1 << 32, Opcode: uverbs.OpTSO, Flags: uverbs.Signaled, Inline: headers,
		MSS: mss, SGL: []uverbs.SGE{w.mr.SGE(0, first), w.mr.SGE(first, length-first)}}
	if sums {
		wr.Flags |= ether.IPCsum
	}
	p.post(wr, &wr, nil)
	for i := range frames {
		r := one(p.T, w.cq)
		part := data[i*mss : min((i+1)*mss, length)]
		if r.Err() != nil || r.WRID != uint64(i) || int(r.ByteLen) != len(headers)+len(part) ||
			!v6 && r.Flags&ether.WCIPCsumOK != 0 != sums {
			p.Fatalf("frame %d of %d: %+v", i, frames, r)
		}
		want := bytes.Clone(headers)
		frame := w.mr.Bytes()[to+i*room:][:r.ByteLen]
		if v6 {
			binary.BigEndian.PutUint16(want[ip+4:], uint16(len(frame)-ip-40))
		} else {
			binary.BigEndian.PutUint16(want[ip+2:], uint16(len(frame)-ip))
			want[ip+5] += byte(i) // identification
		}
		binary.BigEndian.PutUint32(want[tcp+4:], uint32(1000+i*mss))
		if i < frames-1 {
			want[tcp+13] &^= 8 // PSH
		}
		if sums {
			copy(want[tcp+16:tcp+18], frame[tcp+16:])
		}
		if sums && !v6 {
			copy(want[ip+10:ip+12], frame[ip+10:])
		}
		if want = append(want, part...); !bytes.Equal(frame, want) {
			p.Fatalf("frame %d of %d is\n%x, want\n%x", i, frames, frame, want)
		}
	}
}

// TestTSOMistakes checks that no part of a TSO that the QP or the device cannot send is posted.
func TestTSOMistakes(t *testing.T) {
	w, _ := newTSOWire(t)
	headers, _, _ := tcpHeaders(softMAC, false, false, 0)
	sgl := []uverbs.SGE{w.mr.SGE(0, 100)}
	big := good(w.pd.Alloc(1<<16+1, 0))(t)
	defer func() { check(t, big.Close()) }()
	for name, wr := range map[string]uverbs.SendWR{
		"no MSS":        {Inline: headers, SGL: sgl},
		"no headers":    {MSS: 500, SGL: sgl},
		"short headers": {MSS: 500, SGL: sgl, Inline: headers[:13]},
		"long headers":  {MSS: 500, SGL: sgl, Inline: make([]byte, 99)},
		"long data":     {MSS: 500, SGL: []uverbs.SGE{big.SGE(0, 1<<16+1)}, Inline: headers},
	} {
		wr.Opcode = uverbs.OpTSO
		if n, err := w.qp.PostSend(wr); n != 0 || err != uverbs.ErrTSO {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	outside := uverbs.SendWR{Opcode: uverbs.OpTSO, MSS: 500, Inline: headers, SGL: []uverbs.SGE{w.mr.SGE(w.mr.Len(), 1)}}
	if n, err := w.qp.PostSend(outside); n != 0 || err != uverbs.ErrRange {
		t.Errorf("an SGE outside its MR: %d, %v", n, err)
	}
	b := w.qp.StartSend()
	b.TSO(1, 0, headers, 500)
	b.Inline(headers)
	if err := b.Submit(); err != uverbs.ErrMalformed {
		t.Errorf("headers twice: %v", err)
	}
	if n := w.qp.SendsOutstanding(); n != 0 {
		t.Errorf("%d requests are out", n)
	}
}

// TestTSOLimits checks the maximum length of headers, and devices whose raw packet QPs cannot post TSOs.
func TestTSOLimits(t *testing.T) {
	w := newWire(t, inlineKit(2), uverbs.QPConfig{})
	const most = 944
	cfg := uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: w.cq, MaxSendWR: 1, MaxTSOHeader: most}
	qp := good(w.pd.CreateQP(cfg))(t)
	check(t, qp.Ready())
	// The device parses the headers and finds that they are not all of the request's.
	good(qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpTSO, MSS: 500, Inline: make([]byte, most),
		SGL: []uverbs.SGE{w.mr.SGE(0, 1000)}}))(t)
	if r := one(t, w.cq); r.Status != uverbs.WCLocQPOpErr {
		t.Errorf("a TSO with the longest headers, which are zeros: %v", r.Err())
	}
	cfg.MaxTSOHeader++
	_, err := w.pd.CreateQP(cfg)
	if want := "MaxTSOHeader is 945, the device accepts 944"; !errors.Is(err, uverbs.ErrInvalid) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("headers longer than a request: %v, want %q", err, want)
	}
	cfg.MaxTSOHeader = 64
	for name, set := range map[string]func(){
		"only other QPs have TSO":      func() { w.s.TSOTypes = ^uint32(1 << uverbs.RawPacket) },
		"a device without raw packets": func() { w.s.Raw = false },
	} {
		w.s.Set(set)
		if _, err := w.pd.CreateQP(cfg); !errors.Is(err, uverbs.ErrNotSupported) || !strings.Contains(err.Error(), "TCP") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTSOAllocs checks that TSOs are posted without allocations.
func TestTSOAllocs(t *testing.T) {
	w, _ := newTSOWire(t)
	headers, _, _ := tcpHeaders(softMAC, false, false, 0)
	w.s.deferred, w.s.stores = true, make([]store, 0, 16) // the device allocates
	n := testing.AllocsPerRun(1, func() {
		b := w.qp.StartSend()
		b.TSO(1, uverbs.Signaled, headers, 500)
		b.SGE(w.mr.SGE(0, 1000))
		err := b.Submit()
		if _, err2 := w.qp.PostSend(uverbs.SendWR{WRID: 2, Opcode: uverbs.OpTSO, Flags: uverbs.Signaled, Inline: headers,
			MSS: 500, SGL: []uverbs.SGE{w.mr.SGE(0, 1000)}}); err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
	w.s.work()
	poll(t, w.cq, 1, 2, 1, 2)
}
