package devicetest

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

const qkey = 0x11111111

// A station is a UD QP in RTS with its own CQ and buffer.
type station struct {
	end
	ctx context.Context
}

// newStation creates a UD QP whose address is g, or the best one if g.Port is zero.
func newStation(t testing.TB, pd *uverbs.PD, g uverbs.GIDEntry, adjust func(*uverbs.QPConfig)) *station {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	s := &station{ctx: ctx}
	s.cq = must(pd.Context().CreateCQ(uverbs.CQConfig{Entries: 256}))(t)
	cfg := uverbs.QPConfig{Type: uverbs.UD, SendCQ: s.cq, MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4,
		MaxInline: 128, QKey: qkey}
	if g.Port != 0 {
		cfg.GID = &g
	}
	if adjust != nil {
		adjust(&cfg)
	}
	s.qp = typedQP(t, pd, cfg)
	s.mr = must(pd.Alloc(bufSize, allAccess))(t)
	check(t, s.qp.Ready())
	return s
}

// reach creates an AH for datagrams from s to the other station.
func (s *station) reach(t testing.TB, other *station) *uverbs.AH {
	t.Helper()
	attr := must(s.qp.AHAttr(endpoint(t, other.qp)))(t)
	return must(s.qp.PD().CreateAH(attr))(t)
}

// slotSize is the size of a receive buffer: a GRH and a packet.
const slotSize = uverbs.GRHLen + 4096

func (s *station) slot(n int) uverbs.SGE { return s.mr.SGE(n*slotSize, slotSize) }

func (s *station) listen(t testing.TB, n int) {
	t.Helper()
	receive(t, s.qp, uverbs.RecvWR{WRID: uint64(n), SGL: []uverbs.SGE{s.slot(n)}})
}

// datagram waits for the receive into slot n, and returns its contents.
func (s *station) datagram(t testing.TB, n int) (wc uverbs.WC, grh, data []byte) {
	t.Helper()
	wc = s.success(t, uint64(n), uverbs.WCRecv)
	buf := s.mr.Bytes()[n*slotSize:]
	return wc, buf[:uverbs.GRHLen], buf[uverbs.GRHLen:wc.ByteLen]
}

func (s *station) success(t testing.TB, wrID uint64, op uverbs.WCOpcode) uverbs.WC {
	t.Helper()
	return (&loop{ctx: s.ctx}).success(t, s.end, wrID, op)
}

// silent checks that nothing completes on s. It sends s another datagram and waits for it:
// earlier ones would have completed before.
func (s *station) silent(t testing.TB, slot int) {
	t.Helper()
	s.listen(t, slot)
	post(t, s.qp, uverbs.SendWR{WRID: 99, Opcode: uverbs.OpSend, AH: s.reach(t, s), QPN: s.qp.QPN(), QKey: qkey,
		Inline: []byte("self")})
	if _, _, data := s.datagram(t, slot); string(data) != "self" {
		t.Fatalf("%q arrived", data)
	}
}

// eachGID runs a test with two stations on every RoCE v2 GID of the device.
func eachGID(t *testing.T, run func(t *testing.T, a, b *station)) {
	dev := openDevice(t)
	needEndpoints(t, dev)
	pd := must(dev.AllocPD())(t)
	families := map[bool]int{}
	for _, g := range must(dev.RankGIDs(0, netip.Addr{}))(t) {
		if g.Score < 0 {
			continue
		}
		families[g.GID.Addr().Is4()]++
		t.Run(g.GID.String(), func(t *testing.T) {
			run(t, newStation(t, pd, g.GIDEntry, nil), newStation(t, pd, g.GIDEntry, nil))
		})
	}
	if !onInfiniBand(t, dev) && (families[true] == 0 || families[false] == 0) {
		t.Errorf("%d IPv4 and %d IPv6 GIDs: give the device one of each", families[true], families[false])
	}
}

func onInfiniBand(t testing.TB, dev *uverbs.Context) bool {
	t.Helper()
	return must(dev.QueryPort(1))(t).LinkLayer == uverbs.LinkInfiniBand
}

