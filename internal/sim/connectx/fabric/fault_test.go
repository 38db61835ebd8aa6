package fabric

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// pair returns a world of two devices that have learned each other's addresses.
func pair(t *testing.T, c Config) *world {
	w := newWorld(t, 2, c)
	w.send(0, 1, "")
	w.send(1, 0, "")
	w.loop.Run(func() { clear(w.got) })
	w.at = nil
	return w
}

func TestDrop(t *testing.T) {
	w := pair(t, Config{})
	id := w.fault(Fault{Action: Drop, Port: "a", Skip: 1, Count: 2})
	w.send(0, 1, "1", "2", "3", "4")
	w.send(1, 0, "other way")
	w.expect([]string{"other way"}, []string{"1", "4"})
	w.loop.Run(func() {
		want := []FaultStatus{{ID: id, Fault: Fault{Action: Drop, Port: "a", Direction: From, Skip: 1, Count: 2}, Matched: 4,
			Hit: 2}}
		if diff := cmp.Diff(want, w.sw.Faults()); diff != "" {
			t.Error(diff)
		}
		if err := w.sw.RemoveFault(id); err != nil {
			t.Error(err)
		}
	})
	if c := w.counters(0); c.Dropped != 2 {
		t.Errorf("%+v", c)
	}

	w.fault(Fault{Action: Drop, Port: "b", Direction: To})
	w.send(0, 1, "not b")
	w.send(1, 0, "but a")
	w.expect([]string{"but a"}, nil)
	if c := w.counters(1); c.Dropped != 1 {
		t.Errorf("%+v", c)
	}
}

// TestDropOfMany checks that a multicast frame meets a fault of its sender
// once, and those of its receivers at each receiver.
func TestDropOfMany(t *testing.T) {
	w := newWorld(t, 3, Config{})
	w.fault(Fault{Action: Drop, Direction: To, Skip: 1, Count: 1})
	w.loop.Run(func() { w.ports[0].Frame(makeFrame(broadcast, mac(0), "x")) })
	w.expect(nil, []string{"x"}, nil)
	w.loop.Run(w.sw.ClearFaults)
	id := w.fault(Fault{Action: Duplicate})
	w.loop.Run(func() { w.ports[0].Frame(makeFrame(broadcast, mac(0), "x")) })
	w.expect(nil, []string{"x", "x"}, []string{"x", "x"})
	w.loop.Run(func() {
		if s := w.sw.Faults()[0]; s.ID != id || s.Matched != 1 || s.Hit != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestProbability checks that random decisions depend on the seed.
func TestProbability(t *testing.T) {
	const frames = 4000
	run := func(seed uint64, others int) []string {
		w := pair(t, Config{Seed: seed})
		w.fault(Fault{Action: Drop, Port: "a", Probability: 0.25})
		for range others {
			w.fault(Fault{Action: Duplicate, Port: "b", Probability: 0.5})
		}
		for i := range frames {
			w.send(0, 1, fmt.Sprint(i))
			w.send(1, 0, "x")
		}
		if n := int(w.counters(0).Dropped); n+len(w.got[1]) != frames || n < frames/5 || n > frames*3/10 {
			t.Errorf("%d of %d were dropped with probability 0.25, %d came", n, frames, len(w.got[1]))
		}
		return w.got[1]
	}
	first := run(1, 0)
	if !slices.Equal(first, run(1, 1)) {
		t.Error("the same seed drops others")
	}
	if slices.Equal(first, run(2, 0)) {
		t.Error("another seed drops the same")
	}
}

func TestDuplicate(t *testing.T) {
	w := pair(t, Config{})
	w.fault(Fault{Action: Duplicate, Count: 1})
	w.send(0, 1, "1", "2")
	w.expect(nil, []string{"1", "1", "2"})
	if c := w.counters(0); c.Duplicated != 1 {
		t.Errorf("%+v", c)
	}
}

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pair(t, Config{})
		id := w.fault(Fault{Action: Delay, Delay: 5 * time.Millisecond, Count: 3})
		w.send(0, 1, "1")
		pass(time.Millisecond)
		w.send(0, 1, "2", "3", "4") // 4 is not delayed
		w.expect(nil, []string{"4"})
		w.loop.Run(func() {
			if err := w.sw.RemoveFault(id); err != nil { // delayed packets arrive nevertheless
				t.Error(err)
			}
		})
		pass(time.Second)
		w.expect(nil, []string{"1", "2", "3"})
		if want := []time.Duration{1e6, 5e6, 6e6, 6e6}; !slices.Equal(w.at, want) {
			t.Errorf("frames came at %v, want %v", w.at, want)
		}
		if c := w.counters(0); c.Delayed != 3 {
			t.Errorf("%+v", c)
		}
		w.idle()
	})
}

