// Peer exchanges messages with a peer in another guest in spite of failures of
// the network or of the other end. Numbered messages with checksums are sent in
// both directions by SEND, and by WRITE and READ. It prints events, and finally
// an account, as lines of JSON. Every wait has a limit.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/testbed/faults"
)

type options struct {
	serve, call string
	cm          bool
	device      string
	messages    int
	long, stay  bool
	sends       faults.Kind
	limit       time.Duration
	stall       time.Duration
	die         time.Duration
	churn       int
}

func parse() (o options, err error) {
	flag.StringVar(&o.serve, "serve", "", "`address` to listen on")
	flag.StringVar(&o.call, "call", "", "`address` to connect to")
	flag.BoolVar(&o.cm, "cm", false, "connect with package cm instead of a handshake over TCP")
	flag.StringVar(&o.device, "device", "rxe0", "RDMA device")
	flag.IntVar(&o.messages, "n", 1000, "SENDs, and rounds of WRITE and READ, from this end")
	flag.BoolVar(&o.long, "long", false, "rounds of several packets too")
	sends := flag.String("sends", "any", "SENDs of `length` any, short (one packet) or long (several)")
	flag.BoolVar(&o.stay, "stay", false, "serve one peer after the other until SIGTERM")
	flag.DurationVar(&o.limit, "limit", 2*time.Minute, "time limit of the program")
	flag.DurationVar(&o.stall, "stall", 30*time.Second, "maximum time without a completion while requests are outstanding")
	flag.DurationVar(&o.die, "die", 0, "kill this process with SIGKILL after that time")
	flag.IntVar(&o.churn, "churn", 0, "keep that many MiB of small objects, and replace them continuously")
	flag.Parse()
	o.sends = map[string]faults.Kind{"any": faults.Data, "short": faults.ShortData, "long": faults.LongData}[*sends]
	if o.sends == 0 {
		return o, fmt.Errorf("peer: invalid -sends %s: use any, short or long", *sends)
	}
	if (o.serve == "") == (o.call == "") || flag.NArg() > 0 {
		return o, errors.New("peer: use either -serve or -call")
	}
	return o, nil
}

func main() {
	o, err := parse()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if o.die > 0 {
		time.AfterFunc(o.die, func() { _ = unix.Kill(os.Getpid(), unix.SIGKILL) })
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), o.limit, fmt.Errorf("not done after %v", o.limit))
	defer cancel()
	term, stop := signal.NotifyContext(ctx, unix.SIGTERM)
	defer stop()
	a, err := run(ctx, term, o)
	if err != nil {
		a.Error = err.Error()
	}
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	a.GCs = mem.NumGC
	say(faults.Event{Event: faults.Final, Account: a})
	if a.Check() != nil {
		os.Exit(1)
	}
}

// run exchanges messages until both ends have finished, or until SIGTERM.
func run(ctx, term context.Context, o options) (_ *faults.Account, err error) {
	p := &peer{options: o, account: &faults.Account{Statuses: map[string]int{}}}
	if err := p.open(); err != nil {
		return p.account, err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	if o.churn > 0 {
		defer churn(o.churn)()
	}
	var l lines
	if o.cm {
		l = &cmLines{p: p}
	} else {
		l = &tcpLines{p: p}
	}
	if o.serve != "" {
		if err := l.listen(o.serve); err != nil {
			return p.account, err
		}
		say(faults.Event{Event: faults.Listening})
	}
	return p.account, errors.Join(p.runSessions(ctx, term, l), l.close())
}

func say(e faults.Event) {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // plain fields always have a JSON form
	}
	fmt.Println(string(b))
}

// churn keeps the garbage collector busy until stop is called.
func churn(mib int) (stop func()) {
	const size = 256
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		kept := make([]*[size]byte, mib<<20/size)
		for i := 0; ; i = (i + 1) % len(kept) {
			kept[i] = new([size]byte)
			kept[i][0] = byte(i)
			if i%1024 != 0 {
				continue
			}
			select {
			case <-done:
				return
			default:
				runtime.Gosched()
			}
		}
	}()
	return func() { close(done); <-ended }
}
