package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/goverbs/goverbs/cmd/internal/udtest"
	"github.com/goverbs/goverbs/internal/getopt"
)

// options holds the command-line options.
type options struct {
	udtest.Options
	group    string
	unmapped bool // group is a GID, not an IP address to map to one
	sender   bool
	bind     string
	sendOnly bool
}

// role returns the C program's name for this side.
func (o *options) role() string {
	if o.sender {
		return "client"
	}
	return "server"
}

// table returns the options of mckey of rdma-core 56.1, in its order.
func (o *options) table() []getopt.Option {
	return slices.Concat([]getopt.Option{
		getopt.Short('m', "multicast_address", "the group, by IP address", o.setGroup(false)),
		getopt.Short('M', "unmapped_multicast_address", "the group, by GID: replaces -m and requires -b", o.setGroup(true)),
		getopt.Short('s', "", "send to the group", getopt.Flag(&o.sender)),
		getopt.Short('b', "bind_address", "local address (default: by the routing table)", getopt.String(&o.bind)),
	}, o.Options.Table(), []getopt.Option{
		getopt.Short('o', "", "join as a send-only full-member", getopt.Flag(&o.sendOnly)),
		getopt.Short('l', "", "join without multicast loopback (not supported)", func(string) error {
			return errors.New("neither goverbs nor rxe supports queue pairs without loopback: omit the option")
		}),
	})
}

func (o *options) setGroup(unmapped bool) func(string) error {
	return func(value string) error {
		if unmapped && value == "0" {
			value = "::" // requests that the fabric choose a group
		}
		o.group, o.unmapped = value, unmapped
		return nil
	}
}

func parseOptions(args []string) (*options, error) {
	o := &options{Options: udtest.Defaults()}
	operands, err := getopt.Parse(args, o.table())
	switch {
	case err != nil:
		return nil, err
	case len(operands) > 0:
		return nil, fmt.Errorf("unexpected argument %q: give the group with -m", operands[0])
	case o.group == "":
		return nil, errors.New("no group: give its address with -m")
	case o.unmapped && o.bind == "":
		return nil, errors.New("unmapped multicast address requires binding to source address: give -b")
	case o.sendOnly && !o.sender:
		return nil, errors.New("a send-only member receives nothing: add -s, or omit -o")
	}
	return o, nil
}

func usage(w io.Writer) error {
	const head = "Usage:\n" +
		"  mckey -m multicast_address      receive datagrams\n" +
		"  mckey -m multicast_address -s   send datagrams\n\nOptions:\n"
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	return getopt.Usage(w, new(options).table())
}
