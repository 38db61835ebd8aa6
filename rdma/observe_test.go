package rdma

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbstest"
)

// A traceEvent is a call of a function of a Trace.
type traceEvent struct {
	name string
	conn *Conn
	err  error
	d    time.Duration
}

// traceTo returns a Trace whose functions send to events.
func traceTo(events chan<- traceEvent) *Trace {
	return &Trace{
		Connected: func(c *Conn) { events <- traceEvent{name: "Connected", conn: c} },
		Ended:     func(c *Conn, err error) { events <- traceEvent{name: "Ended", conn: c, err: err} },
		Stalled:   func(c *Conn, d time.Duration) { events <- traceEvent{name: "Stalled", conn: c, d: d} },
	}
}

// take returns the next event, whose name must be that one.
func take(t *testing.T, events <-chan traceEvent, name string) traceEvent {
	t.Helper()
	select {
	case e := <-events:
		if e.name != name {
			t.Fatalf("%s is called, want %s", e.name, name)
		}
		return e
	case <-time.After(30 * time.Second):
		t.Fatalf("%s is not called", name)
		return traceEvent{}
	}
}

// none fails the test if there is an event.
func none(t *testing.T, events <-chan traceEvent) {
	t.Helper()
	select {
	case e := <-events:
		t.Errorf("%s is called", e.name)
	default:
	}
}

// TestTrace checks that each function of a Trace is called once for what it is for, with the values of the connection.
func TestTrace(t *testing.T) {
	if n := reflect.TypeFor[Trace]().NumField(); n != 3 {
		t.Errorf("Trace has %d functions, and this test knows 3", n)
	}
	events := make(chan traceEvent, 100)
	client, server := honestPair(t, &Options{Depth: 1, Trace: traceTo(events)})
	ctx := bounded(t)
	conns := map[*Conn]bool{take(t, events, "Connected").conn: true, take(t, events, "Connected").conn: true}
	if !conns[client] || !conns[server] {
		t.Error("Connected is not called for each side")
	}
	if err := client.Send(ctx, nil); err != nil {
		t.Fatal(err)
	}
	none(t, events)
	released := make(chan error, 1)
	go func() { // when Send waits
		for !client.waiting() {
			<-time.After(time.Millisecond)
		}
		m, err := server.Recv(ctx)
		m.Release()
		released <- err
	}()
	since := time.Now()
	if err := errors.Join(client.Send(ctx, nil), <-released); err != nil {
		t.Fatal(err)
	}
	if e := take(t, events, "Stalled"); e.conn != client || e.d <= 0 || e.d > time.Since(since) {
		t.Errorf("Stalled(%p, %v) after %v", e.conn, e.d, time.Since(since))
	}
	none(t, events)
	m, err := server.Recv(ctx)
	good(t, m, err).Release()
	go func() { released <- client.Close() }()
	if _, err := server.Recv(ctx); err != io.EOF {
		t.Fatal(err)
	}
	if err := errors.Join(<-released, server.Close(), server.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		e := take(t, events, "Ended")
		if !conns[e.conn] {
			t.Errorf("Ended is called twice, or for another connection")
		}
		delete(conns, e.conn)
		if !errors.Is(e.err, net.ErrClosed) && !errors.Is(e.err, io.EOF) {
			t.Errorf("Ended(%v)", e.err)
		}
	}
	none(t, events)
}

// waiting reports whether a call waits.
func (c *Conn) waiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiters.Leader() != nil
}

// TestTraceOfHostile checks that Ended says what a peer has done.
func TestTraceOfHostile(t *testing.T) {
	events := make(chan traceEvent, 100)
	c, h := hostilePair(t, &Options{Trace: traceTo(events)}, honestHello())
	take(t, events, "Connected")
	h.send(kinds, 0, 0, nil)
	_, err := c.Recv(h.ctx)
	if e := take(t, events, "Ended"); e.conn != c || !errors.Is(e.err, ErrProtocol) || e.err != c.Err() {
		t.Errorf("Ended(%v), Recv returns %v", e.err, err)
	}
	none(t, events)
}

// A logRecord is a record of a logger.
type logRecord struct {
	level slog.Level
	text  string
	attrs map[string]slog.Value
}

// A logHandler keeps records.
type logHandler struct {
	mu      sync.Mutex
	records []logRecord
	arrived chan struct{} // has room for many
}

func newLogHandler() *logHandler { return &logHandler{arrived: make(chan struct{}, 1000)} }

func (h *logHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *logHandler) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *logHandler) WithGroup(string) slog.Handler            { return h }

func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	attrs := map[string]slog.Value{}
	r.Attrs(func(a slog.Attr) bool { attrs[a.Key] = a.Value; return true })
	h.mu.Lock()
	defer h.mu.Unlock()
	h.records = append(h.records, logRecord{r.Level, r.Message, attrs})
	h.arrived <- struct{}{}
	return nil
}

