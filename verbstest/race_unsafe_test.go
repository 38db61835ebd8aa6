//go:build race

package verbstest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// A raceRig is two connected queue pairs on two machines.
type raceRig struct {
	*testing.T
	net    *verbstest.Network
	ends   [2]*verbstest.Machine
	qp     [2]*uverbs.QP
	mr     [2]*uverbs.MR
	ch     [2]*uverbs.CompChannel
	sendCQ [2]*uverbs.CQ
	recvCQ [2]*uverbs.CQ
}

const raceSize = 256

func newRaceRig(t *testing.T) *raceRig {
	r := &raceRig{T: t, net: verbstest.NewNetwork(t)}
	for i := range 2 {
		r.ends[i] = r.net.Machine()
		r.ends[i].Run(func() { r.open(i) })
	}
	for i := range 2 {
		check(t, r.qp[i].Connect(must(r.qp[1-i].Endpoint())(t)))
	}
	return r
}

func (r *raceRig) open(i int) {
	c := must(uverbs.Open(r.ends[i].Device()))(r)
	r.Cleanup(func() { check(r, c.Close()) })
	pd := must(c.AllocPD())(r)
	r.ch[i] = must(c.CreateCompChannel())(r)
	r.sendCQ[i] = must(c.CreateCQ(uverbs.CQConfig{Entries: 64}))(r)
	r.recvCQ[i] = must(c.CreateCQ(uverbs.CQConfig{Entries: 64, Channel: r.ch[i]}))(r)
	const access = uverbs.LocalWrite | uverbs.RemoteWrite | uverbs.RemoteRead
	r.qp[i] = must(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: r.sendCQ[i], RecvCQ: r.recvCQ[i], MaxSendWR: 16,
		MaxRecvWR: 16, MaxInline: 64, Access: access}))(r)
	r.mr[i] = must(pd.Alloc(4*raceSize, access))(r)
}

func (r *raceRig) send(wr uverbs.SendWR) { must(r.qp[0].PostSend(wr))(r) }

// sends sends the first part of the memory.
func (r *raceRig) sends() {
	r.send(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, SGL: []uverbs.SGE{r.mr[0].SGE(0, raceSize)}})
}

func (r *raceRig) receive() {
	must(r.qp[1].PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{r.mr[1].SGE(0, raceSize)}}))(r)
}

// poll polls until there is a completion.
func (r *raceRig) poll(cq *uverbs.CQ) (wc uverbs.WC) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var wcs [1]uverbs.WC
	must(cq.PollWait(ctx, wcs[:]))(r)
	check(r, wcs[0].Err())
	return wcs[0]
}

// until calls f until it returns true, for at most 20 seconds.
func (r *raceRig) until(f func() bool) {
	for deadline := time.Now().Add(20 * time.Second); !f(); runtime.Gosched() {
		if time.Now().After(deadline) {
			r.Error("waited in vain")
			return
		}
	}
}

// oneSided is a request for the first part of the peer's memory.
func (r *raceRig) oneSided(op uverbs.Opcode) uverbs.SendWR {
	return uverbs.SendWR{Opcode: op, Flags: uverbs.Signaled, SGL: []uverbs.SGE{r.mr[0].SGE(0, raceSize)},
		RemoteAddr: r.mr[1].Addr(), RKey: r.mr[1].RKey()}
}

// connect returns the ends of a connection of package rdma.
func (r *raceRig) connect(ctx context.Context) (client, server *rdma.Conn) {
	var l *rdma.Listener
	accepted := make(chan *rdma.Conn, 1)
	r.ends[0].Run(func() {
		l = must(rdma.Listen(":7471", nil))(r)
		go func() { accepted <- must(l.Accept(ctx))(r) }()
	})
	r.ends[1].Run(func() { client = must(rdma.Dial(ctx, r.ends[0].AddrPort(7471).String(), nil))(r) })
	server = <-accepted
	check(r, l.Close())
	return client, server
}

