package rstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/goverbs/goverbs/internal/getopt"
)

// Run runs the program.
func (p *Program) Run(ctx context.Context, args []string, out io.Writer) (err error) {
	opt, err := p.parse(args)
	switch {
	case errors.Is(err, getopt.ErrHelp):
		return p.usage(out)
	case err != nil:
		return err
	}
	connect := opt.dial
	if opt.server == "" {
		l, err := opt.listen(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		connect = l.accept
	}
	if err := writeHeader(out); err != nil {
		return err
	}
	for _, s := range opt.series() {
		err := opt.runSeries(ctx, connect, s, func(e *end, t test) error {
			d, err := p.measure(e, t)
			if err != nil {
				return err
			}
			return t.write(out, d)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// runSeries runs the tests of a series on a connection.
func (o *options) runSeries(ctx context.Context, connect connector, s series, run func(*end, test) error) error {
	conn, err := connect(ctx, s.optimization)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	e := &end{conn: conn, client: o.server != "", ctx: ctx, verify: o.verify}
	for _, t := range s.tests {
		if err == nil {
			err = run(e, t)
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
	ctx      context.Context // of the program
	verify   bool
	sent     byte // the next byte to send
	received byte // the next byte to receive
	total    int64
}

// fill fills data that is to be sent, if it is verified: with bytes that count up, through all data.
func (e *end) fill(b []byte) {
	if !e.verify {
		return
	}
	for i := range b {
		b[i] = e.sent
		e.sent++
	}
}

// verifyData checks data that was received, if it is verified. After an error the same data can be checked again.
//
//go:norace
func (e *end) verifyData(b []byte) error {
	if !e.verify {
		return nil
	}
	for i := range b {
		if b[i] != e.received+byte(i) {
			return fmt.Errorf("data verification failed byte %d", e.total+int64(i))
		}
	}
	e.received += byte(len(b))
	e.total += int64(len(b))
	return nil
}
