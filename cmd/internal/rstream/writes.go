package rstream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

// measureWrites carries out a test of riostream.
func measureWrites(e *end, t test) (d time.Duration, err error) {
	w := &writer{end: e, conn: e.conn.(*rsocket.Conn), in: make([]byte, t.size), out: make([]byte, t.size)}
	// The last byte is a marker: the number of the turn. The first one is 0.
	w.in[t.size-1], w.out[t.size-1] = 0xff, 0xff
	m, err := w.conn.MapMemory(w.in, 0)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	if err := w.sync(); err != nil {
		return 0, err
	}
	start := time.Now()
	for turn := range 2 * t.iters {
		if mine := turn%2 == 0 == e.client; mine {
			err = w.send(byte(turn), t.transfers)
		} else {
			err = w.receive(byte(turn))
		}
		if err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// A writer is this side in one test.
type writer struct {
	*end
	conn *rsocket.Conn
	in   []byte // the peer writes to it
	out  []byte
}

// sync waits until both sides have mapped their memory. The C program receives the message into that memory. If a
// transfer is not longer than the message, a zero in the message would be taken for the first marker.
func (w *writer) sync() error {
	message := bytes.Repeat([]byte{0xff}, syncSize)
	receive := func() error {
		_, err := io.ReadFull(w.conn, message)
		return err
	}
	if !w.client {
		if err := receive(); err != nil {
			return err
		}
	}
	if _, err := w.conn.Write(message); err != nil || !w.client {
		return err
	}
	return receive()
}

// send writes a number of transfers to the peer's memory. Only the last one has the marker.
func (w *writer) send(marker byte, transfers int) error {
	last := len(w.out) - 1
	for left := transfers; left > 0; left-- {
		if left == 1 {
			w.out[last] = marker
			w.fill(w.out[:last])
		}
		if _, err := w.conn.WriteAt(w.out, 0); err != nil {
			return err
		}
	}
	return nil
}

// receive waits until the peer has written the marker.
func (w *writer) receive(marker byte) error {
	last := len(w.in) - 1
	for polls := 1; load(w.in, last) != marker; polls++ {
		if polls%1024 == 0 {
			if err := w.check(marker); err != nil {
				return err
			}
			runtime.Gosched()
		}
	}
	return w.verify(w.in[:last])
}

// verify checks the bytes before the marker. rxe may copy a packet from its end, so they may come later.
func (w *writer) verify(b []byte) error {
	for polls := 1; ; polls++ {
		if err := w.verifyData(b); err == nil || polls == latePolls {
			return err
		}
		runtime.Gosched()
	}
}

// latePolls is how often the data is checked after the marker has come.
const latePolls = 1 << 18

// check returns an error if the peer will not write the marker any more.
func (w *writer) check(marker byte) error {
	select {
	case <-w.ctx.Done():
		return context.Cause(w.ctx)
	case <-w.conn.CM().Disconnected():
		if load(w.in, len(w.in)-1) != marker { // it may have come since the last poll
			return io.ErrUnexpectedEOF
		}
	default:
	}
	return nil
}

// load reads a byte that the device writes, in every call. As far as the race detector sees, nothing orders the two.
//
//go:noinline
//go:norace
func load(b []byte, i int) byte { return b[i] }
