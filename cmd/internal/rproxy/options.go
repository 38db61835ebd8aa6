package rproxy

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"time"

	"github.com/goverbs/goverbs/internal/getopt"
	"github.com/goverbs/goverbs/rsocket"
)

// options holds the command-line options.
type options struct {
	from, to address

	most        int // connections at a time
	mostPerPeer int
	timeout     int // seconds
	idle        int // seconds
	grace       int // seconds
	verbose     bool
	config      rsocket.Config
}

const (
	defaultMost    = 1024
	defaultTimeout = 30

	// linger is how long the end of a connection waits until the peer of an rsocket has received everything.
	linger = 10 * time.Second
)

// table returns the options, in alphabetical order.
func (o *options) table() []getopt.Option {
	const most = math.MaxInt32
	return []getopt.Option{
		getopt.New('c', "connections", "number", fmt.Sprintf("most connections at a time (%d)", defaultMost),
			getopt.Decimal(&o.most, 1, most)),
		getopt.New('g', "grace", "seconds", "time that connections have to end after SIGTERM (0)",
			getopt.Decimal(&o.grace, 0, most)),
		getopt.New('i', "idle", "seconds", "reset connections on which nothing is sent for as long",
			getopt.Decimal(&o.idle, 1, most)),
		getopt.New('I', "receive-buffer", "bytes", "size of the receive buffers of rsockets",
			getopt.Decimal(&o.config.RecvBuffer, 1, most)),
		getopt.New('O', "send-buffer", "bytes", "size of the send buffers of rsockets",
			getopt.Decimal(&o.config.SendBuffer, 1, most)),
		getopt.New('p', "per-peer", "number", "most connections at a time of one client address (no limit)",
			getopt.Decimal(&o.mostPerPeer, 1, most)),
		getopt.New('v', "verbose", "", "print a message about each connection", getopt.Flag(&o.verbose)),
		getopt.New('w', "timeout", "seconds", fmt.Sprintf("time to connect to the second address (%d)", defaultTimeout),
			getopt.Decimal(&o.timeout, 1, most)),
	}
}

func parseOptions(args []string) (*options, error) {
	o := &options{most: defaultMost, timeout: defaultTimeout, config: rsocket.Config{Linger: linger}}
	operands, err := getopt.Parse(args, o.table())
	if err != nil {
		return nil, err
	}
	if len(operands) != 2 {
		return nil, fmt.Errorf("%d addresses: give one to listen at and one to connect to, such as rsocket::5432 "+
			"tcp:127.0.0.1:5432", len(operands))
	}
	if o.from, err = parseAddress(operands[0]); err != nil {
		return nil, err
	}
	if o.to, err = parseAddress(operands[1]); err != nil {
		return nil, err
	}
	if host, port, _ := net.SplitHostPort(o.to.addr); host == "" || port == "0" {
		return nil, fmt.Errorf("%v: the address to connect to needs a host and a port", o.to)
	}
	if o.idle > 0 && !o.from.rdma && !o.to.rdma {
		return nil, errors.New("--idle needs an rsocket: TCP has no such timeout")
	}
	o.config.IdleTimeout = time.Duration(o.idle) * time.Second
	return o, nil
}

// An address is where to listen or what to connect to.
type address struct {
	rdma    bool
	network string // for packages net and rsocket
	addr    string // host:port
}

const networks = "rsocket, rsocket4, rsocket6, tcp, tcp4 or tcp6"

func parseAddress(s string) (address, error) {
	network, addr, _ := strings.Cut(s, ":")
	a := address{network: network, addr: addr}
	if family, ok := strings.CutPrefix(network, "rsocket"); ok {
		a.rdma, a.network = true, "tcp"+family
	}
	switch a.network {
	case "tcp", "tcp4", "tcp6":
	default:
		return address{}, fmt.Errorf("%q does not begin with a network: %s, as in rsocket:host:port", s, networks)
	}
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return address{}, fmt.Errorf("%q: %w", s, err)
	}
	return a, nil
}

func (a address) String() string {
	if a.rdma {
		return strings.Replace(a.network, "tcp", "rsocket", 1) + ":" + a.addr
	}
	return a.network + ":" + a.addr
}

func usage(out io.Writer) error {
	const head = "Usage: rproxy [options] NETWORK:[HOST]:PORT NETWORK:HOST:PORT\n\n" +
		"Listen at the first address, and forward each connection to the second. The networks are\n" +
		networks + ".\n\n" +
		"RLIMIT_MEMLOCK limits the connections, too: each locks about 500 KB for its rsocket.\n\nOptions:\n"
	if _, err := io.WriteString(out, head); err != nil {
		return err
	}
	return getopt.Usage(out, new(options).table())
}
