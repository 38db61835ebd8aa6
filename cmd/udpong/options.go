package main

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/goverbs/goverbs/internal/getopt"
)

// How a call waits.
const (
	waitPoll  = iota // it polls
	waitBlock        // it polls for a moment, then sleeps
	waitEvent        // it sleeps
)

// options holds the command-line options.
type options struct {
	server string // "" for the server itself
	bind   string
	buffer int // bytes of half a buffer
	custom bool
	count  int
	size   int
	port   string
	udp    bool // UDP instead of RDMA
	wait   int
	echo   bool
}

func defaults() *options { return &options{buffer: 1 << 19, count: 1000, size: 1000, port: "7174"} }

// table returns the options of udpong of rdma-core 56.1, in its order.
func (o *options) table() []getopt.Option {
	custom := func(set func(string) error) func(string) error {
		return func(value string) error {
			o.custom = true
			return set(value)
		}
	}
	return []getopt.Option{
		getopt.Short('s', "server_address", "the server's name or address; without it a server starts",
			getopt.String(&o.server)),
		getopt.Short('b', "bind_address", "local address", getopt.String(&o.bind)),
		getopt.Short('B', "buffer_size", "half of the size of the send and of the receive buffer (default 524288)",
			getopt.Decimal(&o.buffer, 2048, 1<<29)),
		getopt.Short('C', "transfer_count", "number of datagrams (default 1000)",
			custom(getopt.Decimal(&o.count, 1, math.MaxInt32))),
		getopt.Short('S', "transfer_size", "bytes of a datagram (default 1000)",
			custom(getopt.Decimal(&o.size, controlLen, maxMessage))),
		getopt.Short('p', "port_number", "UDP port, on the server too (default 7174)", getopt.String(&o.port)),
		getopt.Short('T', "test_option", "s|sockets: UDP instead of RDMA; a|async: sleep until there is an event; "+
			"b|blocking: poll for a moment, then sleep; n|nonblocking: poll (default); e|echo: the server echoes "+
			"all datagrams", o.setTest),
	}
}

// setTest compares only the first letters of longer words, as the C program does.
func (o *options) setTest(value string) error {
	is := func(word string) bool {
		return value == word[:1] || len(value) > 1 && strings.HasPrefix(strings.ToLower(value), word)
	}
	switch {
	case is("socket"):
		o.udp = true
	case is("async"):
		o.wait = waitEvent
	case is("block"):
		o.wait = waitBlock
	case is("nonblock"):
		o.wait = waitPoll
	case is("echo"):
		o.echo = true
	default:
		return fmt.Errorf("unknown test option %q: use sockets, async, blocking, nonblocking or echo", value)
	}
	return nil
}

func parseOptions(args []string) (*options, error) {
	o := defaults()
	operands, err := getopt.Parse(args, o.table())
	if err == nil && len(operands) > 0 {
		err = fmt.Errorf("unexpected argument %q: give the server's address with -s", operands[0])
	}
	return o, err
}

func usage(w io.Writer) error {
	const head = "Usage:\n" +
		"  udpong                     start a server\n" +
		"  udpong -s server_address   measure against a server\n\nOptions:\n"
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	return getopt.Usage(w, defaults().table())
}
