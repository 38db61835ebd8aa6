package rsocket_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/uverbs"
)

// A stoppedWriter waits in its first Write until it may return.
type stoppedWriter struct {
	entered, leave chan struct{}
	first          bool
}

func newStoppedWriter() *stoppedWriter {
	return &stoppedWriter{make(chan struct{}), make(chan struct{}), true}
}

func (w *stoppedWriter) Write(b []byte) (int, error) {
	if w.first {
		w.first = false
		close(w.entered)
		<-w.leave
	}
	return len(b), nil
}

// TestCopiedDataIsStable has a peer that changes its data while io.Copy hands it to two Writers. Both are given the
// same.
func TestCopiedDataIsStable(t *testing.T) {
	const before, after = "pay 1 to alice", "pay 9 to malle"
	for _, role := range roles {
		t.Run(role, func(t *testing.T) {
			c, h := rawPair(t, role, rsocket.Config{}, rawConfig{})
			at := h.target
			h.data([]byte(before))
			var first, second bytes.Buffer
			between := newStoppedWriter()
			done := background(func() error {
				_, err := io.Copy(io.MultiWriter(&first, between, &second), c)
				return err
			})
			<-between.entered
			h.write(at, []byte(after))
			close(between.leave)
			h.control(0)
			check(t, within(t, done, "Copy"))
			if first.String() != before || second.String() != before {
				t.Errorf("the Writers are given %q and %q", &first, &second)
			}
		})
	}
}

// TestCallsBesideCopies writes while ReadFrom waits for its Reader, and reads while WriteTo waits for its Writer.
func TestCallsBesideCopies(t *testing.T) {
	p := connect(t, rsocket.Config{}, rsocket.Config{})
	r, w := io.Pipe()
	sent := background(func() error { _, err := p.client.ReadFrom(r); return err })
	must(w.Write([]byte("from the Reader, ")))(t)
	read(t, p.server, []byte("from the Reader, "))
	check(t, within(t, background(func() error { _, err := p.client.Write([]byte("beside it")); return err }), "Write"))
	read(t, p.server, []byte("beside it"))
	check(t, w.Close())
	check(t, within(t, sent, "ReadFrom"))

	slow := newStoppedWriter()
	received := background(func() error { _, err := p.client.WriteTo(slow); return err })
	write(t, p.server, []byte("for the Writer"))
	<-slow.entered
	write(t, p.server, []byte("beside it"))
	check(t, within(t, background(func() error {
		got := make([]byte, len("beside it"))
		_, err := io.ReadFull(p.client, got)
		return same(got, []byte("beside it"), err)
	}), "Read"))
	close(slow.leave)
	check(t, p.server.CloseWrite())
	check(t, within(t, received, "WriteTo"))
}

// A miscounter is a Reader and a Writer that returns wrong counts.
type miscounter int

func (m miscounter) Read(b []byte) (int, error)  { return m.count(b), nil }
func (m miscounter) Write(b []byte) (int, error) { return m.count(b), nil }

func (m miscounter) count(b []byte) int {
	if m > 0 {
		return len(b) + int(m)
	}
	return int(m)
}

// TestWrongCounts checks that ReadFrom and WriteTo refuse counts that cannot be, and that the connection works on.
func TestWrongCounts(t *testing.T) {
	for _, m := range []miscounter{-1, 1, 1 << 20} {
		p := connect(t, rsocket.Config{}, rsocket.Config{})
		n, err := p.client.ReadFrom(m)
		isError(t, err, uverbs.ErrInvalid)
		write(t, p.server, []byte("lost"))
		k, err := p.client.WriteTo(m)
		isError(t, err, uverbs.ErrInvalid)
		if n != 0 || k != 0 {
			t.Errorf("%d bytes were read, %d were written", n, k)
		}
		p.exchange(t, data(300000))
	}
}

// TestShortWriter checks that WriteTo reports a Writer that accepts less, and counts what it has accepted.
func TestShortWriter(t *testing.T) {
	p := connect(t, rsocket.Config{}, rsocket.Config{})
	write(t, p.server, []byte("data"))
	n, err := p.client.WriteTo(shortWriter{})
	if n != 1 || err != io.ErrShortWrite {
		t.Errorf("WriteTo returns %d, %v", n, err)
	}
}

type shortWriter struct{}

