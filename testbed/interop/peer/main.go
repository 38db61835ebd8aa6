// Peer is the other end, on package rsocket, of programs that librspreload puts on rsockets:
//
//	peer forward rsocket ADDR tcp ADDR  accepts connections of the first kind, and forwards to the second
//	peer redis-client ADDR              checks the replies of a Redis server
//	peer redis-server ADDR              has PING, ECHO, SET, GET and INCR of Redis
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rsocket"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "peer:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	commands := map[string]struct {
		args int
		run  func(args []string) error
	}{
		"forward":      {4, forward},
		"redis-client": {1, redisClient},
		"redis-server": {1, redisServer},
	}
	if len(args) > 0 {
		if c, ok := commands[args[0]]; ok && len(args) == 1+c.args {
			return c.run(args[1:])
		}
	}
	return fmt.Errorf("invalid arguments %q", args)
}

// A conn is a connection of either kind.
type conn interface {
	net.Conn
	CloseWrite() error
}

// dial connects to an address. The network is rsocket or tcp.
func dial(network, addr string) (conn, error) {
	if network == "rsocket" {
		return rsocket.Dial("tcp", addr)
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		return nil, err
	}
	return c.(*net.TCPConn), nil
}

func listen(network, addr string) (net.Listener, error) {
	if network == "rsocket" {
		return rsocket.Listen("tcp", addr)
	}
	return net.Listen(network, addr)
}

// serve serves connections side by side, until the process is killed.
func serve(network, addr string, handle func(conn) error) error {
	l, err := listen(network, addr)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			if err := errors.Join(handle(c.(conn)), c.Close()); err != nil {
				fmt.Fprintln(os.Stderr, "peer:", err)
			}
		}()
	}
}

// forward forwards connections.
func forward(args []string) error {
	return serve(args[0], args[1], func(from conn) error {
		to, err := dial(args[2], args[3])
		if err != nil {
			return err
		}
		return errors.Join(both(
			func() error { return pipe(to, from) },
			func() error { return pipe(from, to) }), to.Close())
	})
}

// pipe copies until the end of from.
func pipe(to, from conn) error {
	_, err := io.Copy(to, from)
	return errors.Join(err, to.CloseWrite())
}

// both runs two functions side by side.
func both(f, g func() error) error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	err := g()
	return errors.Join(err, <-done)
}
