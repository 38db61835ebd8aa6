// Package measure measures operations of programs that are compared: their CPU time in the process, or the times of
// single ones. C's programs measure theirs in the same way (testbed/speed/testdata/messages.h).
package measure

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/bench/results"
)

// What a Level transfers.
const (
	SmallSize = 64
	LargeSize = 1 << 20
	ManyConns = 100

	mediumSize = 64 << 10
)

// A Conn is one end of a connection, whose other end sends the first SmallSize bytes of each message back.
type Conn interface {
	Send(n int) error // a message of n bytes
	Recv() error
	Close() error // both ends
}

// A Level is a way to do the work.
type Level struct {
	Name        string // the end of the names of its figures
	Conn        Conn
	Eager       Conn                 // for large messages, if Conn sends them in another way, and otherwise nil or Conn
	Dial        func() (Conn, error) // a further connection, for messages of SmallSize bytes
	Connect     func() error         // connects and closes both ends; nil stands for Dial and Close
	Read, Write func() error         // nil if the level has none
	Close       func() error         // after all connections

	// Call sends n bytes and waits for SmallSize bytes. A level that has it has no other operation but Close.
	Call func(n int) error

	// Addr is where the level listens, and DialAt is Dial to the level of another process, or nil.
	Addr   string
	DialAt func(addr string) (Conn, error)

	many []Conn
	only []string // names of the operations that are measured; all if empty
}

// An operation is measured.
type operation struct {
	name  string
	count int // in a round
	every int // one for so many of READ, if single times are measured; 0 for none
	of    int // how many times the figure is in it
	run   func() error
}

// operations returns the operations that the level has.
func (l *Level) operations() (all []operation) {
	if l.Call != nil {
		return l.calls()
	}
	large, offered := l.Eager, func() error { return echo(l.Conn, LargeSize) }
	if large == nil {
		large, offered = l.Conn, nil
	}
	connect := l.Connect
	if connect == nil {
		connect = l.connect
	}
	for _, o := range []operation{{"read", 150, 1, 1, l.Read}, {"write", 150, 1, 1, l.Write},
		{"small", 150, 1, 1, func() error { return echo(l.Conn, SmallSize) }},
		{"64KiB", 50, 0, 1, func() error { return echo(l.Conn, mediumSize) }},
		{"large", 20, 0, 1, func() error { return echo(large, LargeSize) }}, {"offered", 20, 0, 1, offered},
		{"connect", 5, 50, 1, connect}, {"many", 2, 50, ManyConns, l.echoMany}} {
		if o.run != nil && (len(l.only) == 0 || slices.Contains(l.only, o.name)) {
			all = append(all, o)
		}
	}
	return all
}

// calls returns calls of several lengths.
func (l *Level) calls() (all []operation) {
	for _, o := range []struct {
		name     string
		n, count int
	}{{"small", SmallSize, 150}, {"4KiB", 4 << 10, 100}, {"64KiB", mediumSize, 50}, {"large", LargeSize, 20}} {
		all = append(all, operation{o.name, o.count, 0, 1, func() error { return l.Call(o.n) }})
	}
	return all
}

func echo(c Conn, n int) error {
	if err := c.Send(n); err != nil {
		return err
	}
	return c.Recv()
}

// connect connects and closes both ends.
func (l *Level) connect() error {
	c, err := l.Dial()
	if err != nil {
		return err
	}
	return c.Close()
}

// echoMany sends a message on each of many connections, and then receives the echoes.
func (l *Level) echoMany() error {
	for len(l.many) < ManyConns {
		c, err := l.Dial()
		if err != nil {
			return err
		}
		l.many = append(l.many, c)
	}
	for _, c := range l.many {
		if err := c.Send(SmallSize); err != nil {
			return err
		}
	}
	for _, c := range l.many {
		if err := c.Recv(); err != nil {
			return err
		}
	}
	return nil
}