// grhFlag returns the flag of completions of datagrams that have a GRH: on InfiniBand, those to the
// same subnet have none.
func grhFlag(t testing.TB, s *station) uverbs.WCFlags {
	t.Helper()
	if onInfiniBand(t, s.qp.Context()) {
		return 0
	}
	return uverbs.WCGRH
}

func TestDeviceUDSend(t *testing.T) {
	eachGID(t, func(t *testing.T, a, b *station) {
		ah, flags := a.reach(t, b), grhFlag(t, a)
		mtu := must(a.qp.Context().QueryPort(1))(t).ActiveMTU.Bytes()
		for _, n := range []int{0, 1, 40, 1000, mtu} {
			a.fill(byte(n))
			b.listen(t, 0)
			post(t, a.qp, uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend, Flags: uverbs.Signaled, AH: ah, QPN: b.qp.QPN(),
				QKey: qkey, SGL: []uverbs.SGE{a.mr.SGE(0, n/2), a.mr.SGE(n/2, n-n/2)}})
			a.success(t, 2, uverbs.WCSend)
			wc, _, data := b.datagram(t, 0)
			if int(wc.ByteLen) != uverbs.GRHLen+n || wc.SrcQP != a.qp.QPN() || wc.Flags != flags || wc.PKeyIndex != 0 {
				t.Fatalf("size %d: received %+v from QP %d", n, wc, a.qp.QPN())
			}
			same(t, data, a.mr.Bytes()[:n])
		}
	})
}

// TestDeviceUDReply replies with immediate data to a datagram, at the address in its GRH.
func TestDeviceUDReply(t *testing.T) {
	eachGID(t, func(t *testing.T, a, b *station) {
		b.listen(t, 0)
		a.listen(t, 0)
		batch := a.qp.StartSend()
		batch.SendImm(1, uverbs.Signaled, 0x01020304)
		batch.UDAddr(a.reach(t, b), b.qp.QPN(), qkey)
		batch.Inline([]byte("question"))
		check(t, batch.Submit())
		a.success(t, 1, uverbs.WCSend)
		wc, grh, data := b.datagram(t, 0)
		if string(data) != "question" || wc.Imm != 0x01020304 || wc.Flags != grhFlag(t, a)|uverbs.WCWithImm {
			t.Fatalf("%q arrived: %+v", data, wc)
		}
		attr := must(b.qp.Context().AHAttrFromWC(1, &wc, grh))(t)
		ea, eb := endpoint(t, a.qp), endpoint(t, b.qp)
		if attr.IsGlobal != (grhFlag(t, a) != 0) || attr.IsGlobal && attr.DGID != ea.GID || attr.DLID != ea.LID ||
			attr.Port != 1 {
			t.Fatalf("the sender's address is %+v, want %+v", attr, ea)
		}
		for _, e := range must(b.qp.Context().GIDs(1))(t) {
			if e.Index == int(attr.SGIDIndex) && e.GID != eb.GID {
				t.Fatalf("the reply would leave from %v, want %v", e.GID, eb.GID)
			}
		}
		back := must(b.qp.PD().CreateAHFromWC(1, &wc, grh))(t)
		post(t, b.qp, uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend, Flags: uverbs.Signaled, AH: back, QPN: wc.SrcQP,
			QKey: qkey, Inline: []byte("reply")})
		b.success(t, 2, uverbs.WCSend)
		if wc, _, data := a.datagram(t, 0); string(data) != "reply" || wc.SrcQP != b.qp.QPN() {
			t.Fatalf("%q arrived: %+v", data, wc)
		}
		check(t, back.Close())
		check(t, back.Close())
	})
}

// pair creates two stations on the device's best GID.
func pair(t *testing.T, adjust func(*uverbs.QPConfig)) (a, b *station) {
	t.Helper()
	pd := must(openDevice(t).AllocPD())(t)
	return newStation(t, pd, uverbs.GIDEntry{}, adjust), newStation(t, pd, uverbs.GIDEntry{}, adjust)
}

