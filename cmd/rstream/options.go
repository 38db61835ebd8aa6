package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/goverbs/goverbs/internal/getopt"
)

// options holds the command-line options.
type options struct {
	server    string // the server's address; "" for the server itself
	bind      string
	bufSize   int
	inline    int
	custom    bool // one test, with the numbers that follow
	iters     int
	transfers int
	size      int
	all       bool // sizes
	port      string
	keepAlive time.Duration
	sockets   bool // TCP instead of rsockets
	blocking  bool // sleep instead of polling
	verify    bool
}

func defaults() *options {
	return &options{inline: 64, iters: 1, transfers: 1000, size: 1000, port: "7471"}
}

// table returns the options of rstream of rdma-core 56.1, in its order.
func (o *options) table() []getopt.Option {
	return []getopt.Option{
		getopt.Short('s', "server_address", "connect to this server (default: be a server)", getopt.String(&o.server)),
		getopt.Short('b', "bind_address", "local address", getopt.String(&o.bind)),
		getopt.Short('f', "address_format", "name, ip or ipv6 (default name)", setFormat),
		getopt.Short('B', "buffer_size", "half of the bytes of each buffer (default 524288)",
			getopt.Decimal(&o.bufSize, 1, math.MaxInt32/2)),
		getopt.Short('i', "inline_size", "bytes of inline data in latency tests (default 64)",
			getopt.Decimal(&o.inline, 0, 1024)),
		getopt.Short('I', "iterations", "iterations of one test (default 1)", o.one(&o.iters)),
		getopt.Short('C', "transfer_count", "transfers of an iteration of one test (default 1000)", o.one(&o.transfers)),
		getopt.Short('S', "transfer_size", "bytes of a transfer of one test (default 1000), or all: more sizes", o.setSize),
		getopt.Short('p', "port_number", "port (default 7471)", getopt.String(&o.port)),
		getopt.Short('k', "keepalive_time", "seconds between signs of life of the peer (default 15)", o.setKeepAlive),
		getopt.Short('T', "test_option", "s|sockets: TCP; a|async, n|nonblocking: poll without pause (default);"+
			" b|blocking: sleep; f|fork: TCP; r|resolve: no effect; v|verify: verify the data", o.setTest),
	}
}

// one returns a Set function for a number of one test.
func (o *options) one(v *int) func(string) error {
	return func(value string) error {
		o.custom = true
		return getopt.Decimal(v, 1, math.MaxInt32)(value)
	}
}

func (o *options) setSize(value string) error {
	if strings.HasPrefix(strings.ToLower(value), "all") {
		o.all = true
		return nil
	}
	return o.one(&o.size)(value)
}

func (o *options) setKeepAlive(value string) error {
	seconds := 0
	err := getopt.Decimal(&seconds, 1, math.MaxInt16)(value)
	o.keepAlive = time.Duration(seconds) * time.Second
	return err
}

// setFormat compares only the first letters, as the C program does.
func setFormat(value string) error {
	switch v := strings.ToLower(value); {
	case strings.HasPrefix(v, "ip"), strings.HasPrefix(v, "name"):
		return nil
	case strings.HasPrefix(v, "gid"):
		return errors.New("rsockets have no GIDs as addresses: use IP addresses")
	}
	return fmt.Errorf("unknown address format %q: use name, ip or ipv6", value)
}

func (o *options) setTest(value string) error {
	v := strings.ToLower(value)
	is := func(letter, word string) bool { return value == letter || len(value) > 1 && strings.HasPrefix(v, word) }
	switch {
	case is("s", "socket"), is("f", "fork"):
		o.sockets = true
	case is("b", "block"):
		o.blocking = true
	case is("n", "nonblock"):
		o.blocking = false
	case is("a", "async"), is("r", "resolve"):
	case is("v", "verify"):
		o.verify = true
	default:
		return fmt.Errorf("unknown test option %q: use s, a, b, f, n, r or v", value)
	}
	return nil
}

func parseOptions(args []string) (*options, error) {
	o := defaults()
	operands, err := getopt.Parse(args, o.table())
	if err != nil {
		return nil, err
	}
	if len(operands) > 0 {
		return nil, fmt.Errorf("unexpected argument %q: give the server with -s", operands[0])
	}
	return o, nil
}

func usage(out io.Writer) error {
	if _, err := fmt.Fprintln(out, "usage: rstream [options]"); err != nil {
		return err
	}
	return getopt.Usage(out, defaults().table())
}
