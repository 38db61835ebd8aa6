package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// sizes are those of the standard tests.
var sizes = []int{1 << 6, 1 << 7, 1<<7 + 1<<6, 1 << 8, 1<<8 + 1<<7, 1 << 9, 1<<9 + 1<<8, 1 << 10, 1<<10 + 1<<9}

const (
	controlTimeout = time.Second      // before a control message is repeated
	echoTimeout    = time.Millisecond // before a datagram is
	patience       = 10 * time.Second // without a reply
)

// measure runs the tests against a server.
func measure(ctx context.Context, opt *options, out io.Writer) (err error) {
	_, err = fmt.Fprintf(out, "%-10s%-8s%-8s%-8s%8s %10s%13s\n",
		"name", "bytes", "xfers", "total", "time", "Gb/sec", "usec/xfer")
	if err != nil {
		return err
	}
	conn, err := opt.dial(ctx)
	if err != nil {
		return err
	}
	defer closeWith(conn, &err)
	defer endWith(ctx, conn)()
	c := &client{ctx: ctx, conn: conn, out: out, msg: make([]byte, maxMessage), reply: make([]byte, maxMessage)}
	for i := range c.msg[headerLen:] {
		c.msg[headerLen+i] = byte(i * 7)
	}
	c.msg.setOp(opLogin)
	if err := c.exchange(controlLen, controlTimeout); err != nil {
		return cause(ctx, err)
	}
	c.msg.setClient(c.reply.client())
	for _, t := range opt.tests() {
		if err := c.run(t); err != nil {
			return cause(ctx, fmt.Errorf("%s: %w", t.name, err))
		}
	}
	return nil
}

// A test is one line of the output.
type test struct {
	name        string
	size, count int
	echo        bool
}

// tests returns the tests that the options select.
func (o *options) tests() (tests []test) {
	if o.custom {
		return []test{{"custom", o.size, o.count, o.echo}}
	}
	for _, n := range sizes {
		tests = append(tests, test{sizeText(n) + "_lat", n, countFor(n) / 10, true})
	}
	for _, n := range sizes {
		tests = append(tests, test{sizeText(n) + "_bw", n, countFor(n), false})
	}
	return tests
}

// countFor returns the number of datagrams of the standard tests.
func countFor(size int) int {
	if size >= 1<<10 {
		return 10_000
	}
	return 100_000
}

// A client is one run of the tests.
type client struct {
	ctx   context.Context
	conn  packetConn
	out   io.Writer
	msg   message // what is sent
	reply message // what has been received
	seq   byte
}

func (c *client) run(t test) error {
	c.msg.setOp(opStart)
	if err := c.exchange(controlLen, controlTimeout); err != nil {
		return err
	}
	start := time.Now()
	c.msg.setOp(opData)
	if t.echo {
		c.msg.setOp(opEcho)
	}
	for range t.count {
		var err error
		if t.echo {
			err = c.exchange(t.size, echoTimeout)
		} else {
			_, err = c.conn.Write(c.msg[:t.size])
		}
		if err != nil {
			return err
		}
	}
	c.msg.setOp(opEnd)
	if err := c.exchange(controlLen, echoTimeout); err != nil {
		return err
	}
	return c.print(t, time.Since(start))
}

// exchange sends a message of n bytes until its reply arrives. A message that is repeated may have several replies.
func (c *client) exchange(n int, timeout time.Duration) error {
	c.seq++
	c.msg.setSeq(c.seq)
	for start := time.Now(); time.Since(start) < patience; {
		if _, err := c.conn.Write(c.msg[:n]); err != nil {
			return err
		}
		ok, err := c.receive(n, timeout)
		if ok || err != nil {
			return err
		}
	}
	return fmt.Errorf("the server does not reply for %v", patience)
}

// receive waits for the reply to the last message, and reports whether it has come.
func (c *client) receive(n int, timeout time.Duration) (bool, error) {
	if c.ctx.Err() != nil {
		return false, context.Cause(c.ctx)
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return false, err
	}
	for {
		got, err := c.conn.Read(c.reply)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return false, nil
		case err != nil:
			return false, err
		case got < headerLen || c.reply.seq() != c.seq || c.reply.op() != c.msg.op():
			continue // late
		case got != n:
			return false, fmt.Errorf("the reply has %d bytes, not %d", got, n)
		case c.reply.op() == opEcho && !bytes.Equal(c.reply[headerLen:n], c.msg[headerLen:n]):
			return false, fmt.Errorf("the echo of %d bytes differs from what was sent: it was changed on the way, or at the "+
				"server", n)
		}
		return true, nil
	}
}

// print prints the line of a test. As in C, an echo is two transfers, and otherwise those that have arrived count.
func (c *client) print(t test, d time.Duration) error {
	transfers := int(c.reply.count())
	if t.echo {
		transfers = 2 * t.count
	}
	total := transfers * t.size
	us := float64(d.Microseconds())
	_, err := fmt.Fprintf(c.out, "%-10s%-8s%-8s%-8s%8.2fs%10.2f%11.2f\n", t.name, sizeText(t.size), countText(transfers),
		sizeText(total), us/1e6, float64(total)*8/(1000*us), us/float64(transfers))
	return err
}

// sizeText returns a number of bytes as 64, 1k or 1.5k.
func sizeText(n int) string {
	unit, letter := 1, ""
	switch {
	case n >= 1<<30:
		unit, letter = 1<<30, "g"
	case n >= 1<<20:
		unit, letter = 1<<20, "m"
	case n >= 1<<10:
		unit, letter = 1<<10, "k"
	}
	if tenths := n % unit * 10 / unit; tenths > 0 && n/unit < 10 {
		return fmt.Sprintf("%d.%d%s", n/unit, tenths, letter)
	}
	return fmt.Sprintf("%d%s", n/unit, letter)
}

// countText returns a number as 64, 1k or 10k.
func countText(n int) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%db", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%dm", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%dk", n/1e3)
	}
	return fmt.Sprint(n)
}
