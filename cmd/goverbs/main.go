// Goverbs is several programs in one file, which has 23 % of the size of separate ones: asyncwatch, devinfo,
// doctor, perftest, rnc, rping and rproxy. The first argument selects the program, or the name of a link to this one.
//
//	goverbs doctor
//	goverbs -version
//	ln -s goverbs rping && ./rping -s
//
// The names of perftest's tests, such as ib_send_lat, are names of programs too.
package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/bench/perftest"
	"github.com/goverbs/goverbs/cmd/internal/asyncwatch"
	"github.com/goverbs/goverbs/cmd/internal/devinfo"
	"github.com/goverbs/goverbs/cmd/internal/doctor"
	"github.com/goverbs/goverbs/cmd/internal/rnc"
	"github.com/goverbs/goverbs/cmd/internal/rping"
	"github.com/goverbs/goverbs/cmd/internal/rproxy"
	"github.com/goverbs/goverbs/internal/getopt"
	"github.com/goverbs/goverbs/internal/version"
	_ "github.com/goverbs/goverbs/provider/all"
)

var programs = map[string]func(){
	"asyncwatch": asyncwatch.Main,
	"devinfo":    devinfo.Main,
	"doctor":     doctor.Main,
	"perftest":   perftest.Main,
	"rnc":        rnc.Main,
	"rping":      rping.Main,
	"rproxy":     rproxy.Main,
}

func main() {
	main, args := choose(os.Args)
	if main == nil && version.Asked(os.Args[1:]) {
		main = printVersion
	}
	if main == nil && len(os.Args) == 2 && getopt.IsHelp(os.Args[1]) {
		usage(os.Stdout)
		return
	}
	if main == nil {
		usage(os.Stderr)
		os.Exit(2)
	}
	os.Args = args
	main()
}

func printVersion() {
	if err := version.Print(os.Stdout, "goverbs"); err != nil {
		fmt.Fprintln(os.Stderr, "goverbs:", err)
		os.Exit(1)
	}
}

// choose returns the program that the command line selects, or nil, and the program's command line.
func choose(args []string) (main func(), rest []string) {
	for len(args) > 0 {
		name := filepath.Base(args[0])
		if main := programs[name]; main != nil {
			return main, args
		}
		if _, ok := perftest.TestNamed(name); ok {
			return perftest.Main, args
		}
		if name != "goverbs" {
			break
		}
		args = args[1:]
	}
	return nil, nil
}

func usage(w io.Writer) {
	names := slices.Sorted(maps.Keys(programs))
	fmt.Fprintf(w, "usage: goverbs PROGRAM [arguments]; the programs: %s; PROGRAM -h lists options\n",
		strings.Join(names, " "))
}
