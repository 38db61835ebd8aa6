package valkeyrdma_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/valkeyrdma"
)

// Bytes arrive in order, however they are written and read, in both directions at once.
func TestStream(t *testing.T) {
	const total = 4 << 20
	client, server := connect(t, valkeyrdma.Config{RecvBuffer: 1 << 16})
	var ended []<-chan error
	for seed, ends := range [][2]net.Conn{{client, server}, {server, client}} {
		ended = append(ended,
			background(func() error { return writePattern(ends[0], uint64(seed), total) }),
			background(func() error { return readPattern(ends[1], uint64(seed), total) }))
	}
	for _, e := range ended {
		check(t, <-e)
	}
	check(t, client.Close())
	if n, err := server.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("after the end: %d, %v", n, err)
	}
	_, err := server.Write([]byte("x"))
	isError(t, err, syscall.ECONNRESET)
}

// pattern fills b with the bytes of a stream from an offset on.
func pattern(b []byte, seed uint64, off int) {
	for i := range b {
		b[i] = byte(seed + uint64((off+i)*31+(off+i)>>11))
	}
}

func writePattern(w io.Writer, seed uint64, total int) error {
	r := rand.New(rand.NewPCG(seed, 1))
	for off := 0; off < total; {
		b := make([]byte, min(total-off, 1+int(r.ExpFloat64()*3000)))
		pattern(b, seed, off)
		if n, err := w.Write(b); err != nil || n != len(b) {
			return errors.Join(err, io.ErrShortWrite)
		}
		off += len(b)
	}
	return nil
}

func readPattern(r io.Reader, seed uint64, total int) error {
	random := rand.New(rand.NewPCG(seed, 2))
	for off := 0; off < total; {
		got := make([]byte, 1+random.IntN(20000))
		n, err := r.Read(got)
		if err != nil {
			return err
		}
		want := make([]byte, n)
		if pattern(want, seed, off); !bytes.Equal(got[:n], want) {
			return errors.New("other bytes than were written")
		}
		off += n
	}
	return nil
}

