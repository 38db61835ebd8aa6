package valkeyrdma_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
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

// A client never sends more messages than the server has receives, also if the server is busy for long.
func TestReceivesLimit(t *testing.T) {
	h, c := established(t, valkeyrdma.Config{})
	const writes = 5000
	written := background(func() error {
		for range writes {
			if _, err := c.Write([]byte("x")); err != nil {
				return err
			}
		}
		return nil
	})
	// The server posts no receive until as many messages wait as the client sends without a reply.
	ctx := limit(t)
	waiting := 0
	for got := 0; got < writes; {
		wc := must(h.conn.RecvComp(ctx))(t)
		if waiting++; waiting > rawReceives {
			t.Fatalf("%d messages wait", waiting)
		}
		if wc.Opcode == uverbs.WCRecvRDMAImm {
			got++
		}
		check(t, h.postReceive(wc.WRID))
		if wc.Opcode == uverbs.WCRecv { // the question
			waiting = 0
			h.send(h.command(0))
		}
	}
	check(t, <-written)
}

// Receives are posted again, and a sign of life is sent, while no call waits.
func TestKeepAlive(t *testing.T) {
	h, c := established(t, valkeyrdma.Config{KeepAlive: time.Millisecond})
	for range 3 * rawReceives {
		if !h.send(h.command(2)) {
			t.Fatal("the connection has ended")
		}
	}
	for range 3 {
		for {
			if op, _ := h.receive(); op == 2 {
				break
			}
		}
	}
	check(t, c.Close())
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
