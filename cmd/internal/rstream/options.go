// Package rstream has the programs rstream and riostream, which have options, tests and output in common.
package rstream

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
	port      string
	sockets   bool // TCP instead of rsockets
	verify    bool
	blocking  bool // sleep instead of polling
	bufSize   int
	inline    int
	custom    bool // one test, with the numbers that follow
	iters     int
	transfers int
	size      int
	all       bool // sizes
	keepAlive time.Duration
	mappings  int
}

func defaults() *options {
	return &options{inline: 64, iters: 1, transfers: 1000, size: 1000, port: "7471"}
}

// A Program is rstream or riostream.
type Program struct {
	name     string
	tcp      bool // it can use TCP, and has the options for it, for keepalive and for rdma_getaddrinfo
	mappings int  // regions that the peer may map
	measure  func(*end, test) (time.Duration, error)
}

// The programs.
var (
	Rstream   = &Program{name: "rstream", tcp: true, measure: measureMessages}
	Riostream = &Program{name: "riostream", mappings: 1, measure: measureWrites}
)

// table returns the options of the program of rdma-core 56.1, in its order.
func (p *Program) table(o *options) []getopt.Option {
	all := []getopt.Option{
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
	}
	if !p.tcp {
		return append(all, getopt.Short('T', "test_option",
			"a|async, n|nonblocking: poll without pause (default); b|blocking: sleep; v|verify: verify the data", o.setTest))
	}
	return append(all,
		getopt.Short('k', "keepalive_time", "seconds between signs of life of the peer (default 15)", o.setKeepAlive),
		getopt.Short('T', "test_option", "s|sockets: TCP; a|async, n|nonblocking: poll without pause (default);"+
			" b|blocking: sleep; f|fork: TCP; r|resolve: no effect; v|verify: verify the data",
			func(value string) error {
				if tcp(value) {
					o.sockets = true
					return nil
				}
				if isWord(value, "r", "resolve") {
					return nil
				}
				return o.setTest(value)
			}))
}

// tcp reports whether a test option selects TCP. The C program forks only with TCP.
func tcp(value string) bool { return isWord(value, "s", "socket") || isWord(value, "f", "fork") }

// isWord reports whether a test option is a letter, or begins with a word.
func isWord(value, letter, word string) bool {
	return value == letter || len(value) > 1 && strings.HasPrefix(strings.ToLower(value), word)
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
	switch {
	case isWord(value, "b", "block"):
		o.blocking = true
	case isWord(value, "n", "nonblock"):
		o.blocking = false
	case isWord(value, "a", "async"):
	case isWord(value, "v", "verify"):
		o.verify = true
	default:
		return fmt.Errorf("unknown test option %q: -h lists them", value)
	}
	return nil
}

// parse parses the command line. It returns getopt.ErrHelp for -h.
func (p *Program) parse(args []string) (*options, error) {
	o := defaults()
	o.mappings = p.mappings
	operands, err := getopt.Parse(args, p.table(o))
	if err != nil {
		return nil, err
	}
	if len(operands) > 0 {
		return nil, fmt.Errorf("unexpected argument %q: give the server with -s", operands[0])
	}
	return o, nil
}

// usage writes the list of the options.
func (p *Program) usage(out io.Writer) error {
	if _, err := fmt.Fprintf(out, "usage: %s [options]\n", p.name); err != nil {
		return err
	}
	return getopt.Usage(out, p.table(defaults()))
}
