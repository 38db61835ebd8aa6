// Rkv is a key-value store over RDMA: PUT is a call, and GET reads the server's table without the server's program.
//
//	rkv serve ADDR | rkv put ADDR KEY VALUE | rkv get ADDR KEY | rkv bench ADDR
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rdma"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 2 && args[0] == "serve" {
		return serve(ctx, args[1])
	}
	if len(args) < 2 {
		return errors.New("usage: rkv serve|put|get|bench ADDR ...")
	}
	c := &client{Client: rdma.NewClient(args[1], rdma.ClientOptions[rdma.Token]{Conns: 4, Setup: receiveToken})}
	defer c.Close()
	switch {
	case args[0] == "put" && len(args) == 4:
		version, err := c.put(ctx, args[2], []byte(args[3]))
		fmt.Fprintln(out, "version", version)
		return err
	case args[0] == "get" && len(args) == 3:
		r, err := c.get(ctx, args[2])
		fmt.Fprintf(out, "%s (version %d)\n", r.Value, r.Version)
		return err
	case args[0] == "bench" && len(args) == 2:
		return bench(ctx, c, 200, out)
	}
	return errors.New("usage: rkv serve|put|get|bench ADDR ...")
}

// serve shares the table with each client, and carries out its calls.
func serve(ctx context.Context, addr string) error {
	t := &table{Region: rdma.NewRegion(slots * slotSize)}
	l, err := rdma.Listen(addr, nil)
	if err != nil {
		return err
	}
	log.Printf("serving %d slots at %v", slots, l.Addr())
	err = l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
		if _, err := c.SendToken(ctx, t.Region, rdma.CanRead); err != nil {
			return err
		}
		return c.ServeCalls(ctx, t.put)
	})
	return errors.Join(err, t.Close())
}

// A client has a few connections, and the token of the table for each.
type client struct {
	*rdma.Client[rdma.Token]
	torn atomic.Int64 // slots that were written while they were read
}

func receiveToken(ctx context.Context, c *rdma.Conn) (rdma.Token, error) { return c.RecvToken(ctx) }

// put stores a value. If the connection ends, it calls again: to store it twice only changes its version.
func (c *client) put(ctx context.Context, key string, value []byte) (version uint64, err error) {
	r := record{Key: key, Value: value}
	request := r.encode()
	if key == "" || len(request) > slotSize {
		return 0, errLength
	}
	err = c.Retry(ctx, func(ctx context.Context, conn *rdma.Conn, _ rdma.Token) error {
		m, err := conn.Call(ctx, request)
		if err != nil {
			return err
		}
		defer m.Release()
		if version = le.Uint64(m.Bytes()); version == 0 {
			return errFull
		}
		return nil
	})
	return version, err
}

// get reads the slots where the key may be.
func (c *client) get(ctx context.Context, key string) (r record, err error) {
	err = c.Retry(ctx, func(ctx context.Context, conn *rdma.Conn, t rdma.Token) error {
		var b [slotSize]byte
		for i := 0; i < probes; {
			if err := conn.Read(ctx, b[:], t, home(key, i)); err != nil {
				return err
			}
			var torn bool
			if r, torn = decode(b[:]); torn {
				c.torn.Add(1)
				continue
			}
			if r.Key == key {
				return nil
			}
			i++
		}
		return errNotFound
	})
	return r, err
}

// bench has 64 workers that put and get a key of their own and one that all use, and check what they get.
func bench(ctx context.Context, c *client, rounds int, out io.Writer) error {
	const workers = 64
	errs := make(chan error, workers)
	var lost atomic.Int64 // values that a server that was restarted does not have
	start := time.Now()
	for w := range workers {
		go func() { errs <- work(ctx, c, fmt.Sprint("worker-", w), rounds, &lost) }()
	}
	var err error
	for range workers {
		err = errors.Join(err, <-errs)
	}
	rate := workers * 10 * float64(rounds) / time.Since(start).Seconds()
	fmt.Fprintf(out, "%.0f operations/s; %d torn reads, %d values lost by restarts\n", rate, c.torn.Load(), lost.Load())
	return err
}

func work(ctx context.Context, c *client, key string, rounds int, lost *atomic.Int64) error {
	for i := range rounds {
		value := fmt.Sprintf("%s:%d:%0*d", key, i, rand.IntN(300), i)
		for _, k := range []string{key, "common"} {
			if _, err := c.put(ctx, k, []byte(value)); err != nil {
				return fmt.Errorf("put %s: %w", k, err)
			}
		}
		for range 4 {
			r, err := c.get(ctx, key)
			if errors.Is(err, errNotFound) {
				lost.Add(1)
			} else if err != nil || string(r.Value) != value {
				return fmt.Errorf("get %s: %q is not %q (%w)", key, r.Value, value, err)
			}
			if _, err := c.get(ctx, "common"); err != nil && !errors.Is(err, errNotFound) {
				return fmt.Errorf("get: %w", err)
			}
		}
	}
	return nil
}
