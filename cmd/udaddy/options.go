package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/internal/udtest"
	"github.com/goverbs/goverbs/internal/getopt"
)

// options holds the command-line options.
type options struct {
	udtest.Options
	server  string // "" for the server itself
	bind    string
	numeric bool
	setTOS  bool
	tos     uint8
}

// table returns the options of udaddy of rdma-core 56.1, in its order.
func (o *options) table() []getopt.Option {
	return slices.Concat([]getopt.Option{
		getopt.Short('s', "server_address", "the server's name or address; without it a server starts",
			getopt.String(&o.server)),
		getopt.Short('b', "bind_address", "local address; for any address with IPv6 give -b ::0", getopt.String(&o.bind)),
		getopt.Short('f', "address_format", "name, ip or ipv6 (default name; gid is not supported)", o.setFormat),
		getopt.Short('P', "port_space", "udp or ipoib (default udp)", o.setSpace),
		getopt.Short('t', "type_of_service", "type of service", o.setTypeOfService),
	}, o.Options.Table())
}

// setFormat compares only the first letters, as the C program does.
func (o *options) setFormat(value string) error {
	switch v := strings.ToLower(value); {
	case strings.HasPrefix(v, "ip"):
		o.numeric = true
	case strings.HasPrefix(v, "name"):
		o.numeric = false
	case strings.HasPrefix(v, "gid"):
		return errors.New("addresses of the InfiniBand family are not looked up: give an IP address")
	default:
		return fmt.Errorf("unknown address format %q: use name, ip or ipv6", value)
	}
	return nil
}

func (o *options) setSpace(value string) error {
	switch v := strings.ToLower(value); {
	case strings.HasPrefix(v, "udp"):
		o.PortSpace = cm.PSUDP
	case strings.HasPrefix(v, "ipoib"):
		o.PortSpace = cm.PSIPoIB
	default:
		return fmt.Errorf("%q is not a port space for datagrams: use udp or ipoib", value)
	}
	return nil
}

func (o *options) setTypeOfService(value string) error {
	o.setTOS = true
	return getopt.Int(&o.tos, 0, 255)(value)
}

// hints returns the hints for address lookups.
func (o *options) hints() cm.AddrInfo {
	ai := cm.AddrInfo{PortSpace: o.PortSpace}
	if o.numeric {
		ai.Flags = cm.NumericHost
	}
	return ai
}

func parseOptions(args []string) (*options, error) {
	o := &options{Options: udtest.Defaults()}
	operands, err := getopt.Parse(args, o.table())
	if err == nil && len(operands) > 0 {
		err = fmt.Errorf("unexpected argument %q: give the server's address with -s", operands[0])
	}
	return o, err
}

func usage(w io.Writer) error {
	const head = "Usage:\n" +
		"  udaddy                     start a server\n" +
		"  udaddy -s server_address   send datagrams to a server and receive as many\n\nOptions:\n"
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	return getopt.Usage(w, new(options).table())
}
