package perftest

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/uverbs"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// wires returns the two ends of a TCP connection.
func wires(t *testing.T) (client, server *tcpWire) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	client, server = newTCPWire(c), newTCPWire(s)
	t.Cleanup(func() { client.close(); server.close() })
	return client, server
}

func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func normalized(t *testing.T, name string, args ...string) *Options {
	t.Helper()
	test, ok := TestNamed(name)
	if !ok {
		t.Fatalf("no test %s", name)
	}
	o, err := Parse(test, args)
	if err == nil {
		err = o.normalize()
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// The two ends agree on the larger buffers and the smaller MTU.
func TestAgree(t *testing.T) {
	cw, sw := wires(t)
	ctx := limited(t)
	co, so := normalized(t, "send_lat", "host"), normalized(t, "send_lat")
	co.mtu, so.mtu, co.cycle, so.cacheLine = uverbs.MTU4096, uverbs.MTU1024, 65536, 128
	c, s := &control{wire: cw, client: true, withGID: true}, &control{wire: sw, withGID: true}
	done := make(chan error, 1)
	go func() { done <- s.agree(ctx, so) }()
	if err := errors.Join(c.agree(ctx, co), <-done); err != nil {
		t.Fatal(err)
	}
	for _, o := range []*Options{co, so} {
		if o.mtu != uverbs.MTU1024 || o.cycle != 65536 || o.cacheLine != 128 {
			t.Errorf("MTU %v, cycle %d, line %d", o.mtu, o.cycle, o.cacheLine)
		}
	}
	for said, want := range map[bwReport]bwReport{
		{64, 10, 1, 2, 3}:                        {64, 10, 1, 2, 3},
		{64, 10, math.Inf(1), math.NaN(), -0.01}: {64, 10, 0, 0, 0},
	} {
		go func() {
			_, err := s.reports(ctx, said)
			done <- err
		}()
		r, err := c.reports(ctx, bwReport{})
		if err = errors.Join(err, <-done); err != nil || r != want {
			t.Errorf("%+v: %+v, %v", said, r, err)
		}
	}
}

// Errors for unexpected data of a peer.
func TestPeersMistakes(t *testing.T) {
	versions := "6.24\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x10\x00" + "\x00\x00\x00@"
	for _, c := range []struct{ says, want string }{
		{"SSH-2.0-OpenSSH_9.2p1 Debian\r\n", `does not use perftest's protocol: it sent "SSH-2.0-OpenSSH_"`},
		{"5.60\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "the peer is perftest 5.60, and version 5.70 is the oldest"},
		{seen, "--dont_xchg_versions at the peer"},
		{"6.24", "the peer has ended the connection"},
		{versions[:16] + "\x7f\x00\x00\x00\x00\x00\x00@", "it is not perftest"},
		{versions + "9\x00", `MTU is "9\x00"`},
		{versions + "5\x00" + string(seenKeys.text(false)), "-x at the peer: the peer uses no GID"},
		{versions + "5\x00" + strings.Repeat("z", gidKeys), "the peer's keys are not in perftest's format"},
		{versions + "5\x00" + seen + seen, "-q at the peer: the peer has fewer queue pairs than the 2 here"},
	} {
		cw, sw := wires(t)
		o := normalized(t, "send_bw", "-q", "2", "host")
		o.mtu = uverbs.MTU4096
		go func() {
			_ = sw.send(context.Background(), []byte(c.says)) // fails if the other end has closed the connection
			_ = sw.conn.(*net.TCPConn).CloseWrite()
		}()
		ctl := &control{wire: cw, client: true, withGID: true}
		err := ctl.agree(limited(t), o)
		if err == nil {
			e := &endpoint{o: o, ctl: ctl, qps: []*queue{{}, {}}}
			err = e.swapAll(limited(t))
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.30q: %v, want %s", c.says, err, c.want)
		}
	}
}

// A peer with more queue pairs, and one that uses a GID where this end does not.
func TestKeysMismatch(t *testing.T) {
	other := seenKeys
	other.qpn++
	for _, c := range []struct {
		withGID    bool
		says, want string
	}{
		{true, string(other.text(true)), "-q at the peer: the peer's keys are not those of its first queue pair"},
		{false, seen, "-x here: the peer uses a GID"},
	} {
		cw, sw := wires(t)
		if err := sw.send(limited(t), []byte(c.says)); err != nil {
			t.Fatal(err)
		}
		ctl := &control{wire: cw, client: true, withGID: c.withGID, peer: &seenKeys}
		if err := ctl.syncSoon(limited(t), keys{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
}

// A wait for a peer that sends nothing ends with its context.
func TestSilentPeer(t *testing.T) {
	cw, _ := wires(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errSilentPeer)
	if err := cw.receive(ctx, make([]byte, 4)); err != errSilentPeer {
		t.Error(err)
	}
}

// Messages that arrive together are received separately.
func TestMessagesInOnePiece(t *testing.T) {
	cw, sw := wires(t)
	if err := sw.send(limited(t), []byte("onetwo")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"one", "two"} {
		b := make([]byte, 3)
		if err := cw.receive(limited(t), b); err != nil || string(b) != want {
			t.Errorf("%q, %v", b, err)
		}
	}
	if n, err := cw.state(); n != 0 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// The deadline of a message does not remain on the connection: the syncs at the end of
// a long test have none.
func TestSendDeadline(t *testing.T) {
	_, w := wires(t)
	why := errors.New("the time is up")
	early, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, why)
	defer cancel()
	<-early.Done()
	if err := w.send(early, []byte("early")); !errors.Is(err, why) {
		t.Errorf("after its time: %v", err)
	}
	if err := w.send(t.Context(), []byte("late")); err != nil {
		t.Errorf("without a time: %v", err)
	}
}
