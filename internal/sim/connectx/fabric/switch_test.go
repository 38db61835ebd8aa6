package fabric

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A world is a switch with devices that record received frames.
type world struct {
	t     *testing.T
	loop  *loop.Loop
	sw    *Switch
	ports []*Port
	got   [][]string      // payloads by port
	at    []time.Duration // times, of all ports
	links []string
	start time.Time
}

// newWorld returns a world with devices a, b, c and so on.
func newWorld(t *testing.T, ports int, c Config) *world {
	t.Helper()
	c.Loop = &loop.Loop{}
	w := &world{t: t, loop: c.Loop, sw: NewSwitch(c), start: time.Now()}
	for i := range ports {
		w.attach(i)
	}
	return w
}

func (w *world) attach(i int) {
	w.t.Helper()
	name := string(rune('a' + i))
	w.got = append(w.got, nil)
	w.loop.Run(func() {
		p, err := w.sw.Attach(name,
			func(b []byte) {
				w.got[i] = append(w.got[i], string(b[ethernetHeader:]))
				w.at = append(w.at, time.Since(w.start))
			},
			func(up bool) { w.links = append(w.links, fmt.Sprint(name, up)) })
		if err != nil {
			w.t.Fatal(err)
		}
		w.ports = append(w.ports, p)
	})
}

// mac returns the address of a device.
func mac(i int) MAC { return MAC{2, 0, 0, 0, 0, byte(i)} }

var broadcast = MAC{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}

func makeFrame(to, from MAC, payload string) []byte {
	b := append(slices.Concat(to[:], from[:]), 0x88, 0xB5)
	return append(b, payload...)
}

// send sends frames between devices, each in a separate step.
func (w *world) send(from, to int, payloads ...string) {
	for _, p := range payloads {
		w.loop.Run(func() { w.ports[from].Frame(makeFrame(mac(to), mac(from), p)) })
	}
}

