package devinfo

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
)

// options holds the command-line options.
type options struct {
	device  string // "" selects all devices
	port    int    // 0 selects all ports
	list    bool
	verbose bool
	json    bool
	version bool
}

const usageText = `Usage: devinfo             print the ca attributes

Options:
  -d, --ib-dev=<dev>     use IB device <dev> (default all devices)
  -i, --ib-port=<port>   use port <port> of IB device (default all ports)
  -l, --list             print only the IB devices names
  -v, --verbose          print all the attributes of the IB device(s)
      --json             print everything as a JSON document
      --version          print the version
`

// parseOptions parses the command line. It prints help to w.
func parseOptions(args []string, w io.Writer) (*options, error) {
	var o options
	f := flag.NewFlagSet("devinfo", flag.ContinueOnError)
	f.SetOutput(io.Discard) // main prints the error
	f.Usage = func() {}
	for _, name := range []string{"d", "ib-dev"} {
		f.StringVar(&o.device, name, "", "")
	}
	for _, name := range []string{"i", "ib-port"} {
		f.IntVar(&o.port, name, 0, "")
	}
	for _, name := range []string{"l", "list"} {
		f.BoolVar(&o.list, name, false, "")
	}
	for _, name := range []string{"v", "verbose"} {
		f.BoolVar(&o.verbose, name, false, "")
	}
	f.BoolVar(&o.json, "json", false, "")
	f.BoolVar(&o.version, "version", false, "")
	if err := f.Parse(unbundle(args)); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			_, werr := io.WriteString(w, usageText)
			return nil, errors.Join(err, werr)
		}
		return nil, fmt.Errorf("%w: see --help", err)
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: select a device with -d, see --help", f.Arg(0))
	}
	given := false
	f.Visit(func(g *flag.Flag) { given = given || g.Name == "i" || g.Name == "ib-port" })
	if given && (o.port < 1 || o.port > 255) {
		return nil, fmt.Errorf("port %d is out of range: use 1 to 255", o.port)
	}
	return &o, nil
}

// unbundle splits combined short options such as -lv and -vdrxe0, which package
// flag does not support.
func unbundle(args []string) []string {
	var all []string
	for i, arg := range args {
		if arg == "--" {
			return append(all, args[i:]...)
		}
		if !short(arg) {
			all = append(all, arg)
			continue
		}
		for rest := arg[1:]; rest != ""; {
			all = append(all, "-"+rest[:1])
			if strings.IndexByte("di", rest[0]) >= 0 && len(rest) > 1 {
				all = append(all, rest[1:])
				break
			}
			rest = rest[1:]
		}
	}
	return all
}

// short reports whether arg consists of several short options: flags, optionally
// followed by an option with a value.
func short(arg string) bool {
	if len(arg) < 3 || arg[0] != '-' || arg[2] == '=' {
		return false
	}
	for _, c := range arg[1:] {
		switch c {
		case 'l', 'v':
		case 'd', 'i':
			return true
		default:
			return false
		}
	}
	return true
}