// races are programs in which a device and the program access memory at the same time. The lines
// that a report must name are marked.
var races = map[string]func(*raceRig){
	"read before the receive is polled": func(r *raceRig) {
		r.mr[0].Bytes()[0] = 1
		r.receive()
		arrived := make(chan bool)
		go func() {
			r.until(func() bool { return r.mr[1].Bytes()[0] == 1 }) // race: read before the receive is polled
			close(arrived)
		}()
		r.sends()
		r.poll(r.sendCQ[0])
		<-arrived
	},
	"read while the receive is posted": func(r *raceRig) {
		wr := uverbs.RecvWR{SGL: []uverbs.SGE{r.mr[1].SGE(0, 8)}}
		must(r.qp[1].PostRecv(wr))(r) // race: read while the receive is posted
		_ = r.mr[1].Bytes()[7] == 1   // race: read while the receive is posted
	},
	"short message read before it is polled": func(r *raceRig) {
		r.receive()
		r.send(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("12345678")})
		_ = r.mr[1].Bytes()[7] == '8' // race: short message read before it is polled
		r.poll(r.sendCQ[0])
	},
	"message read after Release": func(r *raceRig) {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		client, server := r.connect(ctx)
		check(r, client.Send(ctx, make([]byte, 1000)))
		m := must(server.Recv(ctx))(r)
		b := m.Bytes()
		m.Release()   // race: message read after Release
		_ = b[0] == 1 // race: message read after Release
		closed := make(chan error)
		go func() { closed <- server.Close() }()
		check(r, errors.Join(client.Close(), <-closed))
	},
	"write before the send is polled": func(r *raceRig) {
		r.receive()
		r.sends()               // race: write before the send is polled
		r.mr[0].Bytes()[0] = 42 // race: write before the send is polled
		r.poll(r.sendCQ[0])
	},
	"write while the packets are delayed": func(r *raceRig) {
		r.net.AddFault(verbstest.PacketFault{Action: verbstest.Delay, Delay: 10 * time.Millisecond})
		r.receive()
		r.sends()               // race: write while the packets are delayed
		r.mr[0].Bytes()[0] = 42 // race: write while the packets are delayed
		r.poll(r.sendCQ[0])
	},
	"use of a READ's target before it is polled": func(r *raceRig) {
		r.send(r.oneSided(uverbs.OpRead)) // race: use of a READ's target before it is polled
		_ = r.mr[0].Bytes()[7] == 1       // race: use of a READ's target before it is polled
		r.poll(r.sendCQ[0])
	},
	"write beside the peer's READ": func(r *raceRig) {
		written := make(chan bool)
		go func() {
			r.mr[1].Bytes()[0] = 1 // race: write beside the peer's READ
			close(written)
		}()
		r.send(r.oneSided(uverbs.OpRead)) // race: write beside the peer's READ
		r.poll(r.sendCQ[0])
		<-written
	},
	"wait without poll": func(r *raceRig) {
		r.receive()
		check(r, r.recvCQ[1].Arm(false))
		r.sends() // race: wait without poll
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		check(r, r.recvCQ[1].Wait(ctx))
		_ = r.mr[1].Bytes()[0] == 1 // race: wait without poll
	},
	"batch": func(r *raceRig) {
		r.receive()
		b := r.qp[0].StartSend()
		b.SendSGE(0, uverbs.Signaled, r.mr[0].SGE(0, raceSize))
		check(r, b.Submit())    // race: batch
		r.mr[0].Bytes()[0] = 42 // race: batch
		r.poll(r.sendCQ[0])
	},
	"memory of the program": func(r *raceRig) {
		buf := make([]byte, raceSize)
		mr := must(r.mr[0].PD().RegMR(buf, uverbs.LocalWrite))(r)
		defer mr.Close()
		r.receive()
		r.send(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, // race: memory of the program
			SGL: []uverbs.SGE{mr.SGE(0, raceSize)}})
		buf[9]++ // race: memory of the program
		r.poll(r.sendCQ[0])
	},
}