func (shortWriter) Write([]byte) (int, error) { return 1, nil }

// TestEmptyCalls reads and writes nothing, as package net does in the same states.
func TestEmptyCalls(t *testing.T) {
	type conn interface {
		net.Conn
		CloseWrite() error
	}
	steps := []struct {
		name string
		do   func(here, there conn) error
	}{
		{"when open", func(_, _ conn) error { return nil }},
		{"after the deadline", func(here, _ conn) error { return here.SetDeadline(time.Unix(1, 0)) }},
		{"without deadline", func(here, _ conn) error { return here.SetDeadline(time.Time{}) }},
		{"after the peer's CloseWrite", func(_, there conn) error { return there.CloseWrite() }},
		{"after Close", func(here, _ conn) error { return here.Close() }},
	}
	p := connect(t, rsocket.Config{}, rsocket.Config{})
	here, there := tcpPair(t)
	for _, s := range steps {
		check(t, s.do(here, there))
		check(t, s.do(p.client, p.server))
		for name, f := range map[string]func(net.Conn) (int, error){
			"Read":  func(c net.Conn) (int, error) { return c.Read(nil) },
			"Write": func(c net.Conn) (int, error) { return c.Write(nil) },
		} {
			_, want := f(here)
			n, got := f(p.client)
			if n != 0 || !sameKind(got, want) {
				t.Errorf("%s %s: %d, %v; package net returns %v", name, s.name, n, got, want)
			}
		}
	}
}

// sameKind reports whether two errors of calls are nil, or both timeouts, or both of closed connections.
func sameKind(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	var t1, t2 net.Error
	timeouts := errors.As(a, &t1) && t1.Timeout() == (errors.As(b, &t2) && t2.Timeout())
	return timeouts && errors.Is(a, net.ErrClosed) == errors.Is(b, net.ErrClosed)
}

// tcpPair returns the ends of a TCP connection.
func tcpPair(t *testing.T) (here, there *net.TCPConn) {
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	here = must(net.Dial("tcp", l.Addr().String()))(t).(*net.TCPConn)
	there = must(l.Accept())(t).(*net.TCPConn)
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	return here, there
}

// TestWriteBuffers writes buffers of many lengths, and then as many as a deadline permits: what is left has not been
// written.
func TestWriteBuffers(t *testing.T) {
	config := rsocket.Config{RecvBuffer: 4096, SendBuffer: 4096}
	p := connect(t, config, config)
	var all []byte
	var v net.Buffers
	for _, n := range []int{0, 1, 63, 1, 0, 1024, 5000, 70000, 0} {
		v = append(v, data(n))
		all = append(all, data(n)...)
	}
	wrote := background(func() error {
		n, err := p.client.WriteBuffers(&v)
		if err == nil && (n != int64(len(all)) || len(v) > 0) {
			err = errors.New("buffers are left")
		}
		return err
	})
	read(t, p.server, all)
	check(t, within(t, wrote, "WriteBuffers"))

	v = net.Buffers{nil, {}}
	if n, err := p.client.WriteBuffers(&v); n != 0 || err != nil || len(v) > 0 {
		t.Errorf("empty buffers: %d, %v, and %d are left", n, err, len(v))
	}

	v = slices.Repeat(net.Buffers{data(1000)}, 100)
	check(t, p.client.SetWriteDeadline(time.Now().Add(10*time.Millisecond)))
	n, err := p.client.WriteBuffers(&v)
	if err == nil {
		t.Fatal("100000 bytes fit into the buffers")
	}
	left := 0
	for _, b := range v {
		left += len(b)
	}
	if left != 100000-int(n) {
		t.Errorf("%d of 100000 bytes were written, and %d are left", n, left)
	}
	check(t, p.client.SetWriteDeadline(time.Time{}))
	read(t, p.server, bytes.Repeat(data(1000), 100)[:n])
}

// TestNothingToCopy checks that ReadFrom reports no error of a connection that has ended if its Reader has no more
// data, as in package net.
func TestNothingToCopy(t *testing.T) {
	p := connect(t, rsocket.Config{}, rsocket.Config{})
	check(t, p.server.Close())
	isEOF(t, p.client)
	n, err := p.client.ReadFrom(bytes.NewReader(nil))
	if n != 0 || err != nil {
		t.Errorf("ReadFrom returns %d, %v", n, err)
	}
}
