// Peer is the other end, on package rsocket, of programs that librspreload puts on rsockets:
//
//	peer redis-client ADDR  checks the replies of a Redis server
//	peer redis-server ADDR  has PING, ECHO, SET, GET and INCR of Redis
package main

import (
	"errors"
	"fmt"
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

// serve serves connections side by side, until the process is killed.
func serve(addr string, handle func(net.Conn) error) error {
	l, err := rsocket.Listen("tcp", addr)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			if err := errors.Join(handle(c), c.Close()); err != nil {
				fmt.Fprintln(os.Stderr, "peer:", err)
			}
		}()
	}
}