// correct are programs in which the detector must find nothing.
var correct = map[string]func(*raceRig){
	"many messages": func(r *raceRig) {
		for i := range 200 {
			r.mr[0].Bytes()[0] = byte(i)
			r.receive()
			r.sends()
			r.poll(r.sendCQ[0])
			if r.poll(r.recvCQ[1]); r.mr[1].Bytes()[0] != byte(i) {
				r.Errorf("message %d has %d", i, r.mr[1].Bytes()[0])
			}
		}
	},
	"inline data are copied by the post": func(r *raceRig) {
		buf := make([]byte, 16)
		r.receive()
		r.send(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: buf})
		buf[0] = 1
		r.poll(r.sendCQ[0])
		r.poll(r.recvCQ[1])
	},
	"what the poster has done is seen by the goroutine that polls": func(r *raceRig) {
		const n = 500
		state := make([]int, n)
		var done sync.WaitGroup
		done.Go(func() {
			for range n {
				if id := r.poll(r.recvCQ[1]).WRID; state[id] != int(id) {
					r.Errorf("receive %d: %d", id, state[id])
				}
			}
		})
		for i := range n {
			state[i] = i
			wr := uverbs.RecvWR{WRID: uint64(i), SGL: []uverbs.SGE{r.mr[1].SGE(0, raceSize)}}
			r.until(func() bool {
				_, err := r.qp[1].PostRecv(wr)
				return !errors.Is(err, uverbs.ErrQueueFull)
			})
			r.sends()
			r.poll(r.sendCQ[0])
		}
		done.Wait()
	},
	"a flag that is excluded": func(r *raceRig) {
		flag := r.mr[1].Bytes()[:8]
		verbstest.IgnoreRaces(r, flag)
		binaryOne := r.mr[0].Bytes()[:8]
		binaryOne[0] = 1
		wr := r.oneSided(uverbs.OpWrite)
		wr.SGL[0].Length = 8
		word := (*uint64)(unsafe.Pointer(unsafe.SliceData(flag)))
		seen := make(chan bool)
		go func() {
			r.until(func() bool { return atomic.LoadUint64(word) != 0 })
			close(seen)
		}()
		r.send(wr)
		<-seen
		if atomic.LoadUint64(word) != 1 {
			r.Error("the flag was not written")
		}
		r.poll(r.sendCQ[0])
	},
	"a READ whose request comes twice": func(r *raceRig) {
		r.net.AddFault(verbstest.PacketFault{Action: verbstest.Duplicate, From: r.ends[0]})
		for range 20 {
			r.send(r.oneSided(uverbs.OpRead))
			r.poll(r.sendCQ[0])
			r.mr[0].Bytes()[0]++
			r.receive()
			r.sends() // tells the owner that it may write
			r.poll(r.sendCQ[0])
			r.poll(r.recvCQ[1])
			r.mr[1].Bytes()[0]++
		}
	},
	"memory is reused after its region was closed": func(r *raceRig) {
		buf := make([]byte, raceSize)
		mr := must(r.mr[0].PD().RegMR(buf, uverbs.LocalWrite))(r)
		r.receive()
		r.send(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, SGL: []uverbs.SGE{mr.SGE(0, raceSize)}})
		check(r, r.qp[0].Close())
		check(r, mr.Close())
		buf[0] = 1
	},
	"loss and repetition": func(r *raceRig) {
		r.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, Probability: 0.2})
		r.net.AddFault(verbstest.PacketFault{Action: verbstest.Duplicate, Probability: 0.2})
		for i := range 30 {
			r.mr[0].Bytes()[1] = byte(i)
			r.receive()
			r.sends()
			r.poll(r.sendCQ[0])
			if r.poll(r.recvCQ[1]); r.mr[1].Bytes()[1] != byte(i) {
				r.Errorf("message %d has %d", i, r.mr[1].Bytes()[1])
			}
		}
	},
}

const raceVariable = "VERBSTEST_RACE"

// TestRaceProgram runs the program that the environment names. It is for TestRaces.
func TestRaceProgram(t *testing.T) {
	if f := races[os.Getenv(raceVariable)]; f != nil {
		f(newRaceRig(t))
	}
}

// TestRaces checks that the detector reports each race with the lines of the program.
func TestRaces(t *testing.T) {
	source := strings.Split(string(must(os.ReadFile("race_unsafe_test.go"))(t)), "\n")
	for name := range races {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), must(os.Executable())(t), "-test.run=^TestRaceProgram$")
			cmd.Env = append(os.Environ(), raceVariable+"="+name, "GORACE=history_size=7")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "WARNING: DATA RACE") {
				t.Fatalf("the race was not found: %v\n%s", err, out)
			}
			for i, line := range source {
				if strings.HasSuffix(line, "// race: "+name) && !strings.Contains(line, "func(") &&
					!strings.Contains(string(out), fmt.Sprintf("race_unsafe_test.go:%d", i+1)) {
					t.Errorf("the report does not name line %d: %s\n%s", i+1, line, out)
				}
			}
		})
	}
}

// TestNoRaces checks that the detector reports nothing for correct programs.
func TestNoRaces(t *testing.T) {
	for name, f := range correct {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(newRaceRig(t))
		})
	}
}
