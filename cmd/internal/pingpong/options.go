package pingpong

import (
	"errors"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/internal/getopt"
	"github.com/goverbs/goverbs/uverbs"
)

// Options holds the command-line options.
type Options struct {
	Name     string // of the program
	Host     string // "" for the server itself
	TCPPort  uint16
	Device   string // "" selects the first device with an active port
	IBPort   int
	Size     int
	MTU      uverbs.MTU
	RxDepth  int
	Iters    int
	SL       uint8
	Events   bool
	GIDIndex int // -1 if not given
	Check    bool
	// LocalText formats a local address.
	LocalText func(Address) string
}

// Defaults returns the default options of a program whose messages have size bytes
// by default.
func Defaults(name string, size int) *Options {
	return &Options{Name: name, TCPPort: 18515, IBPort: 1, Size: size, MTU: uverbs.MTU1024, RxDepth: 500,
		Iters: 1000, GIDIndex: -1,
		LocalText: Address.String}
}

func (o *Options) server() bool { return o.Host == "" }

// maxInt is the largest number that the C programs accept.
const maxInt = 1<<31 - 1

// Common returns the options that all the programs have (rdma-core 56.1).
func (o *Options) Common() []getopt.Option {
	size := fmt.Sprintf("size of message to exchange (default %d)", o.Size)
	return []getopt.Option{
		getopt.New('p', "port", "port", "listen on/connect to port <port> (default 18515)", getopt.Int(&o.TCPPort, 0, 65535)),
		getopt.New('d', "ib-dev", "dev", "use IB device <dev> (default first device with an active port)",
			getopt.String(&o.Device)),
		getopt.New('i', "ib-port", "port", "use port <port> of IB device (default 1)", getopt.Int(&o.IBPort, 1, 255)),
		getopt.New('s', "size", "size", size, getopt.Int(&o.Size, 1, maxInt)),
		getopt.New('r', "rx-depth", "dep", "number of receives to post at a time (default 500)",
			getopt.Int(&o.RxDepth, 1, maxInt)),
		getopt.New('n', "iters", "iters", "number of exchanges (default 1000)", getopt.Int(&o.Iters, 1, maxInt)),
		getopt.New('l', "sl", "sl", "service level value", getopt.Int(&o.SL, 0, 15)),
		getopt.New('e', "events", "", "sleep on CQ events (default poll)", getopt.Flag(&o.Events)),
		getopt.New('g', "gid-idx", "gid index", "local port gid index (default on RoCE: one that can reach the peer)",
			getopt.Int(&o.GIDIndex, 0, 255)),
		getopt.New('c', "chk", "", "validate every byte received (needed at both ends)", getopt.Flag(&o.Check)),
	}
}

// PathMTU returns the option -m of the connected services.
func (o *Options) PathMTU() getopt.Option {
	return getopt.New('m', "mtu", "size", "path MTU (default 1024)", o.setMTU)
}

func (o *Options) setMTU(value string) error {
	var bytes int
	if err := getopt.Int(&bytes, 256, 4096)(value); err != nil {
		return err
	}
	for m := uverbs.MTU256; m <= uverbs.MTU4096; m++ {
		if m.Bytes() == bytes {
			o.MTU = m
			return nil
		}
	}
	return fmt.Errorf("%d is not a path MTU: use 256, 512, 1024, 2048 or 4096", bytes)
}

// Unsupported returns an option of the C program for a feature that these programs
// do not have.
func Unsupported(short byte, long, help, feature string) getopt.Option {
	return getopt.New(short, long, "", help+" (not supported)", func(string) error {
		return errors.New("this program does not support " + feature + ": omit the option")
	})
}

// parse parses the command line, which has the options of table.
func (o *Options) parse(args []string, table []getopt.Option) error {
	operands, err := getopt.Parse(args, table)
	switch {
	case err != nil:
		return err
	case len(operands) > 1:
		return fmt.Errorf("more than one host: %q: see --help", operands)
	case len(operands) == 1 && operands[0] == "":
		return errors.New("the host is empty: omit it to start a server")
	case len(operands) == 1:
		o.Host = operands[0]
	}
	return nil
}

func (o *Options) usage(w io.Writer, table []getopt.Option) error {
	_, err := fmt.Fprintf(w,
		"Usage:\n  %-21s start a server and wait for connection\n  %-21s connect to server at <host>\n\nOptions:\n",
		o.Name, o.Name+" <host>")
	return errors.Join(err, getopt.Usage(w, table))
}
