package devicetest

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A scene is a loop in which an event is provoked. b uses an SRQ, and a's completions go to a
// CQ with one entry.
type scene struct {
	*loop
	srq   *uverbs.SRQ
	small *uverbs.CQ
	mark  end // a separate QP, whose event ends a scene: see finish
}

func newScene(t *testing.T) *scene {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	s := &scene{loop: &loop{ctx: ctx, dev: openDevice(t)}}
	s.pd = must(s.dev.AllocPD())(t)
	s.srq = must(s.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 7}))(t)
	s.small = must(s.dev.CreateCQ(uverbs.CQConfig{Entries: 1}))(t)
	s.a = s.newEnd(t, func(c *uverbs.QPConfig) { c.SendCQ = s.small })
	s.b = s.newEnd(t, func(c *uverbs.QPConfig) { c.SRQ = s.srq })
	s.mark = s.newEnd(t, func(c *uverbs.QPConfig) { c.SRQ = must(s.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 1}))(t) })
	check(t, s.a.qp.Connect(endpoint(t, s.b.qp)))
	check(t, s.b.qp.Connect(endpoint(t, s.a.qp)))
	check(t, s.mark.qp.Connect(endpoint(t, s.mark.qp)))
	return s
}

// An incident provokes an event, and reports whether an event of the right type is the expected
// one. provoke is nil if the event cannot be provoked.
type incident struct {
	provoke func(*testing.T, *scene)
	right   func(*scene, uverbs.AsyncEvent) bool
}

func ofA(s *scene, e uverbs.AsyncEvent) bool    { return e.QP == s.a.qp && e.CQ == nil && e.SRQ == nil }
func ofB(s *scene, e uverbs.AsyncEvent) bool    { return e.QP == s.b.qp }
func ofPort(_ *scene, e uverbs.AsyncEvent) bool { return e.Port == 1 && e.QP == nil }

// incidents has an entry for every type of event.
var incidents = map[uverbs.EventType]incident{
	uverbs.EventCQErr: {func(t *testing.T, s *scene) {
		for range 4 {
			post(t, s.a.qp, s.writeTo(s.b.mr.RKey()))
		}
	}, func(s *scene, e uverbs.AsyncEvent) bool { return e.CQ == s.small && e.QP == nil }},
	uverbs.EventQPFatal:  {breakSend, ofA},
	uverbs.EventQPReqErr: {breakSend, ofA},
	uverbs.EventQPAccessErr: {func(t *testing.T, s *scene) {
		post(t, s.a.qp, s.writeTo(s.b.mr.RKey()+0x100))
		s.settled(t)
	}, ofB},
	uverbs.EventCommEst: {reachRTR, ofB},
	uverbs.EventSQDrained: {func(t *testing.T, s *scene) {
		toSQD(t, s.a.qp)
	}, ofA},
	uverbs.EventPathMig:     {},
	uverbs.EventPathMigErr:  {},
	uverbs.EventDeviceFatal: {},
	uverbs.EventPortActive:  {func(t *testing.T, s *scene) { s.bounce(t) }, ofPort},
	uverbs.EventPortErr:     {func(t *testing.T, s *scene) { s.bounce(t) }, ofPort},
	uverbs.EventLIDChange:   {},
	uverbs.EventPKeyChange:  {},
	uverbs.EventSMChange:    {},
	uverbs.EventSRQErr: {func(t *testing.T, s *scene) {
		provide(t, s.srq, uverbs.RecvWR{SGL: []uverbs.SGE{{Addr: 1, Length: 8, LKey: ^uint32(0)}}})
		post(t, s.a.qp, uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("12345678")})
		s.settled(t)
	}, func(s *scene, e uverbs.AsyncEvent) bool { return e.SRQ == s.srq }},
	uverbs.EventSRQLimitReached: {func(t *testing.T, s *scene) {
		provide(t, s.srq, make([]uverbs.RecvWR, 2)...)
		check(t, s.srq.Modify(uverbs.SRQAttr{Limit: 2}, uverbs.SRQMaskLimit))
		post(t, s.a.qp, uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled})
	}, func(s *scene, e uverbs.AsyncEvent) bool { return e.SRQ == s.srq && e.QP == nil }},
	uverbs.EventQPLastWQEReached: {func(t *testing.T, s *scene) {
		check(t, s.b.qp.Modify(uverbs.QPAttr{State: uverbs.StateErr}, uverbs.MaskState))
	}, ofB},
	uverbs.EventClientReregister: {},
	uverbs.EventGIDChange: {func(t *testing.T, s *scene) {
		alias(t, s.netdev(t)+":9", netip.MustParseAddr("10.99.99.99"))
	}, ofPort},
	uverbs.EventWQFatal:     {},
	uverbs.EventSpeedChange: {func(t *testing.T, s *scene) { s.bounce(t) }, ofPort},
}

func (s *scene) writeTo(rkey uint32) uverbs.SendWR {
	return uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: []uverbs.SGE{s.a.mr.SGE(0, 8)},
		RemoteAddr: s.b.mr.Addr(), RKey: rkey}
}

// breakSend makes a send fail locally.
func breakSend(t *testing.T, s *scene) {
	mr := must(s.pd.Alloc(4096, 0))(t)
	sge := mr.SGE(0, 8)
	check(t, mr.Close())
	post(t, s.a.qp, uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: []uverbs.SGE{sge},
		RemoteAddr: s.b.mr.Addr(), RKey: s.b.mr.RKey()})
	if err := s.settled(t); err == nil {
		t.Fatal("a send from memory that is gone succeeds")
	}
}