// TestDelaysOvertake checks that packets with different delays arrive in the
// order in which they are due.
func TestDelaysOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pair(t, Config{})
		w.fault(Fault{Action: Delay, Delay: 2 * time.Millisecond})
		w.fault(Fault{Action: Delay, Delay: 4 * time.Millisecond, Count: 1})
		w.send(0, 1, "slow", "fast")
		pass(time.Second)
		w.expect(nil, []string{"fast", "slow"})
		if want := []time.Duration{2e6, 6e6}; !slices.Equal(w.at, want) {
			t.Errorf("frames came at %v, want %v", w.at, want)
		}
		w.idle()
	})
}

func TestReorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pair(t, Config{})
		w.fault(Fault{Action: Reorder, Port: "a", Skip: 1, Count: 1, Behind: 2})
		w.fault(Fault{Action: Reorder, Port: "a", Skip: 4, Count: 1})
		w.send(0, 1, "1", "2", "3", "4", "5")
		w.expect(nil, []string{"1", "3", "4", "2"}) // 5 waits: no packet has overtaken it
		pass(reorderWait - 1)
		w.expect(nil, nil)
		pass(1)
		w.expect(nil, []string{"5"})
		if c := w.counters(0); c.Reordered != 2 {
			t.Errorf("%+v", c)
		}
		w.idle()
	})
}

// TestReorderTo checks that a packet waits only for packets in its own
// direction of its own port.
func TestReorderTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pair(t, Config{})
		w.fault(Fault{Action: Reorder, Port: "b", Direction: To, Count: 1})
		w.send(0, 1, "1")
		w.send(1, 0, "other way")
		w.expect([]string{"other way"}, nil)
		w.send(0, 1, "2")
		w.expect(nil, []string{"2", "1"})
		w.idle()
	})
}

func TestCorrupt(t *testing.T) {
	w := pair(t, Config{})
	var came [][]byte
	w.loop.Run(func() { w.ports[1].give = func(u unit) { came = append(came, u.(frame)) } })
	sent := makeFrame(mac(1), mac(0), string(make([]byte, 100)))
	original := slices.Clone(sent)
	for _, offset := range []int{0, 20, -1, 5000, -5000} {
		id := w.fault(Fault{Action: Corrupt, Offset: offset, Count: 1})
		w.loop.Run(func() {
			w.ports[0].Frame(sent)
			if err := w.sw.RemoveFault(id); err != nil {
				t.Error(err)
			}
		})
	}
	if !slices.Equal(sent, original) {
		t.Error("the sender's frame was changed")
	}
	want := []int{-1, 20, len(sent) - 1, len(sent) - 1, 0}
	for i, b := range came {
		turned, at := 0, -1
		for j := range b {
			if n := bits.OnesCount8(b[j] ^ original[j]); n > 0 {
				turned, at = turned+n, j
			}
		}
		if turned != 1 || want[i] >= 0 && at != want[i] || at < ethernetHeader && want[i] < 0 {
			t.Errorf("frame %d: %d bits turned over, the last at %d", i, turned, at)
		}
	}
	if c := w.counters(0); c.Corrupted != uint64(len(want)) || len(came) != len(want) {
		t.Errorf("%+v, %d came", c, len(came))
	}
}

// TestTogether checks combinations of faults: a copy of a corrupted frame is
// delayed like the original.
func TestTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pair(t, Config{})
		w.fault(Fault{Action: Corrupt, Offset: -1})
		w.fault(Fault{Action: Duplicate})
		w.fault(Fault{Action: Delay, Delay: time.Second})
		w.fault(Fault{Action: Drop, Skip: 1})
		w.send(0, 1, "0", "0")
		pass(time.Second)
		w.expect(nil, []string{"1", "1"})
		w.idle()
	})
}

func TestLinkLosesWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := pair(t, Config{})
		w.fault(Fault{Action: Delay, Delay: time.Second})
		w.send(0, 1, "1", "2")
		w.loop.Run(func() { w.ports[0].SetLink(false) })
		w.idle()
		pass(2 * time.Second)
		w.expect(nil, nil)
		if c := w.counters(0); c.LinkDown != 2 {
			t.Errorf("%+v", c)
		}
	})
}

func TestQueuesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const room = 5
		w := pair(t, Config{QueueBytes: room * (ethernetHeader + 1 + unitCost)})
		w.fault(Fault{Action: Delay, Delay: time.Second, Port: "a"})
		for range room + 3 {
			w.send(0, 1, "x")
		}
		if c := w.counters(0); c.Overflow != 3 {
			t.Errorf("held: %+v", c)
		}
		pass(time.Second)
		w.expect(nil, []string{"x", "x", "x", "x", "x"})
		w.loop.Run(func() { // before the receiver's step
			for range room + 2 {
				w.ports[1].Frame(makeFrame(mac(0), mac(1), "y"))
			}
		})
		if c := w.counters(0); c.Overflow != 5 {
			t.Errorf("delivered: %+v", c)
		}
		w.expect([]string{"y", "y", "y", "y", "y"}, nil)
		w.idle()
	})
}

