// Package pingpong contains the common part of the pingpong programs: the command line, the exchange of addresses over
// TCP, and the counting and checking of messages. Each program creates and connects its own QPs and sends its own
// messages.
//
// The programs have the options and output of rdma-core's ibv_rc_pingpong and its
// variants, so either end can be the C program. Unlike the C programs they choose
// the GID on RoCE (without -g), check every byte of every message (with -c), wait
// a moment for a server that is starting, stop after ten seconds without a
// message, and end cleanly on SIGINT.
package pingpong

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/internal/getopt"
	"github.com/goverbs/goverbs/uverbs"
)

// An End is the part that differs between the programs.
type End interface {
	// Open creates the queues, with their QPs in state INIT.
	Open(dev *uverbs.Context, port *uverbs.PortAttr) (*Queues, error)
	// Connect moves a QP to RTS, for messages from local to remote. av is the
	// address vector of remote.
	Connect(qp int, local, remote Address, av uverbs.AHAttr) error
	// Send posts the message on a QP.
	Send(qp int) error
}

// A session is one run of a program.
type session struct {
	opt   *Options
	end   End
	dev   *uverbs.Context
	port  *uverbs.PortAttr
	game  *game
	local []Address // of each QP
	gid   uint8     // index of the local GID
}

// Run runs a program: it parses the command line, which has the options of table,
// exchanges addresses with the peer, connects the QPs and exchanges the messages.
func Run(ctx context.Context, opt *Options, args []string, table []getopt.Option, end End, out io.Writer) error {
	switch err := opt.parse(args, table); {
	case errors.Is(err, getopt.ErrHelp):
		return opt.usage(out, table)
	case err != nil:
		return err
	}
	err := run(ctx, opt, end, out)
	if ctx.Err() != nil {
		return context.Cause(ctx) // err is a consequence of it
	}
	return err
}

func run(ctx context.Context, opt *Options, end End, out io.Writer) (err error) {
	dev, err := uverbs.Open(opt.Device)
	if err != nil {
		return err
	}
	// Closing the device closes all objects created on it.
	defer func() { err = errors.Join(err, dev.Close()) }()

	s, err := open(dev, opt, end)
	if err != nil {
		return err
	}
	conn, err := s.openConn(ctx, out)
	if err != nil {
		return err
	}
	remote, err := exchange(ctx, conn, opt.server(), s.local, s.connect)
	if err != nil {
		return err
	}
	for i := range s.game.QPs {
		fmt.Fprintf(out, "  remote address: %v\n", remote[i])
	}
	if !opt.server() {
		if err := s.connect(remote); err != nil {
			return err
		}
	}
	start := time.Now()
	if err := s.game.play(ctx); err != nil {
		return err
	}
	return report(out, opt, time.Since(start))
}

// open creates the QPs and posts receives, so that messages can arrive as soon as
// the QPs are connected.
func open(dev *uverbs.Context, opt *Options, end End) (*session, error) {
	port, err := dev.QueryPort(opt.IBPort)
	if err != nil {
		return nil, err
	}
	if port.LinkLayer != uverbs.LinkEthernet && port.LID == 0 {
		return nil, fmt.Errorf("port %d of %s has no LID: the subnet manager has not configured it yet",
			opt.IBPort, dev.Name())
	}
	q, err := end.Open(dev, port)
	if err != nil {
		return nil, err
	}
	s := &session{opt: opt, end: end, dev: dev, port: port, game: newGame(opt, q, end.Send)}
	s.local = make([]Address, max(len(q.QPs), q.Records))
	for i, qp := range q.QPs {
		s.local[i] = Address{LID: port.LID, QPN: qp.QPN(), PSN: rand.Uint32N(1 << 24)}
	}
	return s, s.game.postReceives()
}

// openConn returns the TCP connection to the peer. It also chooses the local GID
// and prints the local addresses: before there is a connection, unless the choice
// depends on the peer's address.
func (s *session) openConn(ctx context.Context, out io.Writer) (net.Conn, error) {
	byPeer := s.opt.GIDIndex < 0 && s.port.LinkLayer == uverbs.LinkEthernet
	if !byPeer {
		if err := s.useGID(netip.Addr{}); err != nil {
			return nil, err
		}
	}
	listener, err := listen(ctx, s.opt)
	if err != nil {
		return nil, err
	}
	if !byPeer {
		s.printLocal(out)
	}
	conn, err := dialOrAccept(ctx, s.opt, listener)
	if err != nil || !byPeer {
		return conn, err
	}
	if err := s.useGID(peerAddr(conn)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s.printLocal(out)
	return conn, nil
}

func (s *session) printLocal(out io.Writer) {
	for i := range s.game.QPs {
		fmt.Fprintf(out, "  local address:  %s\n", s.opt.LocalText(s.local[i]))
	}
}

// connect connects all QPs to those of the peer.
func (s *session) connect(remote []Address) error {
	n := len(s.game.QPs)
	theirs := 0
	for theirs < len(remote) && remote[theirs].QPN != 0 {
		theirs++
	}
	if theirs != n {
		return fmt.Errorf("the peer has %d queue pairs, not %d: use the same -q at both ends", theirs, n)
	}
	for i := range n {
		av, err := s.path(remote[i])
		if err != nil {
			return err
		}
		if err := s.end.Connect(i, s.local[i], remote[i], av); err != nil {
			return err
		}
	}
	return nil
}

// report prints the result as the C programs do. One message in each direction
// counts as one iteration.
func report(out io.Writer, opt *Options, took time.Duration) error {
	bytes := 2 * int64(opt.Size) * int64(opt.Iters)
	usec := float64(took) / float64(time.Microsecond)
	_, err := fmt.Fprintf(out, "%d bytes in %.2f seconds = %.2f Mbit/sec\n%d iters in %.2f seconds = %.2f usec/iter\n",
		bytes, usec/1e6, float64(bytes)*8/usec, opt.Iters, usec/1e6, usec/float64(opt.Iters))
	return err
}
