package rping

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// A faulty is a network with a client and a server that meet a fault.
type faulty struct {
	*testing.T
	net            *verbstest.Network
	server, client *verbstest.Machine
}

// pings is how many pings a client runs. A fault during the pings begins after midway.
const pings, midway = 20, 5

// A meeting is a fault and what the programs report. Without errors, they must succeed.
type meeting struct {
	name           string
	before, during func(f *faulty)
	client         []error // that the client's error is
	server         []error // one of which the server's error is; nil: no error
	text           string  // in the client's error
	serverText     string  // in the server's
	// waits is set if the server waits for its peer, as on a real network, until it is interrupted.
	waits bool
}

var errInterrupted = errors.New("interrupted by the test")

// trigger calls f once it has been written to n times.
type trigger struct {
	bytes.Buffer
	n int
	f func()
}

func (w *trigger) Write(b []byte) (int, error) {
	if w.n--; w.n == 0 && w.f != nil {
		w.f()
	}
	return w.Buffer.Write(b)
}

// start starts the server, which listens when start returns. interrupt ends it.
func (f *faulty) start(ctx context.Context) (served <-chan error, interrupt func()) {
	f.Helper()
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan error, 1)
	f.server.Run(func() {
		opt, err := parseOptions([]string{"-s", "-V"})
		if err != nil {
			f.Fatal(err)
		}
		l, err := listen(ctx, opt)
		if err != nil {
			f.Fatal(err)
		}
		go func() { done <- serveAll(ctx, l, opt, io.Discard) }()
	})
	return done, func() { cancel(errInterrupted) }
}

func newFaulty(t *testing.T) *faulty {
	f := &faulty{T: t, net: verbstest.NewNetwork(t)}
	f.server, f.client = f.net.Machine(), f.net.Machine()
	f.net.SetTimeouts(verbstest.Timeouts{Reply: 20 * time.Millisecond, Repeats: 15, Ack: 13})
	return f
}

// meet runs both programs. Each returns what its main function would print.
func (m *meeting) meet(t *testing.T) (client, server error) {
	f := newFaulty(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	served, interrupt := f.start(ctx)
	defer interrupt()
	if m.before != nil {
		m.before(f)
	}
	out := &trigger{n: midway}
	if m.during != nil {
		out.f = func() { m.during(f) }
	}
	f.client.Run(func() {
		client = run(ctx, []string{"-c", "-v", "-V", "-C", fmt.Sprint(pings), "-a", f.server.Addr().String()}, out)
	})
	if m.waits {
		interrupt()
	}
	server = <-served
	if ctx.Err() != nil {
		t.Errorf("the programs did not end: client %v, server %v", client, server)
	}
	if lines := strings.Count(out.String(), "\n"); client == nil && lines != pings {
		t.Errorf("%d pings, want %d", lines, pings)
	}
	if out.n > 0 && m.during != nil {
		t.Error("the client ended before the fault")
	}
	return client, server
}

// judge checks what a program reports.
func judge(t *testing.T, program string, err error, want []error, text string) {
	t.Helper()
	if len(want) == 0 && text == "" && err != nil {
		t.Errorf("%s: %v, want no error", program, err)
	}
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("%s: %v, want %v", program, err, w)
		}
	}
	if text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
		t.Errorf("%s: %v, want …%s…", program, err, text)
	}
}

// packets returns a fault of all packets of the network.
func packets(p verbstest.PacketFault) func(*faulty) { return func(f *faulty) { f.net.AddFault(p) } }

// messages returns a fault of messages between connection managers.
func messages(h verbstest.HandshakeFault) func(*faulty) {
	return func(f *faulty) { f.net.AddHandshakeFault(h) }
}

// edited returns a fault that changes a message.
func edited(m verbstest.HandshakeMessage, edit func(*verbstest.Handshake)) func(*faulty) {
	return messages(verbstest.HandshakeFault{Message: m, Edit: edit})
}

// limited returns a fault of the client's machine.
func limited(l verbstest.Limits) func(*faulty) { return func(f *faulty) { f.client.SetLimits(l) } }