// A client never sends more messages than the server has receives, also if the server is busy for long. While data
// waits for that, the client announces its buffer again.
func TestReceivesLimit(t *testing.T) {
	h, c := established(t, valkeyrdma.Config{RecvBuffer: 1 << 16})
	const writes = 5000
	sent, question := 0, 1
	for {
		check(t, c.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
		n, err := write(c, writes-sent)
		isError(t, err, os.ErrDeadlineExceeded) // the server posts no receive, and does not reply
		if sent += n; n == 0 && sent > rawReceives-32 {
			break
		}
	}
	if sent+question > rawReceives {
		t.Fatalf("%d messages wait", sent+question)
	}
	if !h.write(0, nil, h.length) {
		t.Fatal("the connection has ended")
	}
	must(io.CopyN(io.Discard, c, int64(h.length)))(t)
	h.mute = true
	got := 0
	for op := -1; op != 3; {
		var n int
		op, n = h.receive()
		got += max(n, 0)
	}
	h.mute = false
	h.send(h.command(0))
	check(t, c.SetWriteDeadline(time.Time{}))
	written := background(func() error { _, err := write(c, writes-sent); return err })
	for got < writes {
		_, n := h.receive()
		got += n
	}
	check(t, <-written)
}

// write writes a byte n times, or as often as it can.
func write(c net.Conn, n int) (int, error) {
	for i := range n {
		if _, err := c.Write([]byte("x")); err != nil {
			return i, err
		}
	}
	return n, nil
}

// A new buffer of the server shows that it has read all data, and nothing about the commands after that.
func TestReceivesOfCommands(t *testing.T) {
	const commands = 10
	h, c := established(t, valkeyrdma.Config{})
	must(c.Write(make([]byte, rawBuffer)))(t)
	valkeyrdma.SendKeepAlives(c, commands)
	h.send(h.register(h.mr.Addr(), rawBuffer, h.mr.RKey()))
	must(c.Write([]byte("x")))(t)
	if n := valkeyrdma.Unconfirmed(c); n != commands+1 {
		t.Errorf("%d messages, want %d", n, commands+1)
	}
}

// Receives are posted again, and a sign of life is sent, while no call waits.
func TestKeepAlive(t *testing.T) {
	h, c := established(t, valkeyrdma.Config{KeepAlive: time.Hour})
	for range 6 {
		for range rawReceives / 2 {
			if !h.send(h.command(2)) {
				t.Fatal("the connection has ended")
			}
		}
		valkeyrdma.Probe(c)
	}
	for op := -1; op != 2; {
		op, _ = h.receive()
	}
	check(t, c.Close())
}

// The timer posts receives again, also if it sends no sign of life, or seldom.
func TestNoKeepAlive(t *testing.T) {
	for _, d := range []time.Duration{-1, 24 * time.Hour} {
		if got, err := valkeyrdma.TimerInterval(d); err != nil || got <= 0 || got > 10*time.Minute {
			t.Errorf("KeepAlive %v: the timer runs every %v, %v", d, got, err)
		}
	}
	h, c := established(t, valkeyrdma.Config{KeepAlive: -1})
	for i := range rawReceives + 1 {
		if i == rawReceives {
			valkeyrdma.FireTimer(c)
		}
		if !h.send(h.command(2)) {
			t.Fatal("the connection has ended")
		}
	}
	check(t, c.Close())
}

// A peer whose device does not reply ends the connection, which Close also says.
func TestSilentPeer(t *testing.T) {
	p := machines(t)
	client, _ := p.connect(t, valkeyrdma.Config{KeepAlive: time.Hour})
	p.network.Partition(p.here, p.there)
	must(client.Write([]byte("x")))(t)
	read := background(func() error { _, err := client.Read(make([]byte, 1)); return err })
	for range 6 {
		valkeyrdma.Probe(client)
	}
	err := <-read
	isError(t, err, valkeyrdma.ErrPeerSilent)
	isError(t, err, syscall.ECONNRESET)
	err = client.Close()
	isError(t, err, valkeyrdma.ErrNotReceived)
	isError(t, err, valkeyrdma.ErrPeerSilent)
}

// Close waits until the peer has received everything.
func TestCloseSoon(t *testing.T) {
	const total = 4 << 20
	client, server := connect(t, valkeyrdma.Config{})
	read := background(func() error { return readPattern(server, 1, total) })
	check(t, writePattern(client, 1, total))
	check(t, client.Close())
	check(t, <-read)
}

// Close says that the peer has not acknowledged what was written.
func TestCloseUnreceived(t *testing.T) {
	p := machines(t)
	client, _ := p.connect(t, valkeyrdma.Config{})
	p.network.Partition(p.here, p.there)
	must(client.Write([]byte("x")))(t)
	isError(t, client.Close(), valkeyrdma.ErrNotReceived)
}

// Close waits for a call that has completions and has not handled them yet: they are in the memory.
func TestCloseWaits(t *testing.T) {
	h, c := established(t, valkeyrdma.Config{})
	begun, polled, waits, goOn := valkeyrdma.HoldPoll(c)
	read := background(func() error { _, err := c.Read(make([]byte, 1)); return err })
	<-begun
	if !h.send(h.command(2)) {
		t.Fatal("the connection has ended")
	}
	<-polled
	closed := background(c.Close)
	select {
	case <-waits:
	case err := <-closed:
		t.Fatalf("Close has returned %v while a call handles completions", err)
	}
	close(goOn)
	check(t, <-closed)
	isError(t, <-read, net.ErrClosed)
}

// A timer that runs while Close releases the memory handles no completions.
func TestTimerInClose(t *testing.T) {
	h, c := established(t, valkeyrdma.Config{})
	if !h.write(0, []byte("x"), 1) {
		t.Fatal("the connection has ended")
	}
	if n := valkeyrdma.ProbeInClose(c); n != 0 {
		t.Errorf("%d bytes were handled", n)
	}
	must(c.Read(make([]byte, 1)))(t)
}

// Write counts only what the device was told of.
func TestRefusedRequest(t *testing.T) {
	client, _ := connect(t, valkeyrdma.Config{})
	valkeyrdma.FailInline(client, 4096)
	if n, err := client.Write(make([]byte, 4096)); n != 0 || !errors.Is(err, uverbs.ErrInlineTooLong) {
		t.Errorf("%d, %v", n, err)
	}
	check(t, client.Close())
}

// Close wakes the calls that wait, and is idempotent.
func TestClose(t *testing.T) {
	h, c := established(t, valkeyrdma.Config{})
	read := background(func() error { _, err := c.Read(make([]byte, 1)); return err })
	written := background(func() error { _, err := c.Write(make([]byte, 10<<20)); return err })
	for data := 0; data < rawBuffer; { // all that there is room for
		_, n := h.receive()
		data += n
	}
	check(t, c.Close())
	isError(t, <-read, net.ErrClosed)
	isError(t, <-written, net.ErrClosed)
	check(t, c.Close())
	isError(t, c.SetDeadline(time.Now()), net.ErrClosed)
}

// What is wrong before there is a connection.
func TestDialErrors(t *testing.T) {
	p := machines(t)
	p.here.Run(func() {
		_, err := valkeyrdma.DialContext(limit(t), p.addr())
		isError(t, err, syscall.ECONNREFUSED)
		_, err = valkeyrdma.DialCtxFn(t.Context(), p.addr(), &net.Dialer{Timeout: time.Nanosecond}, nil)
		isError(t, err, context.DeadlineExceeded)
		_, err = valkeyrdma.DialCtxFn(limit(t), p.addr(), nil, new(tls.Config))
		isError(t, err, uverbs.ErrNotSupported)
		for _, size := range []int{-1, 1, 1<<16 - 1, 1<<30 + 1} {
			d := valkeyrdma.Dialer{Config: valkeyrdma.Config{RecvBuffer: size}}
			_, err = d.DialContext(limit(t), p.addr())
			isError(t, err, uverbs.ErrInvalid)
			var op *net.OpError
			if !errors.As(err, &op) {
				t.Errorf("%T is no net.OpError", err)
			}
		}
	})
}
