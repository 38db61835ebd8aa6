package fabric

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// framed returns a frame as encoded in a stream.
func framed(f []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(f))), f...)
}

// readFramed reads a frame from a stream.
func readFramed(t *testing.T, r io.Reader) []byte {
	t.Helper()
	var n [4]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		t.Fatal(err)
	}
	f := make([]byte, binary.BigEndian.Uint32(n[:]))
	if _, err := io.ReadFull(r, f); err != nil {
		t.Fatal(err)
	}
	return f
}

func write(t *testing.T, w io.Writer, b []byte) {
	t.Helper()
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
}

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, Config{})
		qemu, ours := net.Pipe()
		p, err := w.sw.Stream("qemu", ours)
		if err != nil {
			t.Fatal(err)
		}
		in := makeFrame(broadcast, mac(9), "hello")
		for _, b := range framed(in) { // byte by byte
			write(t, qemu, []byte{b})
		}
		write(t, qemu, append(framed(nil), framed(makeFrame(mac(0), mac(9), "again"))...))
		synctest.Wait()
		w.expect([]string{"hello", "again"})
		w.send(0, 9, "reply")
		if got, want := readFramed(t, qemu), makeFrame(mac(9), mac(0), "reply"); !bytes.Equal(got, want) {
			t.Errorf("got % x, want % x", got, want)
		}
		w.loop.Run(func() {
			if c := p.Counters(); c.Sent != 2 || c.Malformed != 1 || c.Received != 1 {
				t.Errorf("%+v", c)
			}
		})
		if p.Err() != nil {
			t.Error(p.Err())
		}
		if err := qemu.Close(); err != nil {
			t.Fatal(err)
		}
		<-p.Done()
		if p.Err() != nil || p.Up() {
			t.Errorf("after the other side has closed: error %v, up: %v", p.Err(), p.Up())
		}
		if err := errors.Join(p.Close(), w.sw.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestStreamThatDoesNotRead checks that a guest that does not read loses frames
// and does not delay others.
func TestStreamThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, Config{})
		qemu, ours := net.Pipe()
		p, err := w.sw.Stream("qemu", ours)
		if err != nil {
			t.Fatal(err)
		}
		w.send(0, 9, "being written")
		synctest.Wait()
		for range queuedFrames + 5 {
			w.send(0, 9, "x")
		}
		w.loop.Run(func() {
			if c := p.Counters(); c.Overflow != 5 {
				t.Errorf("%+v", c)
			}
		})
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(w.sw.Close(), qemu.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestStreamMalformed checks that malformed data ends the port with an error.
func TestStreamMalformed(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes []byte
	}{
		{"too long", []byte{0, 1, 0, 22}},
		{"text", []byte("GET / HTTP/1.0\r\n")},
		{"cut in the length", []byte{0, 0}},
		{"cut before the frame", []byte{0, 0, 0, 20}},
		{"cut in the frame", framed(make([]byte, 20))[:10]},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 1, Config{})
			qemu, ours := net.Pipe()
			p, err := w.sw.Stream("qemu", ours)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := qemu.Write(c.bytes); err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Fatal(err)
			}
			if err := qemu.Close(); err != nil {
				t.Fatal(err)
			}
			<-p.Done()
			if !errors.Is(p.Err(), ErrProtocol) {
				t.Errorf("%s: %v", c.name, p.Err())
			}
			w.loop.Run(func() {
				if len(w.sw.Ports()) != 1 {
					t.Errorf("%s: the port still exists", c.name)
				}
			})
			if err := w.sw.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// bounded sets a deadline for a socket.