var (
	interrupted = []error{errInterrupted}
	cut         = []error{errInterrupted, uverbs.WCRetryExcErr} // with or without an acknowledgement to wait for
	noReply     = []error{uverbs.WCRetryExcErr}
)

var meetings = []meeting{
	{name: "none"},
	{name: "a lost packet", before: packets(verbstest.PacketFault{Action: verbstest.Drop, Skip: 3, Count: 1})},
	{name: "loss", before: packets(verbstest.PacketFault{Action: verbstest.Drop, Probability: 0.1})},
	{name: "repeated packets", before: packets(verbstest.PacketFault{Action: verbstest.Duplicate})},
	{name: "late packets",
		before: packets(verbstest.PacketFault{Action: verbstest.Delay, Delay: 100 * time.Microsecond})},
	{name: "packets out of order", before: packets(verbstest.PacketFault{Action: verbstest.Reorder, Probability: 0.2})},
	{name: "no packet arrives", during: packets(verbstest.PacketFault{Action: verbstest.Drop}),
		client: noReply, server: []error{nil, uverbs.WCRetryExcErr, errDisconnected}},
	{name: "refused command", before: func(f *faulty) { f.client.Refuse("REG_MR", unix.EPERM) },
		client: []error{unix.EPERM}, text: "register memory", waits: true, server: interrupted},
	{name: "refused command of the server", before: func(f *faulty) { f.server.Refuse("QP.CREATE", unix.ENOMEM) },
		client: []error{cm.ErrRejected}, server: []error{unix.ENOMEM}, serverText: "create QP"},
	{name: "slow kernel", before: func(f *faulty) {
		f.client.SetCommandTime(time.Millisecond)
		f.server.SetCommandTime(2 * time.Millisecond)
	}},
	{name: "failed completion", during: func(f *faulty) { f.client.FailCompletion(nil, uverbs.WCRemOpErr, 0) },
		client: []error{uverbs.WCRemOpErr}, text: "ping 5", server: []error{nil, uverbs.WCRetryExcErr, errDisconnected}},
	{name: "failed completion of the server",
		during: func(f *faulty) { f.server.FailCompletion(nil, uverbs.WCLocProtErr, 0) },
		client: []error{errDisconnected}, server: []error{uverbs.WCLocProtErr}},
	{name: "cable pulled", during: func(f *faulty) { f.client.SetPort(false) },
		client: noReply, waits: true, server: cut},
	{name: "cable pulled and plugged in", during: func(f *faulty) {
		f.server.SetPort(false)
		f.server.SetPort(true)
	}},
	{name: "device removed", during: func(f *faulty) { f.client.RemoveDevice() },
		client: []error{uverbs.ErrDeviceGone}, waits: true, server: cut},
	{name: "device of the server removed", during: func(f *faulty) { f.server.RemoveDevice() },
		client: noReply, server: []error{uverbs.ErrDeviceGone}},
	{name: "limit on locked memory", before: limited(verbstest.Limits{Memlock: 8 << 10}),
		client: []error{uverbs.ErrMemlock}, text: "RLIMIT_MEMLOCK is 8192 bytes", waits: true, server: interrupted},
	{name: "no region left", before: limited(verbstest.Limits{MRs: 1}),
		client: []error{unix.ENOMEM}, text: "register memory", waits: true, server: interrupted},
	{name: "no CQ left", before: limited(verbstest.Limits{CQs: 1}),
		client: []error{unix.ENOMEM}, text: "the device no object left", waits: true, server: interrupted},
	{name: "limit of contexts", before: limited(verbstest.Limits{Objects: 2}),
		client: []error{unix.EAGAIN}, text: "hca_object", waits: true, server: interrupted},
	{name: "peer killed", during: func(f *faulty) { f.server.Kill() },
		client: noReply, server: []error{uverbs.ErrDeviceGone}},
	{name: "partition", during: func(f *faulty) { f.net.Partition(f.server, f.client) },
		client: noReply, waits: true, server: cut},
	{name: "partition from the beginning", before: func(f *faulty) { f.net.Partition(f.server, f.client) },
		client: []error{cm.ErrTimeout}, text: "resolve address", waits: true, server: interrupted},
	{name: "healed partition", during: func(f *faulty) { f.net.Partition(f.server, f.client)() }},
	{name: "peer never replies",
		before: messages(verbstest.HandshakeFault{Message: verbstest.REQ, Action: verbstest.Drop}),
		client: []error{cm.ErrUnreachable, cm.ErrTimeout}, waits: true, server: interrupted},
	{name: "lost request", before: messages(verbstest.HandshakeFault{Action: verbstest.Drop, Count: 1})},
	{name: "late messages",
		before: messages(verbstest.HandshakeFault{Action: verbstest.Delay, Delay: 2 * time.Millisecond})},
	{name: "repeated messages", before: messages(verbstest.HandshakeFault{Action: verbstest.Duplicate})},
	{name: "reply with a wrong QPN", before: breaking(verbstest.Destination,
		edited(verbstest.REP, func(h *verbstest.Handshake) { h.QPN ^= 0x800000 })), client: noReply},
	{name: "reply with a wrong PSN", before: breaking(verbstest.Connection,
		edited(verbstest.REP, func(h *verbstest.Handshake) { h.PSN ^= 0x700000 })), client: noReply},
	{name: "request with absurd depths", before: edited(verbstest.REQ, func(h *verbstest.Handshake) {
		h.ResponderResources, h.InitiatorDepth = 255, 255
	})},
	{name: "request without depths", before: breaking(verbstest.BadRequest,
		edited(verbstest.REQ, func(h *verbstest.Handshake) { h.ResponderResources, h.InitiatorDepth = 0, 0 })),
		client: []error{errDisconnected}, server: []error{uverbs.WCLocQPOpErr}, serverText: "MaxRdAtomic 0"},
}

