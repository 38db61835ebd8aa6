package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/getopt"
)

// options holds the command-line options.
type options struct {
	server      string // the server's address; "" for the server itself
	bind        string
	format      cm.AddrInfoFlags
	gid         bool   // addresses are GIDs
	dlid        uint16 // the server's LID; 0 to resolve the route
	portSpace   cm.PortSpace
	connections int
	count       int // messages in each direction over each connection
	size        int
	tos         *uint8
	port        string
	migrate     bool
	ackTimeout  *uint8
}

func defaults() *options {
	return &options{portSpace: cm.PSTCP, connections: 1, count: 10, size: 100, port: "7471"}
}

// table returns the options of ucmatose of rdma-core 56.1, in its order.
func (o *options) table() []getopt.Option {
	return []getopt.Option{
		getopt.Short('s', "server_address", "connect to this server (default: be a server)", getopt.String(&o.server)),
		getopt.Short('b', "bind_address", "local address; ::0 for any IPv6 address", getopt.String(&o.bind)),
		getopt.Short('f', "address_format", "name, ip, ipv6 or gid (default name)", o.setFormat),
		getopt.Short('P', "port_space", "tcp or ib (default tcp)", o.setPortSpace),
		getopt.Short('c', "connections", "number of connections (default 1)",
			getopt.Decimal(&o.connections, 1, math.MaxInt32)),
		getopt.Short('C', "message_count", "messages over each connection (default 10)",
			getopt.Decimal(&o.count, 0, math.MaxInt32)),
		getopt.Short('S', "message_size", "bytes of a message (default 100)", getopt.Decimal(&o.size, 0, math.MaxInt32)),
		getopt.Short('t', "type_of_service", "type of service", number(&o.tos, 255)),
		getopt.Short('p', "port_number", "port (default 7471)", getopt.String(&o.port)),
		getopt.Short('m', "", "migrate the ids to another event channel before the end", getopt.Flag(&o.migrate)),
		getopt.Short('a', "ack_timeout", "wait 4.096 us * 2^ack_timeout for an acknowledgement", number(&o.ackTimeout, 31)),
		getopt.New(0, "dlid", "lid", "with GIDs: the server's LID, instead of asking a subnet manager",
			getopt.Int(&o.dlid, 1, 0xbfff)),
	}
}

// number returns a Set function for an optional number.
func number(v **uint8, high int64) func(string) error {
	return func(value string) error {
		*v = new(uint8)
		return getopt.Int(*v, 0, high)(value)
	}
}

// setFormat compares only the first letters, as the C program does.
func (o *options) setFormat(value string) error {
	o.format, o.gid = 0, false
	switch v := strings.ToLower(value); {
	case strings.HasPrefix(v, "ip"):
		o.format = cm.NumericHost
	case strings.HasPrefix(v, "gid"):
		o.gid = true
	case strings.HasPrefix(v, "name"):
	default:
		return fmt.Errorf("unknown address format %q: use name, ip, ipv6 or gid", value)
	}
	return nil
}

func (o *options) setPortSpace(value string) error {
	switch v := strings.ToLower(value); {
	case strings.HasPrefix(v, "ib"):
		o.portSpace = cm.PSIB
	case strings.HasPrefix(v, "tcp"):
		o.portSpace = cm.PSTCP
	default:
		return fmt.Errorf("unknown port space %q: use tcp or ib", value)
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
	if o.size == 0 {
		o.count = 0
	}
	switch {
	case o.dlid != 0 && !o.gid:
		return nil, errors.New("--dlid requires GIDs: add -f gid")
	case o.gid && o.bind == "":
		return nil, errors.New("-f gid requires the local GID: give it with -b")
	}
	return o, nil
}

func usage(w io.Writer) error {
	if _, err := io.WriteString(w, "usage: ucmatose\n"); err != nil {
		return err
	}
	return getopt.Usage(w, defaults().table())
}
