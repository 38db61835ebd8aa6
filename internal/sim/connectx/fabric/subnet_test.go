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
)

// subnetWorld is a subnet whose devices a, b, c have the LIDs 1, 2, 3.
type subnetWorld struct {
	t      *testing.T
	loop   *loop.Loop
	subnet *Subnet
	ports  []*SubnetPort
	got    [][]*roce.Packet
	links  []string
}

func newSubnetWorld(t *testing.T, ports int) *subnetWorld {
	w := &subnetWorld{t: t, loop: &loop.Loop{}, got: make([][]*roce.Packet, ports)}
	w.subnet = NewSubnet(Config{Loop: w.loop})
	w.loop.Run(func() {
		for i := range ports {
			name := string(rune('a' + i))
			p, err := w.subnet.Attach(name, func(p *roce.Packet) { w.got[i] = append(w.got[i], p) },
				func(up bool) { w.links = append(w.links, fmt.Sprint(name, up)) })
			if err == nil {
				err = p.SetLID(uint16(i+1), 0)
			}
			if err != nil {
				t.Fatal(err)
			}
			w.ports = append(w.ports, p)
		}
	})
	return w
}

func (w *subnetWorld) send(from int, dlid uint16, psn uint32) {
	w.loop.Run(func() {
		w.ports[from].Packet(&roce.Packet{Route: roce.Route{DLID: dlid}, PSN: psn, Opcode: roce.RC.Of(roce.SendOnly)})
	})
}

// expect compares the received PSNs and clears them.
func (w *subnetWorld) expect(want ...[]uint32) {
	w.t.Helper()
	w.loop.Run(func() {
		got := make([][]uint32, len(w.got))
		for i, all := range w.got {
			for _, p := range all {
				got[i] = append(got[i], p.PSN)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			w.t.Errorf("devices were given (-want +got):\n%s", diff)
		}
		clear(w.got)
	})
}

func TestSubnet(t *testing.T) {
	w := newSubnetWorld(t, 3)
	w.send(0, 2, 10)
	w.send(2, 2, 11)
	w.send(0, 1, 12) // its own LID
	w.send(0, 4, 13) // an unknown LID
	w.send(0, 0, 14)
	w.send(0, permissiveLID, 15)
	w.expect([]uint32{12}, []uint32{10, 11}, nil)
	w.loop.Run(func() { w.ports[2].Frame(make([]byte, 100)) })
	if c := w.ports[2].Counters(); c.Malformed != 1 {
		t.Errorf("a frame: %+v", c)
	}
	w.send(1, 0xC000, 16)
	w.send(1, 0xFFFE, 17)
	w.expect([]uint32{16, 17}, nil, []uint32{16, 17})
	w.loop.Run(func() {
		if c := w.ports[0].Counters(); c.NoRoute != 3 || c.Sent != 5 || c.Received != 3 || c.ReceivedBytes != 60 {
			t.Errorf("%+v", c)
		}
		if c := w.ports[1].Counters(); c.Flooded != 2 {
			t.Errorf("%+v", c)
		}
	})
}

// TestSubnetCopies checks that each receiver of a packet gets its own Packet.
func TestSubnetCopies(t *testing.T) {
	w := newSubnetWorld(t, 3)
	w.send(0, 0xC001, 1)
	if w.got[1][0] == w.got[2][0] {
		t.Error("two devices were given the same Packet")
	}
}

func TestSubnetLIDs(t *testing.T) {
	w := newSubnetWorld(t, 2)
	w.loop.Run(func() {
		a, b := w.ports[0], w.ports[1]
		for _, c := range []struct {
			err  error
			kind error
		}{
			{a.SetLID(8, 2), nil},
			{a.SetLID(8, 3), nil}, // overlaps with its previous LIDs
			{b.SetLID(12, 2), ErrExists},
			{b.SetLID(9, 1), ErrParam},
			{b.SetLID(0xC000, 0), ErrParam},
			{b.SetLID(0xBFFF, 0), nil},
			{b.SetLID(16, 8), ErrParam},
			{b.SetLID(1, 0), nil}, // a has released it
		} {
			if !errors.Is(c.err, c.kind) {
				t.Errorf("got %v, want %v", c.err, c.kind)
			}
		}
	})
	w.send(1, 15, 1)
	w.send(0, 1, 2)
	w.send(0, 2, 3)
	w.expect([]uint32{1}, []uint32{2})
	w.loop.Run(func() {
		if err := w.ports[0].SetLID(0, 0); err != nil {
			t.Error(err)
		}
		w.ports[1].Detach()
		w.ports[1].Packet(&roce.Packet{})
		if len(w.subnet.byLID) != 0 {
			t.Errorf("LIDs are left: %v", w.subnet.byLID)
		}
		if err := w.ports[1].SetLID(5, 0); !errors.Is(err, ErrClosed) {
			t.Errorf("a LID for a detached port: %v", err)
		}
	})
}

func TestSubnetFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newSubnetWorld(t, 2)
		add := func(f Fault) {
			if _, err := w.subnet.AddFault(f); err != nil {
				t.Error(err)
			}
		}
		w.loop.Run(func() {
			add(Fault{Action: Drop, Match: Match{PSNs: []uint32{2}}})
			add(Fault{Action: Duplicate, Match: Match{Packet: func(p *roce.Packet) bool { return p.PSN == 3 }}})
			add(Fault{Action: Drop, Match: Match{Frame: func([]byte) bool { return true }}})
			add(Fault{Action: Drop, Match: Match{Opcodes: Opcodes{roce.UD.Of(roce.SendOnly)}}})
			add(Fault{Action: Reorder, Match: Match{PSNs: []uint32{4}, Opcodes: Opcodes{roce.RC.Of(roce.SendOnly)}}})
			add(Fault{Action: Delay, Delay: time.Second, Match: Match{PSNs: []uint32{6}}})
			if _, err := w.subnet.AddFault(Fault{Action: Corrupt}); !errors.Is(err, ErrParam) {
				t.Errorf("corruption of a subnet: %v", err)
			}
		})
		for psn := range uint32(7) {
			w.send(0, 2, psn)
		}
		w.expect(nil, []uint32{0, 1, 3, 3, 5, 4})
		pass(time.Second)
		w.expect(nil, []uint32{6})
		w.loop.Run(func() {
			want := []uint64{1, 1, 0, 0, 1, 1}
			var got []uint64
			for _, s := range w.subnet.Faults() {
				got = append(got, s.Hit)
			}
			if !slices.Equal(got, want) {
				t.Errorf("faults happened %v times, want %v", got, want)
			}
			if err := w.subnet.SetLink("b", false); err != nil {
				t.Error(err)
			}
		})
		w.send(0, 2, 0)
		w.expect(nil, nil)
		if !slices.Equal(w.links, []string{"bfalse"}) {
			t.Errorf("devices were notified of %v", w.links)
		}
	})
}
