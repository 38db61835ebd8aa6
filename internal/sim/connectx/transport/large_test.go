package transport

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// A vast queue pair has unlimited memory. The contents depend on the offset.
type vast struct {
	host
	wrong int
	bytes uint64
}

func pattern(off uint32, p []byte) {
	for i := 0; i+8 <= len(p); i += 1024 {
		binary.BigEndian.PutUint64(p[i:], uint64(off)+uint64(i))
	}
}

func (v *vast) check(off uint32, p []byte) Syndrome {
	for i := 0; i+8 <= len(p); i += 1024 {
		if binary.BigEndian.Uint64(p[i:]) != uint64(off)+uint64(i) {
			v.wrong++
		}
	}
	v.bytes += uint64(len(p))
	return OK
}

func (v *vast) Gather(r *Request, off uint32, p []byte) Syndrome {
	pattern(off, p)
	return OK
}
func (v *vast) Scatter(r *Request, off uint32, p []byte) Syndrome                   { return v.check(off, p) }
func (v *vast) Deliver(rc *Receive, off uint32, p []byte) Syndrome                  { return v.check(off, p) }
func (v *vast) Write(off uint32, p []byte) Syndrome                                 { return v.check(off, p) }
func (v *vast) Atomic(op Op, operand [4]uint64) (uint64, Syndrome)                  { return 0, OK }
func (v *vast) Read(off uint32, p []byte) Syndrome                                  { pattern(off, p); return OK }
func (v *vast) Remote(_, _ uint32, _ uint64, _ uint32, _ Access) (Region, Syndrome) { return v, OK }

// A pipe delivers packets without loss, as an InfiniBand subnet does.
type pipe struct {
	loop *loop.Loop
	to   **Endpoint
}

func (x pipe) Send(_ *Path, p *roce.Packet) { x.loop.Post(func() { (*x.to).Receive(p) }) }

// TestLongest transfers messages of the maximum length of a ConnectX, and
// before them one of the maximum length of the IBA.
func TestLongest(t *testing.T) {
	if testing.Short() {
		t.Skip("four gigabytes")
	}
	synctest.Test(t, func(t *testing.T) {
		const n = 1 << 30
		w := &world{t: t, begin: time.Now(), seen: map[string]int{}}
		var ends [2]*Endpoint
		var sides [2]*vast
		w.loop.Run(func() {
			for i := range ends {
				c := plain(RC)
				c.MTU, c.SendPSN, c.RecvPSN = 4096, 1<<24-9, 1<<24-9
				v := &vast{host: host{t: t, loop: &w.loop, world: w}}
				v.e = New(&w.loop, pipe{&w.loop, &ends[1-i]}, v, c)
				ends[i], sides[i] = v.e, v
				for _, s := range []State{Init, RTR, RTS} {
					v.e.SetState(s)
				}
			}
			sides[1].recvs = []*Receive{{}}
			sides[0].posted = []*Request{{Op: Write, Length: MaxMessage}, {Op: Send, Length: n}, {Op: Read, Length: n}}
			ends[0].Kick()
		})
		w.pass(time.Second)
		w.loop.Run(func() {
			a, b := sides[0], sides[1]
			if len(a.done) != 3 || a.done[2].s != OK || len(b.arrived) != 1 || b.arrived[0].m.Length != n {
				t.Errorf("done %+v, arrived %+v", a.done, b.arrived)
			}
			if a.wrong+b.wrong != 0 || a.bytes != n || b.bytes != MaxMessage+n {
				t.Errorf("%d and %d bytes, of which %d and %d pieces are wrong", a.bytes, b.bytes, a.wrong, b.wrong)
			}
		})
	})
}

// TestTurns checks that other steps of the loop run during a long message.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, RC, nil)
		w.quiet = true
		w.receive(1, 1<<20)
		w.loop.Run(func() {
			w.hosts[0].posted = append(w.hosts[0].posted, send(1<<20))
			w.hosts[0].e.Kick()
			last := func() {
				if n := w.seen["0 RC_SEND_MIDDLE"]; n > 2*turn {
					t.Errorf("%d packets before other steps run", n)
				}
			}
			for range 1000 { // last runs at the end of this Run, before those of timers
				next := last
				last = func() { w.loop.Post(next) }
			}
			last()
		})
		w.pass(time.Second)
		w.ends(0, OK)
	})
}