// TestMatch checks that faults hit only packets that match, in all
// encapsulations.
func TestMatch(t *testing.T) {
	packet := roce.Packet{Opcode: roce.RC.Of(roce.SendOnly), DestQPN: 0x123456, PSN: 77, PKey: 0xFFFF,
		Payload: []byte("data")}
	v4 := [16]byte{10: 0xFF, 11: 0xFF, 12: 10, 15: 1}
	v6 := [16]byte{0: 0xFE, 1: 0x80, 15: 1}
	routes := map[string]roce.Route{
		"v1":        {Version: roce.V1, GRH: true, SGID: v6, DGID: v6},
		"v2, IPv4":  {Version: roce.V2, GRH: true, SGID: v4, DGID: v4},
		"v2, IPv6":  {Version: roce.V2, GRH: true, SGID: v6, DGID: v6},
		"v2, VLAN":  {Version: roce.V2, GRH: true, SGID: v4, DGID: v4, Tagged: true, VLAN: 5},
		"v1, VLAN":  {Version: roce.V1, GRH: true, SGID: v6, DGID: v6, Tagged: true, VLAN: 5},
		"v2, IPv6V": {Version: roce.V2, GRH: true, SGID: v6, DGID: v6, Tagged: true, VLAN: 5},
	}
	types := map[bool]map[bool]uint16{true: {true: 0x0800, false: 0x86DD}, false: {false: 0x8915}}
	for name, route := range routes {
		p := packet
		p.Route = route
		p.Route.SMAC, p.Route.DMAC = mac(0), mac(1)
		b, err := p.AppendFrame(nil)
		if err != nil {
			t.Fatal(err)
		}
		etherType := types[route.Version == roce.V2][route.IPv4()]
		if diff := cmp.Diff(header{etherType, true, p.Opcode, p.DestQPN, p.PSN}, frame(b).header(),
			cmp.AllowUnexported(header{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		for _, c := range []struct {
			m    Match
			want bool
		}{
			{Match{}, true},
			{Match{EtherType: etherType}, true},
			{Match{EtherType: 0x0806}, false},
			{Match{Opcodes: Opcodes{roce.RC.Of(roce.Acknowledge), p.Opcode}}, true},
			{Match{Opcodes: Opcodes{roce.RC.Of(roce.Acknowledge)}}, false},
			{Match{DestQPN: 0x123456, PSNs: []uint32{77}}, true},
			{Match{DestQPN: 0x123457}, false},
			{Match{PSNs: []uint32{76, 78}}, false},
			{Match{Frame: func(f []byte) bool { return len(f) == len(b) }}, true},
			{Match{Frame: func(f []byte) bool { return false }}, false},
			{Match{Packet: func(*roce.Packet) bool { return true }}, false},
		} {
			if got := c.m.matches(frame(b)); got != c.want {
				t.Errorf("%s: %+v matches: %v", name, c.m, got)
			}
		}
		for n := ethernetHeader; n < len(b); n++ { // truncated: no panic
			if short := frame(b[:n]); short.header().transport && n < len(b)-12 {
				m := Match{Opcodes: Opcodes{p.Opcode}}
				m.matches(short)
			}
		}
	}
	arp := frame(makeFrame(broadcast, mac(0), "ARP"))
	if (&Match{Opcodes: Opcodes{0}}).matches(arp) || (&Match{DestQPN: 1}).matches(arp) ||
		(&Match{PSNs: []uint32{0}}).matches(arp) {
		t.Error("a frame without transport header matches")
	}
}

func TestJSON(t *testing.T) {
	f := Fault{Action: Reorder, Direction: To, Port: "a", Behind: 2, Delay: time.Second,
		Match: Match{Opcodes: Opcodes{roce.RC.Of(roce.SendOnly), roce.UD.Of(roce.SendOnlyImm)}, PSNs: []uint32{1}}}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"action":"reorder","port":"a","direction":"to",` +
		`"match":{"opcodes":["RC_SEND_ONLY","UD_SEND_ONLY_IMM"],"psns":[1]},` +
		`"delay_ns":1000000000,"behind":2}`
	if string(b) != want {
		t.Errorf("got %s\nwant %s", b, want)
	}
	var back Fault
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(f, back); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{`{"match":{"opcodes":["RC_EAT"]}}`, `{"match":{"opcodes":7}}`} {
		if err := json.Unmarshal([]byte(bad), &back); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
}
