//go:build vm

package rxe_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/rpc"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/testbed/connectx/rxe"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/uverbs"
)

// A judge connects our endpoint by a cable with a guest that has an rxe device.
type judge struct {
	t      *testing.T
	loop   loop.Loop
	host   *host // of our endpoint
	begin  time.Time
	log    []string // of packets
	conn   net.Conn
	peer   *rpc.Client
	route  roce.Route // of our packets
	frames chan []byte

	loss     int // per 1000, both ways
	disorder int // per 1000, both ways: frames that are duplicated, and as many that are reordered
	held     [2]func()
	chance   *rand.Rand
	lost     int
	rnrs     [2]int   // RNR NAKs that arrived: the peer's, ours
	refused  []string // frames of the peer that could not be parsed
}

const ourMAC = "02:00:00:00:00:01"

func newJudge(t *testing.T, kernel string) *judge {
	nic, conn, err := vm.Plug()
	if err != nil {
		t.Fatal(err)
	}
	j := &judge{t: t, conn: conn, frames: make(chan []byte, 10000), chance: rand.New(rand.NewPCG(1, 2)),
		begin: time.Now()}
	program := vm.BuildProgram(t, "github.com/goverbs/goverbs/testbed/connectx/rxe/peer", "", "amd64")
	g := vm.Start(t, vm.Config{Kernel: kernel, Root: true, NICs: []vm.NIC{nic}, MemoryMB: 512})
	var busy sync.WaitGroup
	t.Cleanup(busy.Wait)
	t.Cleanup(func() { conn.Close(); close(j.frames) })
	busy.Go(j.read)
	busy.Go(j.write)
	for _, line := range []string{
		"ip link set eth0 address 02:00:00:00:00:02 mtu 4300 up", "ip addr add 10.8.0.2/24 dev eth0",
		"ip neigh replace 10.8.0.1 lladdr " + ourMAC + " dev eth0 nud permanent",
		"ip neigh replace fe80::ff:fe00:1 lladdr " + ourMAC + " dev eth0 nud permanent",
		"rdma link add rxe0 type rxe netdev eth0",
		"until grep -q 0a08:0002 /sys/class/infiniband/rxe0/ports/1/gids/*; do sleep 0.1; done",
	} {
		if out, err := g.Command("timeout", "30", "sh", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	path, err := g.Install(program)
	if err != nil {
		t.Fatal(err)
	}
	c := g.Command(path)
	in, toPeer := io.Pipe()
	fromPeer, out := io.Pipe()
	c.Stdin, c.Stdout, c.Stderr = in, out, t.Output()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	j.peer = rpc.NewClient(struct {
		io.Reader
		io.WriteCloser
	}{fromPeer, toPeer})
	t.Cleanup(func() {
		j.peer.Close()
		out.Close()
		if err := c.Wait(); err != nil {
			t.Errorf("the peer: %v", err)
		}
	})
	return j
}

// call calls a method of the peer program.
func (j *judge) call(method string, arg, response any) {
	j.t.Helper()
	select {
	case c := <-j.peer.Go("Peer."+method, arg, response, nil).Done:
		if c.Error != nil {
			j.t.Fatalf("%s(%+v): %v", method, arg, c.Error)
		}
	case <-time.After(90 * time.Second):
		j.t.Fatalf("%s(%+v): no reply", method, arg)
	}
}

// read processes frames of the guest.
func (j *judge) read() {
	for {
		var head [4]byte
		if _, err := io.ReadFull(j.conn, head[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(j.conn, frame); err != nil {
			return
		}
		j.loop.Run(func() { j.frame(frame) })
	}
}

func (j *judge) frame(frame []byte) {
	p, err := roce.Parse(frame)
	if err != nil {
		if !errors.Is(err, roce.ErrNotRoCE) {
			j.refused = append(j.refused, fmt.Sprintf("%v: % x", err, frame))
		}
		return
	}
	j.fate(0, func() {
		p := *p
		j.record(0, &p)
		if h := j.host; h != nil && p.DestQPN == ourQPN {
			h.e.Receive(&p)
			h.notify()
		}
	})
}

// fate delivers a frame in one direction, subject to the injected faults.
func (j *judge) fate(way int, arrive func()) {
	held := j.held[way]
	j.held[way] = nil
	switch n := j.chance.IntN(1000); {
	case n < j.loss:
		j.lost++
	case n < j.loss+j.disorder:
		arrive()
		arrive()
	case n < j.loss+2*j.disorder && held == nil:
		j.held[way] = arrive
	default:
		arrive()
	}
	if held != nil {
		held()
	}
}

// record logs a packet in one direction, and counts RNR NAKs.
func (j *judge) record(way int, p *roce.Packet) {
	if p.Opcode == roce.Acknowledge && p.AETH.Kind() == roce.RNRNak {
		j.rnrs[way]++
	}
	j.log = append(j.log, fmt.Sprintf("%v %s: %v psn %d ackreq %v aeth %+v %d bytes", time.Since(j.begin),
		[]string{"rxe", "we "}[way], p.Opcode, p.PSN, p.AckReq, p.AETH, len(p.Payload)))
}

// write sends frames to the guest.
func (j *judge) write() {
	for f := range j.frames {
		if _, err := j.conn.Write(f); err != nil {
			return
		}
	}
}

// Send implements transport.Port.
func (j *judge) Send(path *transport.Path, p *roce.Packet) {
	p.Route = j.route
	j.record(1, p)
	frame, err := p.AppendFrame(make([]byte, 4))
	if err != nil {
		j.t.Error(err)
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	j.fate(1, func() {
		select {
		case j.frames <- frame:
		default:
			j.lost++
		}
	})
}

// A session is a pair of connected queue pairs.
type session struct {
	*judge
	h      *host
	theirs rxe.Opened
}

const (
	memory   = 8 << 20
	ourKey   = 0x1234
	ourQPN   = 0x77
	startPSN = 1<<24 - 20
)

// open connects a queue pair of ours with one in the guest.
func (j *judge) open(t *testing.T, kind transport.Type, ip string, mtu int,
	change func(c *transport.Config, o *rxe.Options)) *session {
	j.t = t
	types := map[transport.Type]uverbs.QPType{transport.RC: uverbs.RC, transport.UC: uverbs.UC,
		transport.UD: uverbs.UD}
	mtus := map[int]uverbs.MTU{256: uverbs.MTU256, 1024: uverbs.MTU1024, 4096: uverbs.MTU4096}
	c := plain(kind)
	c.QPN, c.MTU, c.SendPSN, c.RecvPSN, c.AckTimeout = ourQPN, mtu, startPSN, 5, 15
	o := rxe.Options{Type: types[kind], Peer: ip, Memory: memory, MTU: mtus[mtu], PSN: 5, Retries: 7, RNRs: 7,
		Timeout: 15, RNRTimer: 12, Depth: 4, QKey: c.QKey}
	if change != nil {
		change(&c, &o)
	}
	s := &session{judge: j}
	j.call("Open", o, &s.theirs)
	j.loop.Run(func() {
		c.DestQPN = s.theirs.QPN
		s.h = newHost(t, &j.loop, j, c)
		s.h.memory[ourKey] = make([]byte, memory)
		j.host = s.h
		j.log = nil
		j.held = [2]func(){}
		j.rnrs = [2]int{}
		j.route = roce.Route{Version: roce.V2, GRH: true, DGID: s.theirs.GID, SGID: netip.MustParseAddr(ip).As16(),
			HopLimit: 64, SourcePort: 0xC000,
			SMAC: [6]byte{2, 0, 0, 0, 0, 1}, DMAC: [6]byte{2, 0, 0, 0, 0, 2}}
		for _, state := range []transport.State{transport.Init, transport.RTR, transport.RTS} {
			s.h.e.SetState(state)
		}
	})
	j.call("Connect", rxe.Remote{QPN: ourQPN, GID: netip.MustParseAddr(ip).As16(), PSN: startPSN}, nil)
	return s
}

// wait waits until content reports true.
func (s *session) wait(what string, content func() bool) {
	s.t.Helper()
	limit := time.After(90 * time.Second)
	for {
		ok := false
		s.loop.Run(func() { ok = content() })
		if ok {
			return
		}
		select {
		case <-s.h.wake:
		case <-limit:
			s.loop.Run(func() {
				send, recv := s.h.e.PSN()
				s.t.Errorf("waiting for %s: %d done, %d arrived, broken by %v, at PSN %d and %d", what, len(s.h.done),
					len(s.h.arrived), s.h.broken, send, recv)
			})
			s.show()
			s.t.FailNow()
		}
	}
}

// show logs the last packets.
func (s *session) show() {
	s.loop.Run(func() {
		for _, l := range s.log[max(0, len(s.log)-60):] {
			s.t.Log(l)
		}
	})
}

func (s *session) post(requests ...*transport.Request) {
	s.loop.Run(func() {
		s.h.posted = append(s.h.posted, requests...)
		s.h.e.Kick()
	})
}

func (s *session) completions(n int) []uverbs.WC {
	s.t.Helper()
	var wcs []uverbs.WC
	s.call("Poll", n, &wcs)
	return wcs
}

// receive posts receive requests at our host.
func (s *session) receive(rc ...*transport.Receive) {
	s.loop.Run(func() { s.h.recvs = append(s.h.recvs, rc...) })
}