// settled waits until a's latest request has completed, and returns its status.
func (s *scene) settled(t *testing.T) error {
	t.Helper()
	var wcs [1]uverbs.WC
	must(s.small.PollWait(s.ctx, wcs[:]))(t)
	return wcs[0].Err()
}

// reachRTR sends a message to a QP in RTR.
func reachRTR(t *testing.T, s *scene) {
	rtr := must(s.b.qp.Query(uverbs.MaskAV | uverbs.MaskPathMTU | uverbs.MaskDestQPN | uverbs.MaskRQPSN |
		uverbs.MaskMaxDestRdAtomic | uverbs.MaskMinRNRTimer | uverbs.MaskAccess | uverbs.MaskPort))(t)
	for _, to := range []uverbs.QPState{uverbs.StateReset, uverbs.StateInit, uverbs.StateRTR} {
		mask := map[uverbs.QPState]uverbs.QPMask{
			uverbs.StateInit: uverbs.MaskPKeyIndex | uverbs.MaskPort | uverbs.MaskAccess,
			uverbs.StateRTR: uverbs.MaskAV | uverbs.MaskPathMTU | uverbs.MaskDestQPN | uverbs.MaskRQPSN |
				uverbs.MaskMaxDestRdAtomic | uverbs.MaskMinRNRTimer,
		}[to]
		rtr.State = to
		check(t, s.b.qp.Modify(rtr, mask|uverbs.MaskState))
	}
	post(t, s.a.qp, s.writeTo(s.b.mr.RKey()))
	check(t, s.settled(t))
}

func (s *scene) netdev(t *testing.T) string {
	t.Helper()
	return must(s.dev.GIDs(1))(t)[0].Netdev
}

// bounce sets the network interface down and up again.
func (s *scene) bounce(t *testing.T) {
	name := s.netdev(t)
	setLink(t, name, false)
	setLink(t, name, true)
}

// alias adds an address to an interface until the test ends, with a label such as d0:9.
func alias(t *testing.T, name string, addr netip.Addr) {
	t.Helper()
	fd := must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	ifr := must(unix.NewIfreq(name))(t)
	check(t, ifr.SetInet4Addr(addr.AsSlice()))
	check(t, unix.IoctlIfreq(fd, unix.SIOCSIFADDR, ifr))
	t.Cleanup(func() { setLink(t, name, false) })
}

// finish ends a scene with an event of its third QP.
func (s *scene) finish(t *testing.T) {
	t.Helper()
	s.ends(t, s.mark.qp)
}

// ends makes a QP with an SRQ raise endEvent.
func (s *scene) ends(t *testing.T, q *uverbs.QP) {
	t.Helper()
	to := uverbs.StateErr
	if endEvent() == uverbs.EventSQDrained {
		to = uverbs.StateSQD
	}
	check(t, q.Modify(uverbs.QPAttr{State: to}, uverbs.MaskState))
}

// endEvent returns the event that is raised when a QP goes to SQD or, if the device has no SQD,
// when a QP with an SRQ goes to ERR.
func endEvent() uverbs.EventType {
	kernel, device, _ := features.Here()
	if drains, _, known := features.Lookup(kernel, device, features.SQDrained); known && !drains {
		return uverbs.EventQPLastWQEReached
	}
	return uverbs.EventSQDrained
}

// await reads events until one of the wanted type arrives, or the scene ends. It reports
// whether the event arrived.
func (s *scene) await(t *testing.T, want uverbs.EventType, right func(*scene, uverbs.AsyncEvent) bool) bool {
	t.Helper()
	for {
		e, err := s.dev.NextEvent(s.ctx)
		check(t, err)
		switch {
		case e.Type == endEvent() && e.QP == s.mark.qp:
			return false
		case e.Type != want:
			t.Logf("also: %v", e.Type)
		case !right(s, e):
			t.Fatalf("%v of the wrong object: %+v", want, e)
		default:
			return true
		}
	}
}

// TestDeviceEvents provokes each asynchronous event and checks the result against the list of
// package features, in both directions.
func TestDeviceEvents(t *testing.T) {
	if !inMemory() {
		needEndpoints(t, openDevice(t))
	}
	kernel, device, ok := features.Here()
	for typ := uverbs.EventCQErr; typ <= uverbs.EventSpeedChange; typ++ {
		t.Run(typ.String(), func(t *testing.T) {
			in, listed := incidents[typ]
			raised, why, known := features.Event(kernel, device, uint32(typ))
			if !listed || ok && !known {
				t.Fatalf("event %d is not listed: %s", typ, why)
			}
			if in.provoke == nil {
				if raised {
					t.Fatalf("nothing provokes it, and the list says that it is raised: %s", why)
				}
				t.Logf("cannot be provoked here: %s", why)
				return
			}
			s := newScene(t)
			in.provoke(t, s)
			if raised {
				if !s.await(t, typ, in.right) {
					t.Fatal("the scene ended without it")
				}
				return
			}
			// Provoked events arrive before the mark.
			s.finish(t)
			if came := s.await(t, typ, in.right); came && ok {
				t.Fatalf("it is raised, which is news: %s", why)
			}
		})
	}
}

// TestDeviceEventsOfClosed checks that events of closed objects are not reported.
func TestDeviceEventsOfClosed(t *testing.T) {
	s := newScene(t)
	s.ends(t, s.b.qp)
	check(t, s.b.qp.Close())
	s.finish(t)
	if e := must(s.dev.NextEvent(s.ctx))(t); e.Type != endEvent() || e.QP != s.mark.qp {
		t.Fatalf("event %+v", e)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	cancel()
	if _, err := s.dev.NextEvent(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("with an ended context: %v", err)
	}
}
