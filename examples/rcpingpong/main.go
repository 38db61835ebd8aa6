// Rcpingpong sends a message to and fro between two processes, over a reliable
// connection. It speaks the protocol of ibv_rc_pingpong of rdma-core, takes its
// options and prints its lines, so that either end can be the C program.
//
// Server, then client:
//
//	rcpingpong
//	rcpingpong server-host
//
// Beyond the C program it chooses the GID on RoCE (without -g), checks every
// byte of every message (with -c), waits a moment for a server that is just
// starting, and ends cleanly on SIGINT.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"time"

	"github.com/goverbs/goverbs/examples/internal/getopt"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	opt, err := parseOptions(os.Args[1:])
	switch {
	case errors.Is(err, getopt.ErrHelp):
		err = usage(os.Stdout)
	case err == nil:
		err = run(ctx, opt, os.Stdout)
	}
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rcpingpong:", err)
		os.Exit(1)
	}
}

// run is one run of the program: meet the peer, connect the queue pairs, play.
func run(ctx context.Context, opt *options, out io.Writer) (err error) {
	dev, err := uverbs.Open(opt.device)
	if err != nil {
		return err
	}
	// Closing the device lets go of everything that was made from it.
	defer func() { err = errors.Join(err, dev.Close()) }()

	p, err := newPingpong(dev, opt)
	if err != nil {
		return err
	}
	conn, err := p.meet(ctx, out)
	if err != nil {
		return err
	}
	remote, err := p.exchange(ctx, conn)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  remote address: %v\n", remote)
	if !opt.server() {
		if err := p.connect(remote); err != nil {
			return err
		}
	}
	start := time.Now()
	if err := p.play(ctx); err != nil {
		return err
	}
	return report(out, opt, time.Since(start))
}

// meet returns the TCP connection to the peer, and settles and prints the local
// address on the way: before the peer is known where possible.
func (p *pingpong) meet(ctx context.Context, out io.Writer) (net.Conn, error) {
	byPeer := p.opt.gidIndex < 0 && p.port.LinkLayer == uverbs.LinkEthernet
	if !byPeer {
		if err := p.useGID(netip.Addr{}); err != nil {
			return nil, err
		}
	}
	listener, err := listen(ctx, p.opt)
	if err != nil {
		return nil, err
	}
	if !byPeer {
		fmt.Fprintf(out, "  local address:  %v\n", p.local)
	}
	conn, err := dialOrAccept(ctx, p.opt, listener)
	if err != nil || !byPeer {
		return conn, err
	}
	if err := p.useGID(peerAddr(conn)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	fmt.Fprintf(out, "  local address:  %v\n", p.local)
	return conn, nil
}

// report prints the figures as ibv_rc_pingpong does: a message each way counts
// as one iteration.
func report(out io.Writer, opt *options, took time.Duration) error {
	bytes := 2 * int64(opt.size) * int64(opt.iters)
	usec := float64(took) / float64(time.Microsecond)
	_, err := fmt.Fprintf(out, "%d bytes in %.2f seconds = %.2f Mbit/sec\n%d iters in %.2f seconds = %.2f usec/iter\n",
		bytes, usec/1e6, float64(bytes)*8/usec, opt.iters, usec/1e6, usec/float64(opt.iters))
	return err
}
