package engine_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// TestPortCounters checks the packets and bytes that the ports of a sender and of a receiver count: those of a message
// of two packets and of its acknowledgment, and of a frame, by destination.
func TestPortCounters(t *testing.T) {
	const mtu, size = 1024, 1024 + 100
	header := map[engine.LinkLayer]int{engine.InfiniBand: 8 + 12 + 4, engine.Ethernet: 8 + 40 + 12 + 4}
	for layer, header := range header {
		run(t, 2, engine.Config{CQEVersion: 1, LinkLayer: layer}, func(w *world) {
			p := newPair(w, engine.QPAttr{})
			w.do(func() {
				p.b.recv(p.bm, 0, size)
				p.a.post(wqe{op: prm.OpcodeSend}.data(p.am, 0, size))
			})
			p.a.scq.expect("sent", sent)
			message := engine.Traffic{Packets: 2, Bytes: uint64(size + 2*header)}
			reply := engine.Traffic{Packets: 1, Bytes: uint64(4 + header)}
			a, b := w.hosts[0].PortCounters(), w.hosts[1].PortCounters()
			for _, x := range []struct {
				what      string
				got, want engine.Traffic
			}{
				{"sent", a.Sent[engine.Unicast], message}, {"received", b.Received[engine.Unicast], message},
				{"replied", b.Sent[engine.Unicast], reply}, {"reply received", a.Received[engine.Unicast], reply},
				{"sent to groups", a.Sent[engine.Multicast], engine.Traffic{}},
			} {
				if x.got != x.want {
					w.t.Errorf("link layer %v: %s: %+v, want %+v", layer, x.what, x.got, x.want)
				}
			}
			if layer == engine.InfiniBand {
				return
			}
			for kind, mac := range [][6]byte{{2}, {3}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}} {
				frame := udp(mac, mac, 1, 2, []byte("text"))
				w.do(func() { w.hosts[1].ReceiveFrame(frame) })
				want := engine.Traffic{Packets: 1, Bytes: uint64(len(frame))}
				if got := w.hosts[1].PortCounters().FramesReceived[kind]; got != want {
					w.t.Errorf("frames of kind %d: %+v, want %+v", kind, got, want)
				}
			}
		})
	}
}

// TestPortDowns checks that the port counts how often it goes down, also across a reset.
func TestPortDowns(t *testing.T) {
	run(t, 1, engine.Config{}, func(w *world) {
		h := w.hosts[0]
		w.do(func() {
			for _, up := range []bool{false, false, true, false, true} {
				h.SetUp(up)
			}
			h.Reset()
		})
		if n := h.PortCounters().Downs; n != 2 {
			w.t.Errorf("the port went down %d times, want 2", n)
		}
	})
}
