package rnc

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"time"

	"github.com/goverbs/goverbs/internal/getopt"
	"github.com/goverbs/goverbs/rsocket"
)

// options holds the command-line options.
type options struct {
	host, port string
	listen     bool
	keep       bool // listen for another connection after one has ended
	shutdown   bool // tell the peer when the input ends
	noInput    bool
	verbose    bool
	scan       bool
	v4, v6     bool
	source     string
	sourcePort string
	timeout    int // seconds
	config     rsocket.Config
}

// table returns the options, in alphabetical order.
func (o *options) table() []getopt.Option {
	const most = math.MaxInt32
	return []getopt.Option{
		getopt.Short('4', "", "use IPv4", getopt.Flag(&o.v4)),
		getopt.Short('6', "", "use IPv6", getopt.Flag(&o.v6)),
		getopt.Short('d', "", "do not read standard input", getopt.Flag(&o.noInput)),
		getopt.Short('I', "bytes", "size of the receive buffer", getopt.Decimal(&o.config.RecvBuffer, 1, most)),
		getopt.Short('k', "", "with -l: when a connection has ended, wait for another", getopt.Flag(&o.keep)),
		getopt.Short('l', "", "listen, instead of connecting", getopt.Flag(&o.listen)),
		getopt.Short('N', "", "tell the peer when standard input has ended", getopt.Flag(&o.shutdown)),
		getopt.Short('O', "bytes", "size of the send buffer", getopt.Decimal(&o.config.SendBuffer, 1, most)),
		getopt.Short('p', "port", "local port", getopt.String(&o.sourcePort)),
		getopt.Short('s', "address", "local address", getopt.String(&o.source)),
		getopt.Short('T', "number", "type of service", getopt.Int(&o.config.TOS, 0, math.MaxUint8)),
		getopt.Short('v', "", "print messages about connections", getopt.Flag(&o.verbose)),
		getopt.Short('w', "seconds", "end if connecting takes longer, or if nothing is sent or received for as long",
			getopt.Decimal(&o.timeout, 1, most)),
		getopt.Short('z', "", "only connect, to see whether a program listens", getopt.Flag(&o.scan)),
	}
}

func parseOptions(args []string) (*options, error) {
	// The program ends after Close, which must not go on in the background.
	o := &options{config: rsocket.Config{Linger: 10 * time.Second}}
	operands, err := getopt.Parse(args, o.table())
	if err != nil {
		return nil, err
	}
	switch {
	case o.keep && !o.listen:
		return nil, errors.New("-k needs -l")
	case o.scan && o.listen:
		return nil, errors.New("-z connects, and -l listens: use one of them")
	case o.v4 && o.v6:
		return nil, errors.New("use one of -4 and -6")
	case o.listen:
		return o, o.setListen(operands)
	case len(operands) != 2:
		return nil, fmt.Errorf("%d arguments: give the host and the port of the peer, or -l and a port", len(operands))
	}
	o.host, o.port = operands[0], operands[1]
	return o, nil
}

// setListen sets where to listen: at the operands, or as in other variants of nc at -s and -p.
func (o *options) setListen(operands []string) error {
	o.host, o.port = o.source, o.sourcePort
	if n := len(operands); n > 0 && o.port == "" {
		o.port, operands = operands[n-1], operands[:n-1]
	}
	if n := len(operands); n > 0 && o.host == "" {
		o.host, operands = operands[n-1], operands[:n-1]
	}
	if o.port == "" || len(operands) > 0 {
		return errors.New("-l needs a port, and at most one address to listen at: rnc -l [address] port")
	}
	return nil
}

func (o *options) network() string {
	switch {
	case o.v4:
		return "tcp4"
	case o.v6:
		return "tcp6"
	}
	return "tcp"
}

// dialer returns how to connect.
func (o *options) dialer() (*rsocket.Dialer, error) {
	d := &rsocket.Dialer{Config: o.config, Timeout: time.Duration(o.timeout) * time.Second}
	if o.source != "" || o.sourcePort != "" {
		port := o.sourcePort
		if port == "" {
			port = "0"
		}
		a, err := net.ResolveTCPAddr(o.network(), net.JoinHostPort(o.source, port))
		if err != nil {
			return nil, err
		}
		d.LocalAddr = a
	}
	return d, nil
}

func usage(out io.Writer) error {
	const head = "Usage:\n" +
		"  rnc [options] host port           connect\n" +
		"  rnc -l [options] [address] port   listen\n\nOptions:\n"
	if _, err := io.WriteString(out, head); err != nil {
		return err
	}
	return getopt.Usage(out, new(options).table())
}