// TestDeviceUDQKey checks that a datagram with another Q_Key is dropped.
func TestDeviceUDQKey(t *testing.T) {
	a, b := pair(t, nil)
	ah := a.reach(t, b)
	to := func(key uint32) uverbs.SendWR {
		return uverbs.SendWR{WRID: uint64(key), Opcode: uverbs.OpSend, Flags: uverbs.Signaled, AH: ah, QPN: b.qp.QPN(),
			QKey: key, Inline: []byte("x")}
	}
	post(t, a.qp, to(qkey+1))
	a.success(t, qkey+1, uverbs.WCSend) // it has been sent
	b.silent(t, 1)
	check(t, b.qp.Modify(uverbs.QPAttr{QKey: qkey + 1}, uverbs.MaskQKey))
	b.listen(t, 0)
	post(t, a.qp, to(qkey+1))
	b.datagram(t, 0)
	if a := must(b.qp.Query(uverbs.MaskQKey))(t); a.QKey != qkey+1 {
		t.Errorf("the QP's QKey is %#x", a.QKey)
	}
}

// TestDeviceUDBadRequests posts requests that are refused at once, each after a valid request
// that completes.
func TestDeviceUDBadRequests(t *testing.T) {
	a, b := pair(t, nil)
	ah, closed := a.reach(t, b), a.reach(t, b)
	check(t, closed.Close())
	other := must(a.qp.Context().AllocPD())(t)
	foreign := must(other.CreateAH(must(a.qp.AHAttr(endpoint(t, b.qp)))(t)))(t)
	dev := openDevice(t)
	strange := must(must(dev.AllocPD())(t).CreateAH(must(a.qp.AHAttr(endpoint(t, b.qp)))(t)))(t)
	good := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, AH: ah, QPN: b.qp.QPN(), QKey: qkey,
		SGL: []uverbs.SGE{a.mr.SGE(0, 8)}}
	change := func(f func(*uverbs.SendWR)) uverbs.SendWR {
		wr := good
		f(&wr)
		return wr
	}
	mtu := must(a.qp.Context().QueryPort(1))(t).ActiveMTU.Bytes()
	for i, test := range []struct {
		name string
		wr   uverbs.SendWR
		want error
	}{
		{"no AH", change(func(w *uverbs.SendWR) { w.AH = nil }), uverbs.ErrNoAH},
		{"closed AH", change(func(w *uverbs.SendWR) { w.AH = closed }), uverbs.ErrClosed},
		{"AH of another PD", change(func(w *uverbs.SendWR) { w.AH = foreign }), uverbs.ErrForeignAH},
		{"AH of another Context", change(func(w *uverbs.SendWR) { w.AH = strange }), uverbs.ErrForeignAH},
		{"over the MTU", change(func(w *uverbs.SendWR) { w.SGL = []uverbs.SGE{a.mr.SGE(0, mtu+1)} }), uverbs.ErrTooLong},
		{"WRITE", change(func(w *uverbs.SendWR) { w.Opcode = uverbs.OpWrite }), uverbs.ErrQPType},
		{"WRITE_IMM", change(func(w *uverbs.SendWR) { w.Opcode = uverbs.OpWriteImm }), uverbs.ErrQPType},
		{"READ", change(func(w *uverbs.SendWR) { w.Opcode = uverbs.OpRead }), uverbs.ErrQPType},
		{"range", change(func(w *uverbs.SendWR) { w.SGL = []uverbs.SGE{a.mr.SGE(1, bufSize)} }), uverbs.ErrRange},
	} {
		t.Run(test.name, func(t *testing.T) {
			b.listen(t, 0)
			good.WRID = uint64(i)
			if n, err := a.qp.PostSend(good, test.wr, good); n != 1 || !errors.Is(err, test.want) {
				t.Fatalf("PostSend = %d, %v; want 1, %v", n, err, test.want)
			}
			a.success(t, uint64(i), uverbs.WCSend)
			b.datagram(t, 0)
			if test.wr.Opcode != uverbs.OpSend {
				return
			}
			batch := a.qp.StartSend()
			batch.Send(1, uverbs.Signaled)
			batch.UDAddr(ah, b.qp.QPN(), qkey)
			batch.Send(2, uverbs.Signaled)
			if test.wr.AH != nil {
				batch.UDAddr(test.wr.AH, b.qp.QPN(), qkey)
			}
			batch.SGE(test.wr.SGL[0])
			if err := batch.Submit(); !errors.Is(err, test.want) {
				t.Fatalf("Submit: %v, want %v", err, test.want)
			}
		})
	}
	b.silent(t, 1)
}

