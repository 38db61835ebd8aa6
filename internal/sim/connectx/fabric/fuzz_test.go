package fabric

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// seedFrames calls add with frames of all kinds.
func seedFrames(add func([]byte)) {
	add(nil)
	add(makeFrame(broadcast, mac(1), "hello"))
	for _, v := range []roce.Version{roce.V1, roce.V2} {
		for _, gid := range [][16]byte{{0: 0xFE, 1: 0x80, 15: 1}, {10: 0xFF, 11: 0xFF, 12: 10}} {
			p := roce.Packet{Opcode: roce.RC.Of(roce.SendOnly),
				Route: roce.Route{Version: v, GRH: true, SGID: gid, DGID: gid, Tagged: true, SMAC: mac(1), DMAC: mac(2)}}
			b, err := p.AppendFrame(nil)
			if err != nil {
				panic(err)
			}
			add(b)
		}
	}
}

// FuzzSwitch sends arbitrary frames with faults of all kinds: nothing panics, a
// received frame does not change, and each frame is counted.
func FuzzSwitch(f *testing.F) {
	seedFrames(func(b []byte) { f.Add(b, b, uint8(3)) })
	f.Fuzz(func(t *testing.T, one, two []byte, times uint8) {
		w := newWorld(t, 3, Config{Seed: 1, QueueBytes: 20 * unitCost})
		for _, fault := range []Fault{
			{Action: Drop, Probability: 0.2, Match: Match{Opcodes: Opcodes{4, 0}}},
			{Action: Duplicate, Direction: To, Probability: 0.3},
			{Action: Reorder, Behind: 2, Delay: time.Hour, Probability: 0.3, Match: Match{PSNs: []uint32{0, 1}}},
			{Action: Reorder, Direction: To, Delay: time.Hour, Probability: 0.3},
			{Action: Corrupt, Probability: 0.5},
		} {
			w.fault(fault)
		}
		for i := range int(times) {
			w.loop.Run(func() {
				w.ports[i%3].Frame(bytes.Clone(one))
				w.ports[0].Frame(bytes.Clone(two))
			})
		}
		w.loop.Run(func() {
			var sent, malformed uint64
			for _, p := range w.ports {
				c := p.Counters()
				sent, malformed = sent+c.Sent, malformed+c.Malformed
				if c.Received != uint64(len(w.got[p.name[0]-'a'])) {
					t.Errorf("port %s: %d frames came, %d counted", p.name, len(w.got[p.name[0]-'a']), c.Received)
				}
				if p.from.bytes > w.sw.limit || p.to.bytes > w.sw.limit || p.queued != 0 {
					t.Errorf("port %s holds %d and %d bytes, %d are in transit", p.name, p.from.bytes, p.to.bytes, p.queued)
				}
			}
			if sent+malformed != 2*uint64(times) {
				t.Errorf("%d and %d frames of %d are counted", sent, malformed, 2*int(times))
			}
			for _, p := range w.ports {
				p.Detach()
			}
		})
		w.idle()
	})
}

// FuzzStream reads arbitrary bytes from a stream: nothing panics, and the port
// ends with it.
func FuzzStream(f *testing.F) {
	seedFrames(func(b []byte) { f.Add(framed(b)); f.Add(append(framed(b), 0, 1, 0xFF)) })
	f.Fuzz(func(t *testing.T, b []byte) {
		sw := NewSwitch(Config{Loop: &loop.Loop{}})
		theirs, ours := net.Pipe()
		p, err := sw.Stream("guest", ours)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := theirs.Write(b); err != nil && err != io.ErrClosedPipe {
			t.Error(err)
		}
		if err := theirs.Close(); err != nil {
			t.Error(err)
		}
		<-p.Done()
		if err := sw.Close(); err != nil {
			t.Error(err)
		}
		if len(sw.Ports()) != 0 {
			t.Error("the port still exists")
		}
	})
}

// packets is a datagram socket that supplies given datagrams.
type packets struct {
	net.PacketConn // nil: no other method is called
	next           [][]byte
}

func (p *packets) ReadFrom(b []byte) (int, net.Addr, error) {
	if len(p.next) == 0 {
		return 0, nil, net.ErrClosed
	}
	n := copy(b, p.next[0])
	p.next = p.next[1:]
	return n, &net.UnixAddr{Name: "guest", Net: "unixgram"}, nil
}

func (p *packets) Close() error { return nil }

// FuzzDatagram reads arbitrary datagrams: nothing panics, and each is counted.
func FuzzDatagram(f *testing.F) {
	seedFrames(func(b []byte) { f.Add(b, uint8(14), uint32(1)) })
	f.Add([]byte{1}, uint8(0), uint32(MaxFrame))
	f.Fuzz(func(t *testing.T, b []byte, cut uint8, repeat uint32) {
		long := bytes.Repeat(b, int(repeat%(MaxFrame+2))/max(len(b), 1))
		next := [][]byte{b, b[:min(int(cut), len(b))], long[:min(len(long), MaxFrame+1)]}
		sw := NewSwitch(Config{Loop: &loop.Loop{}})
		p, err := sw.Datagram("guest", &packets{next: next})
		if err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if err := sw.Close(); err != nil {
			t.Error(err)
		}
		if c := p.Counters(); c.Sent+c.Malformed != uint64(len(next)) || p.Err() != nil {
			t.Errorf("%+v, %v", c, p.Err())
		}
	})
}
