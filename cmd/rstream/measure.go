package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// runSeries runs the tests of a series on a connection.
func runSeries(ctx context.Context, connect connector, o *options, s series, out io.Writer) error {
	conn, err := connect(ctx, s.optimization)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	e := &end{conn: conn, client: o.server != "", verify: o.verify}
	for _, t := range s.tests {
		if err == nil {
			err = e.run(t, out)
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return errors.Join(err, conn.Close())
}

// An end is this side of a connection.
type end struct {
	conn     net.Conn
	client   bool
	verify   bool
	buf      []byte
	sent     byte // the next byte to send
	received byte // the next byte to receive
	total    int64
}

// run carries out a test and prints its figures.
func (e *end) run(t test, out io.Writer) error {
	e.buf = make([]byte, max(t.size, 16))
	if err := e.exchange(16, 1); err != nil { // both are ready
		return err
	}
	start := time.Now()
	for range t.iters {
		if err := e.exchange(t.size, t.transfers); err != nil {
			return err
		}
	}
	return t.print(out, time.Since(start))
}

// exchange sends a number of transfers and receives as many, or the other way round.
func (e *end) exchange(size, transfers int) error {
	first, second := e.receive, e.send
	if e.client {
		first, second = second, first
	}
	for range transfers {
		if err := first(e.buf[:size]); err != nil {
			return err
		}
	}
	for range transfers {
		if err := second(e.buf[:size]); err != nil {
			return err
		}
	}
	return nil
}

func (e *end) send(b []byte) error {
	if e.verify {
		for i := range b {
			b[i] = e.sent
			e.sent++
		}
	}
	_, err := e.conn.Write(b)
	return err
}

func (e *end) receive(b []byte) error {
	if _, err := io.ReadFull(e.conn, b); err != nil {
		return err
	}
	if !e.verify {
		return nil
	}
	for i := range b {
		if b[i] != e.received {
			return fmt.Errorf("data verification failed byte %d", e.total+int64(i))
		}
		e.received++
	}
	e.total += int64(len(b))
	return nil
}

// print prints the figures of a test that took d.
func (t test) print(out io.Writer, d time.Duration) error {
	usec := float64(d.Nanoseconds()) / 1000
	bytes := 2 * int64(t.iters) * int64(t.transfers) * int64(t.size)
	_, err := fmt.Fprintf(out, "%-10s%-8s%-8s%-8s%-8s%8.2fs%10.2f%11.2f\n", t.name, sizeText(int64(t.size)),
		countText(t.transfers), countText(t.iters), sizeText(bytes), usec/1e6, float64(bytes*8)/(1000*usec),
		usec/float64(t.iters)/float64(2*t.transfers))
	return err
}
