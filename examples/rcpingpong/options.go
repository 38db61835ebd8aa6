package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/examples/internal/getopt"
	"github.com/goverbs/goverbs/uverbs"
)

// options is what the command line asks for.
type options struct {
	host     string // "" is the server
	tcpPort  uint16
	device   string // "" is the first with an active port
	ibPort   int
	size     int
	mtu      uverbs.MTU
	rxDepth  int
	iters    int
	sl       uint8
	events   bool
	gidIndex int // -1 when not given
	check    bool
	newSend  bool
}

func (o *options) server() bool { return o.host == "" }

func defaults() *options {
	return &options{tcpPort: 18515, ibPort: 1, size: 4096, mtu: uverbs.MTU1024, rxDepth: 500, iters: 1000, gidIndex: -1}
}

// table lists the options of ibv_rc_pingpong (rdma-core 56.1), in its order.
func (o *options) table() []getopt.Option {
	const most = 1<<31 - 1
	return []getopt.Option{
		getopt.New('p', "port", "port", "listen on/connect to port <port> (default 18515)", getopt.Int(&o.tcpPort, 0, 65535)),
		getopt.New('d', "ib-dev", "dev", "use IB device <dev> (default first device with an active port)", getopt.String(&o.device)),
		getopt.New('i', "ib-port", "port", "use port <port> of IB device (default 1)", getopt.Int(&o.ibPort, 1, 255)),
		getopt.New('s', "size", "size", "size of message to exchange (default 4096)", getopt.Int(&o.size, 1, most)),
		getopt.New('m', "mtu", "size", "path MTU (default 1024)", o.setMTU),
		getopt.New('r', "rx-depth", "dep", "number of receives to post at a time (default 500)", getopt.Int(&o.rxDepth, 1, most)),
		getopt.New('n', "iters", "iters", "number of exchanges (default 1000)", getopt.Int(&o.iters, 1, most)),
		getopt.New('l', "sl", "sl", "service level value", getopt.Int(&o.sl, 0, 15)),
		getopt.New('e', "events", "", "sleep on CQ events (default poll)", getopt.Flag(&o.events)),
		getopt.New('g', "gid-idx", "gid index", "local port gid index (default on RoCE: the one that reaches the peer)", getopt.Int(&o.gidIndex, 0, 255)),
		getopt.New('o', "odp", "", "use on demand paging (not supported)", unsupported("on-demand paging")),
		getopt.New('O', "iodp", "", "use implicit on demand paging (not supported)", unsupported("implicit on-demand paging")),
		getopt.New('P', "prefetch", "", "prefetch an ODP MR (not supported)", unsupported("prefetching on-demand memory")),
		getopt.New('t', "ts", "", "get CQE with timestamp (not supported)", unsupported("completion timestamps")),
		getopt.New('c', "chk", "", "validate every byte received, at both ends: give it to both", getopt.Flag(&o.check)),
		getopt.New('j', "dm", "", "use device memory (not supported)", unsupported("device memory")),
		getopt.New('N', "new_send", "", "post by the batch builder", getopt.Flag(&o.newSend)),
	}
}

func (o *options) setMTU(value string) error {
	var bytes int
	if err := getopt.Int(&bytes, 256, 4096)(value); err != nil {
		return err
	}
	for m := uverbs.MTU256; m <= uverbs.MTU4096; m++ {
		if m.Bytes() == bytes {
			o.mtu = m
			return nil
		}
	}
	return fmt.Errorf("%d is no path MTU: give 256, 512, 1024, 2048 or 4096", bytes)
}

func unsupported(what string) func(string) error {
	return func(string) error {
		return errors.New("goverbs does not do " + what + " yet: leave the option out")
	}
}

func parseOptions(args []string) (*options, error) {
	o := defaults()
	operands, err := getopt.Parse(args, o.table())
	if err != nil {
		return nil, err
	}
	switch {
	case len(operands) > 1:
		return nil, fmt.Errorf("one host at most, not %q: see --help", operands)
	case len(operands) == 1 && operands[0] == "":
		return nil, errors.New("the host is empty: leave it out to start a server")
	case len(operands) == 1:
		o.host = operands[0]
	}
	return o, nil
}

func usage(w io.Writer) error {
	const head = "Usage:\n" +
		"  rcpingpong            start a server and wait for connection\n" +
		"  rcpingpong <host>     connect to server at <host>\n\nOptions:\n"
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	return getopt.Usage(w, defaults().table())
}