// breaking returns a fault that makes the programs break rule r.
func breaking(r verbstest.Rule, fault func(f *faulty)) func(f *faulty) {
	return func(f *faulty) {
		f.net.Allow(r)
		fault(f)
	}
}

// TestFaults checks what the program reports when it meets each fault of package verbstest, that it ends, and that
// it leaves nothing behind.
func TestFaults(t *testing.T) {
	for _, m := range meetings {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			client, server := m.meet(t)
			t.Logf("client: %v", client)
			t.Logf("server: %v", server)
			judge(t, "client", client, m.client, m.text)
			one := m.server
			if i := slices.IndexFunc(m.server, func(e error) bool { return errors.Is(server, e) }); i >= 0 {
				one = m.server[i:][:1]
			}
			if len(one) == 1 && one[0] == nil {
				one = nil
			}
			judge(t, "server", server, one, m.serverText)
		})
	}
}

// TestEveryCommandFails fails each command of either program in turn.
func TestEveryCommandFails(t *testing.T) {
	for _, side := range []string{"client", "server"} {
		t.Run(side, func(t *testing.T) {
			t.Parallel()
			machine := func(f *faulty) *verbstest.Machine {
				if side == "client" {
					return f.client
				}
				return f.server
			}
			total := 0
			var counted *verbstest.Machine
			count := meeting{before: func(f *faulty) { counted = machine(f) }}
			if client, server := count.meet(t); client != nil || server != nil {
				t.Fatalf("without a fault: %v, %v", client, server)
			}
			if total = counted.Commands(); total < 10 {
				t.Fatalf("%d commands", total)
			}
			reported := 0
			for n := range total {
				m := meeting{waits: side == "client", before: func(f *faulty) { machine(f).FailCommand(n+1, unix.ENOMEM) }}
				client, server := m.meet(t)
				own, peer := client, server
				if side == "server" {
					own, peer = server, client
				}
				switch {
				case errors.Is(own, unix.ENOMEM):
					reported++
				case own != nil && !(side == "client" && errors.Is(own, cm.ErrRejected)):
					t.Errorf("command %d: %v, and the peer %v", n+1, own, peer)
				}
			}
			if t.Logf("%d of %d failures are reported", reported, total); reported < total/2 {
				t.Error("most failures are not reported")
			}
		})
	}
}
