// Echo-ud replies to datagrams over RDMA. Clients find the server by a multicast group.
//
//	echo-ud [-m GROUP] [-b LOCAL] serve
//	echo-ud [-m GROUP] [-b LOCAL] [-n COUNT] [-s BYTES] ping
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/netip"
	"os"
	"os/signal"
	"syscall"
	"time"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rdma"
)

func main() {
	var o rdma.GroupOptions
	group := flag.String("m", "239.1.2.3", "group")
	flag.TextVar(&o.LocalAddr, "b", netip.Addr{}, "address of the device; without it, the routing table decides")
	count := flag.Int("n", 10, "pings")
	size := flag.Int("s", 64, "bytes of a ping")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Arg(0), *group, &o, *count, *size, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, mode, group string, o *rdma.GroupOptions, count, size int, out io.Writer) error {
	if mode != "serve" && mode != "ping" {
		return errors.New("usage: echo-ud serve|ping")
	}
	g, err := rdma.JoinGroup(ctx, group, o)
	if err != nil {
		return err
	}
	if mode == "serve" {
		return errors.Join(serve(ctx, g), g.Close())
	}
	return errors.Join(pings(ctx, g, count, size, out), g.Close())
}

// serve sends each datagram back until ctx ends.
func serve(ctx context.Context, g *rdma.Group) error {
	for {
		d, err := g.Recv(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := g.SendTo(ctx, d.Bytes(), d.From()); err != nil {
			log.Print(err)
		}
		d.Release()
	}
}

// pings finds a server, and measures the time until it replies. If it does not, pings looks for a server again.
func pings(ctx context.Context, g *rdma.Group, count, size int, out io.Writer) error {
	var server rdma.Peer
	lost, sum, lo, hi := 0, time.Duration(0), time.Hour, time.Duration(0)
	for i := range count {
		for try := 0; server == (rdma.Peer{}); try++ { // a datagram may be lost
			from, err := echo(ctx, g, 11*i+try, size, func(b []byte) error { return g.Send(ctx, b) })
			if server = from; err == nil {
				fmt.Fprintln(out, "found a server:", from)
			} else if try == 9 || ctx.Err() != nil {
				return fmt.Errorf("no server replies in the group: %w", err)
			}
		}
		start := time.Now()
		_, err := echo(ctx, g, 11*i+10, size, func(b []byte) error { return g.SendTo(ctx, b, server) })
		switch d := time.Since(start); {
		case err == nil:
			sum, lo, hi = sum+d, min(lo, d), max(hi, d)
		case ctx.Err() != nil:
			return err
		default:
			lost++
			server = rdma.Peer{}
		}
	}
	mean := sum / time.Duration(max(count-lost, 1))
	_, err := fmt.Fprintf(out, "%d pings, %d lost; min/avg/max %v/%v/%v\n", count, lost, lo, mean, hi)
	return err
}

// echo sends a datagram with a number and waits for it to come back. It returns who has sent it.
func echo(ctx context.Context, g *rdma.Group, number, size int, send func([]byte) error) (rdma.Peer, error) {
	b := make([]byte, max(size, 8))
	binary.LittleEndian.PutUint64(b, uint64(number))
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if err := send(b); err != nil {
		return rdma.Peer{}, err
	}
	for {
		d, err := g.Recv(ctx)
		if err != nil {
			return rdma.Peer{}, err
		}
		same, from := string(d.Bytes()) == string(b), d.From()
		d.Release()
		if same {
			return from, nil
		}
	}
}