// TestDeviceAHExplained checks the errors of CreateAH with unreachable addresses.
func TestDeviceAHExplained(t *testing.T) {
	a, b := pair(t, nil)
	good := must(a.qp.AHAttr(endpoint(t, b.qp)))(t)
	local6 := must(a.qp.Context().SelectGID(0, netip.MustParseAddr("fe80::1")))(t)
	for name, c := range map[string]struct {
		change func(*uverbs.AHAttr)
		want   error
	}{
		"Port is 9":        {func(a *uverbs.AHAttr) { a.Port = 9 }, unix.EINVAL},
		"IsGlobal":         {func(a *uverbs.AHAttr) { a.IsGlobal = false }, unix.EINVAL},
		"SGIDIndex is 200": {func(a *uverbs.AHAttr) { a.SGIDIndex = 200 }, nil},
		"no route": {func(a *uverbs.AHAttr) {
			a.SGIDIndex, a.DGID = uint8(local6.Index), uverbs.GIDFromAddr(netip.MustParseAddr("2001:db8::77"))
		}, unix.ENETUNREACH},
	} {
		attr := good
		c.change(&attr)
		_, err := a.qp.PD().CreateAH(attr)
		if err == nil || !strings.Contains(err.Error(), name) || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("want %q, %v: %v", name, c.want, err)
		}
	}
}

// TestDeviceUDMTU raises the MTU of the network interface under a QP, and checks that messages can
// be sent that were too long before.
func TestDeviceUDMTU(t *testing.T) {
	a, b := pair(t, nil)
	ah := a.reach(t, b)
	name := must(a.qp.Context().SelectGID(0, netip.Addr{}))(t).Netdev
	a.fill(7)
	wr := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, AH: ah, QPN: b.qp.QPN(), QKey: qkey,
		SGL: []uverbs.SGE{a.mr.SGE(0, 4096)}}
	if n, err := a.qp.PostSend(wr); n != 0 || !errors.Is(err, uverbs.ErrTooLong) || !errors.Is(err, unix.EMSGSIZE) {
		t.Fatalf("PostSend = %d, %v", n, err)
	}
	was := setMTU(t, name, 9000)
	t.Cleanup(func() { setMTU(t, name, was) })
	b.listen(t, 0)
	post(t, a.qp, wr)
	a.success(t, 0, uverbs.WCSend)
	if _, _, data := b.datagram(t, 0); len(data) != 4096 {
		t.Fatalf("%d bytes arrived", len(data))
	}
}

// TestDeviceUDShortReceive checks that rxe drops a datagram that does not fit the next receive, and
// uses the receive for the next datagram that fits. On Linux 6.1 the receive fails, and with it the
// QP.
func TestDeviceUDShortReceive(t *testing.T) {
	a, b := pair(t, nil)
	ah := a.reach(t, b)
	to := func(n int) uverbs.SendWR {
		return uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, AH: ah, QPN: b.qp.QPN(), QKey: qkey,
			Inline: make([]byte, n)}
	}
	receive(t, b.qp, uverbs.RecvWR{WRID: 5, SGL: []uverbs.SGE{b.mr.SGE(0, uverbs.GRHLen+7)}})
	post(t, a.qp, to(8), to(7))
	a.success(t, 0, uverbs.WCSend)
	a.success(t, 0, uverbs.WCSend)
	var wcs [1]uverbs.WC
	must(b.cq.PollWait(b.ctx, wcs[:]))(t)
	if err := wcs[0].Err(); errors.Is(err, uverbs.WCLocQPOpErr) || errors.Is(err, uverbs.WCLocLenErr) {
		if s := must(b.qp.Query(uverbs.MaskState))(t).State; s != uverbs.StateErr {
			t.Errorf("the QP is in %v", s)
		}
		features.Missing(t, features.UDShortRecv, err)
	}
	if wc := wcs[0]; wc.WRID != 5 || wc.Err() != nil || wc.ByteLen != uverbs.GRHLen+7 {
		t.Fatalf("completion %+v: %v", wc, wc.Err())
	}
}