// close closes all connections at once: each may wait for its peer.
func (l *Level) close() error {
	all := l.many
	if l.Conn != nil {
		all = append(all, l.Conn)
	}
	errs := make([]error, len(all), len(all)+1)
	var closing sync.WaitGroup
	for i, c := range all {
		closing.Go(func() { errs[i] = c.Close() })
	}
	closing.Wait()
	return errors.Join(append(errs, l.Close())...)
}

// Main measures the levels that open returns, as the program's options say.
func Main(name string, open func(addr string, tails bool) ([]*Level, error)) {
	addr := flag.String("addr", "10.9.0.1", "address of the device")
	rounds := flag.Int("rounds", 25, "number of rounds")
	only := flag.String("only", "", "comma-separated names of the operations to measure; all if empty")
	tail := flag.Int("tail", 0, "measure the times of this many single operations instead")
	idle := flag.Int("idle", 0, "measure this many idle connections to another process, and small messages beside them")
	dial := flag.String("dial", "", "connect the connections of -idle to the address; the program starts itself with it")
	flag.IntVar(&churnGOGC, "gogc", churnGOGC, "GOGC beside which messages are measured, with -tail")
	flag.Parse()
	err := errors.New("unexpected argument, or a number below 1")
	if flag.NArg() == 0 && *rounds > 0 && *tail >= 0 && *idle >= 0 {
		debug.SetGCPercent(-1) // do not measure garbage collections
		if *tail == 0 && *idle == 0 {
			runtime.GOMAXPROCS(1)
		}
		var levels []*Level
		if levels, err = open(*addr, *tail > 0); err == nil {
			err = restrict(*only, levels)
		}
		switch {
		case err != nil:
		case *dial != "":
			err = dialIdle(levels[0], *dial, *idle)
		case *idle > 0:
			err = beside(os.Stdout, levels[0], *idle, *rounds)
		default:
			err = Run(os.Stdout, *rounds, *tail, levels...)
		}
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// restrict makes the levels measure the named operations alone, or all if names is empty.
func restrict(names string, levels []*Level) error {
	only := strings.FieldsFunc(names, func(r rune) bool { return r == ',' })
	for _, name := range only {
		if !slices.ContainsFunc(levels[0].operations(), func(o operation) bool { return o.name == name }) {
			return fmt.Errorf("-only: there is no operation %q", name)
		}
	}
	for _, l := range levels {
		l.only = only
	}
	return nil
}

// Run prints the median CPU times of some rounds of levels, whose operations run in turn, or if tail is not 0, the
// times of so many operations of one level. It closes the levels.
func Run(w io.Writer, rounds, tail int, levels ...*Level) (err error) {
	if tail > 0 {
		err = tails(w, levels[0], tail)
	} else {
		err = costs(w, levels, rounds, (*Level).operations)
	}
	for _, l := range levels {
		err = errors.Join(err, l.close())
	}
	return err
}

// costs prints the median CPU time of each of some operations, and the ratio of two levels.
func costs(w io.Writer, levels []*Level, rounds int, of func(*Level) []operation) error {
	for k, o := range of(levels[0]) {
		all := make([][]float64, len(levels))
		for range rounds {
			for i, l := range levels {
				c, err := cost(of(l)[k])
				if err != nil {
					return fmt.Errorf("%s%s: %w", o.name, l.Name, err)
				}
				all[i] = append(all[i], c)
			}
		}
		for i, l := range levels {
			fmt.Fprintf(w, "%s%s %.0f\n", o.name, l.Name, results.Quantile(all[i], 0.5))
		}
		if len(levels) == 2 {
			fmt.Fprintf(w, "%s_ratio %.3f\n", o.name, results.Quantile(all[0], 0.5)/results.Quantile(all[1], 0.5))
		}
	}
	return nil
}

// cost returns the CPU time of one operation.
func cost(o operation) (float64, error) {
	if err := o.run(); err != nil { // what follows begins in the same state
		return 0, err
	}
	start, err := cpuTime()
	if err != nil {
		return 0, err
	}
	for range o.count {
		if err := o.run(); err != nil {
			return 0, err
		}
	}
	end, err := cpuTime()
	return float64(end-start) / float64(o.count*o.of), err
}

func cpuTime() (int64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return t.Nano(), err
}
