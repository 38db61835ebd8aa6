// Package doctor is the program doctor, which cmd/doctor documents.
package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"

	"github.com/goverbs/goverbs/cmd/internal/doctor/check"
	"github.com/goverbs/goverbs/cmd/internal/doctor/peer"
	"github.com/goverbs/goverbs/cmd/internal/doctor/summary"
	"github.com/goverbs/goverbs/internal/version"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rdma"
)

// The exit statuses.
const (
	healthy = 0
	faulty  = 1
	failed  = 2
)

// options holds the command-line options.
type options struct {
	device, address string
	peers           []string
	port            int
	listen, json    bool
	verbose         bool
	version         bool
	summary, html   bool
	files           []string // with summary
}

// Main is the main function of the program.
func Main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills the program
	status, err := run(ctx, check.Host(), os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "doctor:", err)
	}
	os.Exit(status)
}

// run returns the exit status.
func run(ctx context.Context, s *check.System, args []string, out io.Writer) (int, error) {
	o, err := parse(args, out)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return healthy, nil
	case err != nil:
		return failed, err
	case o.version:
		if err := version.Print(out, "doctor"); err != nil {
			return failed, err
		}
		return healthy, nil
	case o.summary:
		return summarize(o, out)
	case o.listen:
		if err := listen(ctx, o, out); err != nil {
			return failed, err
		}
		return healthy, nil
	}
	return examineAll(ctx, s, o, out)
}

// examineAll examines the machine, and the connection to each peer, and returns the exit status.
func examineAll(ctx context.Context, s *check.System, o *options, out io.Writer) (int, error) {
	peers := inTurn(o.peers, s.Is)
	if len(peers) == 0 {
		peers = []string{""}
	}
	status := healthy
	for i, p := range peers {
		if i > 0 && ctx.Err() != nil {
			return failed, fmt.Errorf("%w: %d of %d peers were not examined", context.Cause(ctx), len(peers)-i, len(peers))
		}
		r := examine(ctx, s, o, p)
		write := r.text
		switch {
		case o.json:
			write = r.document
		case len(peers) > 1:
			if _, err := fmt.Fprintf(out, "Peer %s:\n", p); err != nil {
				return failed, err
			}
		}
		if err := write(out, o.verbose); err != nil {
			return failed, err
		}
		if !r.Healthy {
			status = faulty
		}
	}
	return status, nil
}

// inTurn returns the peers in the order in which a machine examines them: those after itself first, and itself last, so
// that machines with the same list that begin at the same time do not have the same peer.
func inTurn(peers []string, self func(string) bool) []string {
	i := slices.IndexFunc(peers, self) + 1
	return slices.Concat(peers[i:], peers[:i])
}

// examine examines the machine and, unless the peer is "", the connection to it.
func examine(ctx context.Context, s *check.System, o *options, to string) *report {
	r := &report{Origin: s.Origin(), Peer: to}
	r.Findings = check.Run(s, check.Request{Device: o.device, Address: cmp.Or(to, o.address)})
	if to != "" && r.usable() {
		at := net.JoinHostPort(to, strconv.Itoa(o.port))
		found, figures := peer.Probe(ctx, at, at)
		r.Findings, r.Figures = append(r.Findings, found...), figures
	}
	r.Healthy = check.Worst(r.Findings) < check.Error
	return r
}

func parse(args []string, out io.Writer) (*options, error) {
	o := &options{}
	f := flag.NewFlagSet("doctor", flag.ContinueOnError)
	f.SetOutput(out)
	f.Usage = func() {
		fmt.Fprintln(out, "usage: doctor [options] [peer...]\n       doctor -summary [-html] file...\n"+
			"Checks RDMA on this machine and, with peers where doctor -listen runs, the connection to each.")
		f.PrintDefaults()
	}
	f.StringVar(&o.device, "d", "", "check only this `device`, such as mlx5_0")
	f.StringVar(&o.address, "a", "", "check that programs can use this `address` of the machine")
	f.IntVar(&o.port, "p", peer.Port, "`port` of the peer, or to listen at")
	f.BoolVar(&o.listen, "listen", false, "be the peer of another doctor, until interrupted")
	f.BoolVar(&o.json, "json", false, "print a JSON document, one for each peer")
	f.BoolVar(&o.verbose, "v", false, "print facts and notes too")
	f.BoolVar(&o.summary, "summary", false, "print a summary of files, each with what -json printed on a machine")
	f.BoolVar(&o.html, "html", false, "with -summary, print a page of HTML")
	f.BoolVar(&o.version, "version", false, "print the version")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	return o, o.take(f.Args())
}

// take checks the options, and takes the arguments.
func (o *options) take(args []string) error {
	if o.html && !o.summary || o.summary && len(args) == 0 {
		return errors.New("-summary needs files with the output of doctor -json, and -html needs -summary")
	}
	if o.summary {
		o.files = args
		return nil
	}
	if len(args) > 0 && o.listen {
		return fmt.Errorf("unexpected argument %q: give no peer with -listen", args[0])
	}
	if i := slices.IndexFunc(args, func(a string) bool { return a == "" || a[0] == '-' }); i >= 0 {
		return fmt.Errorf("unexpected argument %q: give options before peers", args[i])
	}
	if o.port < 1 || o.port > 65535 {
		return fmt.Errorf("port %d is out of range: use 1 to 65535", o.port)
	}
	if _, err := netip.ParseAddr(o.address); o.address != "" && err != nil {
		return fmt.Errorf("-a: %w: give an IP address", err)
	}
	o.peers = args
	return nil
}

// summarize prints the summary of files, and returns the exit status.
func summarize(o *options, out io.Writer) (int, error) {
	s, err := summary.Read(o.files)
	if err != nil {
		return failed, err
	}
	write := s.Text
	if o.html {
		write = s.HTML
	}
	if err := write(out); err != nil {
		return failed, err
	}
	if !s.Healthy() {
		return faulty, nil
	}
	return healthy, nil
}

// listen serves peers until ctx ends.
func listen(ctx context.Context, o *options, out io.Writer) error {
	at := net.JoinHostPort("", strconv.Itoa(o.port))
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", at)
	if err != nil {
		return err
	}
	r, err := rdma.Listen(at, peer.ListenOptions())
	if err != nil {
		return errors.Join(err, l.Close())
	}
	if _, err := fmt.Fprintf(out, "doctor listens at port %d, of TCP and of RDMA\n", o.port); err != nil {
		return errors.Join(err, l.Close(), r.Close())
	}
	return peer.Serve(ctx, l, r)
}

// A report is the result of a run.
type report struct {
	check.Origin
	Healthy  bool            `json:"healthy"`
	Findings []check.Finding `json:"findings"`
	Peer     string          `json:"peer,omitempty"` // as on the command line
	Figures  *peer.Figures   `json:"figures,omitempty"`
}

// usable reports whether a device works, so that it makes sense to connect.
func (r *report) usable() bool {
	return slices.ContainsFunc(r.Findings, func(f check.Finding) bool { return f.ID == "use" && f.Severity == check.OK })
}

// document writes the report as JSON.
func (r *report) document(w io.Writer, _ bool) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}