func bounded[C interface{ SetDeadline(time.Time) error }](t *testing.T, c C) C {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestListen(t *testing.T) {
	w := newWorld(t, 1, Config{})
	path := filepath.Join(t.TempDir(), "switch")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.sw.Listen("guest", l, func(err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	var guests []net.Conn
	for i := range 2 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		guests = append(guests, bounded(t, conn))
		write(t, conn, framed(makeFrame(broadcast, mac(i+1), "hello")))
		if i == 1 {
			readFramed(t, guests[0]) // of the second one
		}
		w.until("the frame came", func() bool { return len(w.got[0]) == i+1 })
	}
	w.loop.Run(func() {
		var names []string
		for _, p := range w.sw.Ports() {
			names = append(names, p.Name)
		}
		if want := []string{"a", "guest#1", "guest#2"}; !slices.Equal(names, want) {
			t.Errorf("ports %v, want %v", names, want)
		}
	})
	if err := w.sw.Close(); err != nil {
		t.Error(err)
	}
	for _, g := range guests { // they get an EOF
		if _, err := io.Copy(io.Discard, g); err != nil {
			t.Error(err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	a, b := net.Pipe()
	if _, err := w.sw.Stream("closed", a); !errors.Is(err, ErrClosed) {
		t.Errorf("a port of a closed switch: %v", err)
	}
	if _, err := b.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the socket was not closed: %v", err)
	}
	if l, err = net.Listen("unix", path); err != nil {
		t.Fatal(err)
	}
	if err := w.sw.Listen("closed", l, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("a listener of a closed switch: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener was not closed: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// datagramPair returns a switch's socket and a guest's, connected by path as
// with -netdev dgram's local and remote.
func datagramPair(t *testing.T) (ours, guest *net.UnixConn) {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) *net.UnixAddr {
		return &net.UnixAddr{Name: filepath.Join(dir, name), Net: "unixgram"}
	}
	ours, err := net.ListenUnixgram("unixgram", at("switch"))
	if err != nil {
		t.Fatal(err)
	}
	guest, err = net.DialUnix("unixgram", at("guest"), at("switch"))
	if err != nil {
		t.Fatal(err)
	}
	return ours, bounded(t, guest)
}

// until waits for a condition in the loop.
func (w *world) until(what string, f func() bool) {
	w.t.Helper()
	for limit := time.Now().Add(20 * time.Second); ; {
		var is bool
		w.loop.Run(func() { is = f() })
		if is {
			return
		}
		if time.Now().After(limit) {
			w.t.Fatalf("not in time: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}

func TestDatagram(t *testing.T) {
	w := newWorld(t, 1, Config{})
	ours, guest := datagramPair(t)
	p, err := w.sw.Datagram("guest", ours)
	if err != nil {
		t.Fatal(err)
	}
	w.send(0, 9, "no destination yet")
	w.until("the frame is lost", func() bool { return p.Counters().LinkDown == 1 })
	for _, b := range [][]byte{{}, {1}, make([]byte, MaxFrame+1), makeFrame(broadcast, mac(9), "hello")} {
		write(t, guest, b)
	}
	w.until("the frame came", func() bool { return len(w.got[0]) == 1 })
	w.expect([]string{"hello"})
	w.send(0, 9, "reply")
	b := make([]byte, 100)
	n, err := guest.Read(b)
	if want := makeFrame(mac(9), mac(0), "reply"); err != nil || !bytes.Equal(b[:n], want) {
		t.Errorf("got % x and %v, want % x", b[:n], err, want)
	}
	w.loop.Run(func() {
		if c := p.Counters(); c.Malformed != 3 || c.Sent != 1 {
			t.Errorf("%+v", c)
		}
	})
	if err := guest.Close(); err != nil {
		t.Fatal(err)
	}
	w.send(0, 9, "no peer") // the port continues
	w.until("the frame is lost", func() bool { return p.Counters().LinkDown == 2 })
	if err := p.Close(); err != nil || p.Err() != nil {
		t.Error(err, p.Err())
	}
	if err := w.sw.Close(); err != nil {
		t.Error(err)
	}
}

// TestDatagramConnected checks that a connected socket has its peer from the
// start.
func TestDatagramConnected(t *testing.T) {
	w := newWorld(t, 1, Config{})
	ours, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("udp4", ours.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer := bounded(t, ours)
	p, err := w.sw.Datagram("guest", conn.(*net.UDPConn))
	if err != nil {
		t.Fatal(err)
	}
	w.send(0, 9, "first")
	b := make([]byte, 100)
	n, from, err := peer.ReadFrom(b)
	if want := makeFrame(mac(9), mac(0), "first"); err != nil || !bytes.Equal(b[:n], want) {
		t.Fatalf("got % x and %v, want % x", b[:n], err, want)
	}
	if _, err := peer.WriteTo(makeFrame(mac(0), mac(9), "reply"), from); err != nil {
		t.Fatal(err)
	}
	w.until("the reply came", func() bool { return len(w.got[0]) == 1 })
	if err := peer.Close(); err != nil {
		t.Fatal(err)
	}
	w.send(0, 9, "refused")
	w.send(0, 9, "and again")
	w.until("the port counts it", func() bool { return p.Counters().LinkDown+p.Counters().Malformed > 0 })
	if p.Err() != nil {
		t.Error(p.Err())
	}
	if err := w.sw.Close(); err != nil {
		t.Error(err)
	}
}

func TestSocketErrors(t *testing.T) {
	w := newWorld(t, 1, Config{})
	a, b := net.Pipe()
	if _, err := w.sw.Stream("a", a); !errors.Is(err, ErrExists) {
		t.Errorf("a name twice: %v", err)
	}
	if _, err := b.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the socket was not closed: %v", err)
	}
	if err := errors.Join(b.Close(), w.sw.Close(), w.sw.Close()); err != nil {
		t.Error(err)
	}
}