// next waits for n records and returns them.
func (h *logHandler) next(t *testing.T, n int) []logRecord {
	t.Helper()
	for range n {
		select {
		case <-h.arrived:
		case <-time.After(30 * time.Second):
			t.Fatalf("fewer than %d records: %v", n, h.records)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.records) != n {
		t.Errorf("%d records, want %d: %v", len(h.records), n, h.records)
	}
	all := h.records
	h.records = nil
	return all
}

// is checks a record. Its attributes are the addresses, and the error if want is not nil.
func (r *logRecord) is(t *testing.T, level slog.Level, text string, local, peer netip.AddrPort, want error) {
	t.Helper()
	attrs := 2
	if r.level != level || !strings.HasPrefix(r.text, text) {
		t.Errorf("%v %q, want %v %q", r.level, r.text, level, text)
	}
	if want != nil {
		attrs++
		if err, _ := r.attrs["error"].Any().(error); !errors.Is(err, want) {
			t.Errorf("%q: the error is %v, want %v", r.text, r.attrs["error"], want)
		}
	}
	if r.attrs["local"].Any() != local {
		t.Errorf("%q: local is %v, want %v", r.text, r.attrs["local"], local)
	}
	if !peer.IsValid() {
		attrs--
	} else if r.attrs["peer"].Any() != peer {
		t.Errorf("%q: peer is %v, want %v", r.text, r.attrs["peer"], peer)
	}
	if len(r.attrs) != attrs {
		t.Errorf("%q has the attributes %v", r.text, r.attrs)
	}
}

// TestLogger checks the records of a connection that begins and ends.
func TestLogger(t *testing.T) {
	log := newLogHandler()
	client, server := honestPair(t, &Options{Logger: slog.New(log)})
	for _, r := range log.next(t, 2) {
		c := client
		if r.attrs["local"].Any() != client.LocalAddr() {
			c = server
		}
		r.is(t, slog.LevelDebug, "rdma: connected", c.LocalAddr(), c.RemoteAddr(), nil)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	r := log.next(t, 1)[0]
	r.is(t, slog.LevelDebug, "rdma: connection ended", server.LocalAddr(), server.RemoteAddr(), net.ErrClosed)
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	r = log.next(t, 1)[0]
	r.is(t, slog.LevelDebug, "rdma: connection ended", client.LocalAddr(), client.RemoteAddr(), client.Err())
}

// TestLoggerOfHostile checks the records of a peer that breaks the protocol.
func TestLoggerOfHostile(t *testing.T) {
	log := newLogHandler()
	c, h := hostilePair(t, &Options{Logger: slog.New(log)}, honestHello())
	log.next(t, 1)
	h.send(kinds, 0, 0, nil)
	if _, err := c.Recv(h.ctx); !errors.Is(err, ErrProtocol) {
		t.Fatal(err)
	}
	all := log.next(t, 2)
	all[0].is(t, slog.LevelDebug, "rdma: connection ended", c.LocalAddr(), c.RemoteAddr(), ErrProtocol)
	all[1].is(t, slog.LevelWarn, "rdma: the peer breaks the protocol", c.LocalAddr(), c.RemoteAddr(), ErrProtocol)
}

// TestLoggerOfServe checks the records of Serve: peers that are refused and handlers that return errors. Without a
// logger, the default one gets those of handlers.
func TestLoggerOfServe(t *testing.T) {
	for _, byDefault := range []bool{false, true} {
		log := newLogHandler()
		o := &Options{Logger: slog.New(log)}
		if byDefault {
			old := slog.Default()
			defer slog.SetDefault(old)
			slog.SetDefault(o.Logger)
			o.Logger = nil
		}
		n := verbstest.NewNetwork(t)
		here, there := n.Machine(), n.Machine()
		ctx, cancel := context.WithCancel(bounded(t))
		served := make(chan error, 1)
		handled := errors.New("of the handler")
		var l *Listener
		there.Run(func() {
			var err error
			l, err = Listen(":7471", listening(o))
			good(t, l, err)
			go func() {
				served <- l.Serve(ctx, func(context.Context, *Conn) error { return handled })
			}()
		})
		addr := there.AddrPort(7471)
		here.Run(func() {
			if _, err := cm.Dial(ctx, addr.String(), nil); !errors.Is(err, cm.ErrRejected) {
				t.Errorf("a peer without a hello: %v", err)
			}
			if !byDefault {
				r := log.next(t, 1)[0]
				peer, _ := r.attrs["peer"].Any().(netip.AddrPort)
				if peer.Addr() != here.Addr() || peer.Port() == 0 {
					t.Errorf("refused %v", peer)
				}
				r.is(t, slog.LevelWarn, "rdma: refused", l.Addr(), peer, ErrProtocol)
			}
			c, err := Dial(ctx, addr.String(), nil)
			good(t, c, err)
			records := 3 // connected, ended, and the error
			if byDefault {
				records = 1
			}
			all := log.next(t, records)
			all[records-1].is(t, slog.LevelWarn, "rdma: serve "+c.LocalAddr().String(), l.Addr(), netip.AddrPort{}, handled)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
		log.next(t, 0)
	}
}
