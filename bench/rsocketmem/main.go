// Rsocketmem prints what each idle rsocket takes: memory, mappings, descriptors, threads and goroutines. Both ends of
// the connections are in this process. testbed/speed/testdata/rsockets.c does the same in C.
//
//	rsocketmem -addr 10.9.0.1 -n 100
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/goverbs/goverbs/bench/kit"
	"github.com/goverbs/goverbs/bench/procmem"
	"github.com/goverbs/goverbs/rsocket"
)

func main() {
	addr := flag.String("addr", "", "address of the device")
	n := flag.Int("n", 100, "number of connections")
	flag.Parse()
	kit.Main("rsocketmem", func([]string) error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		return measure(ctx, *addr, *n)
	})
}

// measure connects n rsockets. The first connection is not counted, because it creates what all share.
func measure(ctx context.Context, addr string, n int) (err error) {
	l, err := rsocket.Listen("tcp", net.JoinHostPort(addr, "0"))
	if err != nil {
		return err
	}
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			err = errors.Join(err, c.Close())
		}
		err = errors.Join(err, l.Close())
	}()
	var before, after account
	for i := range 1 + n {
		client, server, err := pair(ctx, l)
		if err != nil {
			return err
		}
		conns = append(conns, client, server)
		if i == 0 {
			if before, err = now(); err != nil {
				return err
			}
		}
	}
	if after, err = now(); err != nil {
		return err
	}
	return report(2*n, before, after)
}

// pair returns both ends of a new connection.
func pair(ctx context.Context, l net.Listener) (client, server net.Conn, err error) {
	accepted := make(chan error, 1)
	go func() {
		var err error
		server, err = l.Accept()
		accepted <- err
	}()
	if client, err = (&rsocket.Dialer{}).DialContext(ctx, "tcp", l.Addr().String()); err != nil {
		return nil, nil, err
	}
	if err = <-accepted; err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return client, server, nil
}

// report prints what each of n rsockets has added.
func report(n int, before, after account) error {
	if err := procmem.Print(os.Stdout, "rsocket", n, before.memory, after.memory); err != nil {
		return err
	}
	for _, c := range []struct {
		name          string
		before, after int
	}{
		{"files", before.files, after.files},
		{"threads", before.threads, after.threads},
		{"goroutines", before.goroutines, after.goroutines},
	} {
		fmt.Printf("rsocket.%s %.3f\n", c.name, float64(c.after-c.before)/float64(n))
	}
	return nil
}

// An account is what the process has.
type account struct {
	memory                     procmem.Usage
	files, threads, goroutines int
}

func now() (a account, err error) {
	if a.memory, err = procmem.Now(); err != nil {
		return a, err
	}
	for _, dir := range []struct {
		path string
		n    *int
	}{{"/proc/self/fd", &a.files}, {"/proc/self/task", &a.threads}} {
		entries, err := os.ReadDir(dir.path)
		if err != nil {
			return a, err
		}
		*dir.n = len(entries)
	}
	a.goroutines = runtime.NumGoroutine()
	return a, nil
}
