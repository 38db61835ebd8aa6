package rping

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/goverbs/goverbs/internal/getopt"
)

// options holds the command-line options.
type options struct {
	server     bool
	persistent bool
	host       string // the server's address; "" binds to all
	source     string // the client's address; "" to choose one
	port       uint16
	count      int // pings of a client; 0 for no limit
	size       int
	verbose    bool
	validate   bool
	debug      bool
	ownQP      bool
}

// table returns the options of rping of rdma-core 56.1, in its order. As in C, the
// options of the other side are accepted and ignored. The last of -s and -c sets
// *role.
func (o *options) table(role *string) []getopt.Option {
	be := func(r string) func(string) error {
		return func(string) error {
			*role = r
			return nil
		}
	}
	return []getopt.Option{
		getopt.Short('c', "", "client side", be("client")),
		getopt.Short('I', "addr", "source address to bind to for client", getopt.String(&o.source)),
		getopt.Short('s', "", "server side; to bind to any address with IPv6 use -a ::0", be("server")),
		getopt.Short('v', "", "display ping data to stdout", getopt.Flag(&o.verbose)),
		getopt.Short('V', "", "validate ping data, on either side", getopt.Flag(&o.validate)),
		getopt.Short('d', "", "print each step to stdout", getopt.Flag(&o.debug)),
		getopt.Short('S', "size", fmt.Sprintf("ping data size, %d to %d (default 64)", minSize, maxSize),
			getopt.Decimal(&o.size, minSize, maxSize)),
		getopt.Short('C', "count", "ping count times (default: without end)", getopt.Decimal(&o.count, 0, math.MaxInt32)),
		getopt.Short('a', "addr", "address to connect to, or to bind to", getopt.String(&o.host)),
		getopt.Short('p', "port", "port (default 7174)", getopt.Decimal(&o.port, 0, 65535)),
		getopt.Short('P', "", "persistent server mode, allowing multiple connections", getopt.Flag(&o.persistent)),
		getopt.Short('q', "", "use self-created, self-modified QP", getopt.Flag(&o.ownQP)),
	}
}

func defaults() *options { return &options{port: 7174, size: 64} }

func parseOptions(args []string) (*options, error) {
	o, role := defaults(), ""
	operands, err := getopt.Parse(args, o.table(&role))
	o.server = role == "server"
	switch {
	case err != nil:
		return nil, err
	case len(operands) > 0:
		return nil, fmt.Errorf("unexpected argument %q: give the address with -a", operands[0])
	case role == "":
		return nil, errors.New("neither server nor client: use -s or -c; -h lists the options")
	case !o.server && o.host == "":
		return nil, errors.New("no server: give its address with -a")
	}
	return o, nil
}

func usage(w io.Writer) error {
	const head = "rping -s [-vVdPq] [-S size] [-a addr] [-p port]\n" +
		"rping -c [-vVdq] [-S size] [-C count] [-I addr] -a addr [-p port]\n"
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	return getopt.Usage(w, defaults().table(new(string)))
}