// fault adds a fault.
func (w *world) fault(f Fault) (id int) {
	w.t.Helper()
	var err error
	w.loop.Run(func() { id, err = w.sw.AddFault(f) })
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

// expect compares the received frames and clears them.
func (w *world) expect(want ...[]string) {
	w.t.Helper()
	w.loop.Run(func() {
		if diff := cmp.Diff(want, w.got); diff != "" {
			w.t.Errorf("devices were given (-want +got):\n%s", diff)
		}
		clear(w.got)
	})
}

// counters returns a port's counters, without those of sent and received
// frames.
func (w *world) counters(i int) (c Counters) {
	w.loop.Run(func() { c = w.ports[i].Counters() })
	c.Sent, c.SentBytes, c.Received, c.ReceivedBytes = 0, 0, 0, 0
	return c
}

// pass advances the time.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// idle checks that nothing is held and no timer runs.
func (w *world) idle() {
	w.t.Helper()
	w.loop.Run(func() {
		for _, p := range w.ports {
			for _, at := range []*point{&p.from, &p.to} {
				if len(at.held) > 0 || at.bytes != 0 || at.timer != nil || p.queued != 0 {
					w.t.Errorf("port %s: %d held, %d and %d bytes wait, timer %v", p.name, len(at.held), at.bytes, p.queued, at.timer)
				}
			}
		}
	})
}

func TestLearning(t *testing.T) {
	w := newWorld(t, 3, Config{})
	w.send(0, 1, "where is b")
	w.expect(nil, []string{"where is b"}, []string{"where is b"})
	w.send(1, 0, "here")
	w.expect([]string{"here"}, nil, nil)
	w.send(0, 1, "now I know")
	w.expect(nil, []string{"now I know"}, nil)

	w.loop.Run(func() {
		w.ports[2].Frame(makeFrame(broadcast, mac(2), "all"))
		w.ports[2].Frame(makeFrame(MAC{0x33, 0x33, 0, 0, 0, 1}, mac(2), "many"))
	})
	w.expect([]string{"all", "many"}, []string{"all", "many"}, nil)

	// b moves to the port of c.
	w.loop.Run(func() { w.ports[2].Frame(makeFrame(mac(0), mac(1), "moved")) })
	w.send(0, 1, "there")
	w.expect([]string{"moved"}, nil, []string{"there"})
	w.send(2, 1, "to myself") // a frame for an address at its own port is not forwarded
	w.expect(nil, nil, nil)
	if c := w.counters(2); c != (Counters{Flooded: 2, NoRoute: 1}) {
		t.Errorf("%+v", c)
	}
	w.idle()
}

func TestCounters(t *testing.T) {
	w := newWorld(t, 2, Config{})
	w.send(0, 1, "x")
	w.send(1, 0, "yy", "zz")
	w.loop.Run(func() {
		want := []PortStatus{
			{Name: "a", Up: true, Counters: Counters{Sent: 1, SentBytes: 15, Received: 2, ReceivedBytes: 32, Flooded: 1}},
			{Name: "b", Up: true, Counters: Counters{Sent: 2, SentBytes: 32, Received: 1, ReceivedBytes: 15}},
		}
		if diff := cmp.Diff(want, w.sw.Ports()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestLearningIsBounded checks the bound on addresses of a port.
func TestLearningIsBounded(t *testing.T) {
	w := newWorld(t, 3, Config{})
	w.send(1, 0, "here is b")
	w.loop.Run(func() {
		for i := range 3*maxLearned + 7 {
			w.ports[0].Frame(makeFrame(mac(1), MAC{2, 1, 0, byte(i >> 16), byte(i >> 8), byte(i)}, ""))
		}
		if n := len(w.sw.behind); n != 1+7 || w.ports[0].learned != 7 {
			t.Errorf("%d addresses are known, %d behind the port", n, w.ports[0].learned)
		}
	})
	w.loop.Run(func() { clear(w.got) })
	w.send(2, 1, "still known")
	w.expect(nil, []string{"still known"}, nil)
}

func TestMalformed(t *testing.T) {
	w := newWorld(t, 2, Config{})
	w.loop.Run(func() {
		w.ports[0].Frame(nil)
		w.ports[0].Frame(make([]byte, ethernetHeader-1))
		w.ports[0].Frame(make([]byte, MaxFrame+1))
		w.ports[0].Frame(makeFrame(mac(1), broadcast, "from many"))
		w.ports[0].Frame(makeFrame(mac(1), mac(0), string(make([]byte, MaxFrame-ethernetHeader))))
	})
	if c := w.counters(0); c != (Counters{Malformed: 4, Flooded: 1}) {
		t.Errorf("%+v", c)
	}
	if len(w.got[1]) != 1 {
		t.Errorf("%d frames came", len(w.got[1]))
	}
}

// TestPacket checks that a packet is sent as a RoCE frame.
func TestPacket(t *testing.T) {
	w := newWorld(t, 2, Config{})
	p := roce.Packet{Opcode: roce.RC.Of(roce.SendOnly), Payload: []byte("data"),
		Route: roce.Route{Version: roce.V2, GRH: true, SMAC: mac(0), DMAC: mac(1)}}
	want, err := p.AppendFrame(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.loop.Run(func() {
		w.ports[0].Packet(&p)
		w.ports[0].Packet(&roce.Packet{Opcode: 0xFF})
	})
	w.expect(nil, []string{string(want[ethernetHeader:])})
	if c := w.counters(0); c != (Counters{Malformed: 1, Flooded: 1}) {
		t.Errorf("%+v", c)
	}
}

func TestLink(t *testing.T) {
	w := newWorld(t, 2, Config{})
	w.send(1, 0, "here is b")
	w.expect([]string{"here is b"}, nil)
	set := func(up bool) {
		w.loop.Run(func() {
			if err := w.sw.SetLink("b", up); err != nil {
				t.Fatal(err)
			}
			if w.ports[1].Up() != up {
				t.Errorf("Up is %v", !up)
			}
		})
	}
	set(true) // no change
	set(false)
	set(false)
	w.send(0, 1, "lost")
	w.send(1, 0, "lost, too")
	w.loop.Run(func() {
		if w.sw.behind[mac(1)] != nil {
			t.Error("addresses behind the link are still known")
		}
	})
	set(true)
	w.send(0, 1, "there again")
	w.expect(nil, []string{"there again"})
	if !slices.Equal(w.links, []string{"bfalse", "btrue"}) {
		t.Errorf("the devices were notified of %v", w.links)
	}
	if c := w.counters(1); c.LinkDown != 2 {
		t.Errorf("%+v", c)
	}
	// Frames in transit are lost when the link goes down.
	w.loop.Run(func() {
		w.ports[0].Frame(makeFrame(mac(1), mac(0), "in transit"))
		w.ports[1].SetLink(false)
	})
	w.expect(nil, nil)
	if c := w.counters(1); c.LinkDown != 3 {
		t.Errorf("%+v", c)
	}
}

func TestDetach(t *testing.T) {
	w := newWorld(t, 2, Config{})
	w.send(1, 0, "here is b")
	w.loop.Run(func() {
		w.ports[0].Frame(makeFrame(mac(1), mac(0), "in transit"))
		w.ports[1].Detach()
		w.ports[1].Detach()
		w.ports[1].Frame(makeFrame(mac(0), mac(1), "detached"))
		w.ports[1].SetLink(false)
		if w.ports[1].Up() || len(w.sw.Ports()) != 1 || w.sw.behind[mac(1)] != nil {
			t.Error("the port still exists")
		}
	})
	w.send(0, 1, "no port")
	w.expect([]string{"here is b"}, nil)
	w.loop.Run(func() {
		if _, err := w.sw.Attach("b", func([]byte) {}, nil); err != nil {
			t.Error(err)
		}
	})
}

func TestErrors(t *testing.T) {
	w := newWorld(t, 1, Config{})
	w.loop.Run(func() {
		attach := func(name string) error { _, err := w.sw.Attach(name, nil, nil); return err }
		add := func(f Fault) error { _, err := w.sw.AddFault(f); return err }
		for _, c := range []struct {
			err  error
			kind error
		}{
			{attach(""), ErrParam},
			{attach("a"), ErrExists},
			{w.sw.SetLink("x", true), ErrUnknown},
			{w.sw.RemoveFault(1), ErrUnknown},
			{add(Fault{}), ErrParam},
			{add(Fault{Action: "eat"}), ErrParam},
			{add(Fault{Action: Drop, Direction: "up"}), ErrParam},
			{add(Fault{Action: Drop, Port: "x"}), ErrUnknown},
			{add(Fault{Action: Drop, Probability: 1.5}), ErrParam},
			{add(Fault{Action: Drop, Probability: -1}), ErrParam},
			{add(Fault{Action: Drop, Skip: -1}), ErrParam},
			{add(Fault{Action: Drop, Count: -1}), ErrParam},
			{add(Fault{Action: Delay}), ErrParam},
			{add(Fault{Action: Delay, Delay: -1}), ErrParam},
			{add(Fault{Action: Drop, Delay: 1}), ErrParam},
			{add(Fault{Action: Drop, Behind: 1}), ErrParam},
			{add(Fault{Action: Drop, Offset: 1}), ErrParam},
			{add(Fault{Action: Reorder, Behind: -1}), ErrParam},
		} {
			var e *Error
			if !errors.Is(c.err, c.kind) || !errors.As(c.err, &e) || e.Detail == "" {
				t.Errorf("got %v, want one of kind %v", c.err, c.kind)
			}
		}
		for range 1000 {
			if err := add(Fault{Action: Drop}); err != nil {
				t.Fatal(err)
			}
		}
		if err := add(Fault{Action: Drop}); !errors.Is(err, ErrParam) {
			t.Errorf("the number of faults is not bounded: %v", err)
		}
		w.sw.ClearFaults()
		if len(w.sw.Faults()) != 0 {
			t.Error("faults are left")
		}
	})
}
