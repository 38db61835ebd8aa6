package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/bench/procmem"
	"github.com/goverbs/goverbs/bench/results"
)

const (
	step   = 100 // clients whose connecting is measured together
	rounds = 15  // of calls
	calls  = 100 // in a round
)

// A process is one part of a program.
type process struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts a part. It returns its first line too.
func start(args ...string) (p *process, line string, err error) {
	p = &process{Cmd: exec.Command(args[0], args[1:]...)}
	p.Stderr = os.Stderr
	if p.in, err = p.StdinPipe(); err != nil {
		return nil, "", err
	}
	out, err := p.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	p.out = bufio.NewReader(out)
	if err := p.Start(); err != nil {
		return nil, "", err
	}
	if line, err = p.line(); err != nil {
		p.end()
	}
	return p, line, err
}

func (p *process) line() (string, error) {
	line, err := p.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("%v has ended: %w", p.Args, errors.Join(err, p.Wait()))
	}
	return strings.TrimSuffix(line, "\n"), nil
}

// ask has the part do something n times.
func (p *process) ask(word string, n int) error {
	if _, err := fmt.Fprintf(p.in, "%s %d\n", word, n); err != nil {
		return err
	}
	_, err := p.line()
	return err
}

// cpu returns the CPU time of the process in nanoseconds.
func (p *process) cpu() (int64, error) {
	var t unix.Timespec
	err := unix.ClockGettime(int32(^p.Process.Pid<<3|2), &t) // MAKE_PROCESS_CPUCLOCK of the kernel
	return t.Nano(), err
}

// end ends the process, if it has not ended. The kernel closes its connections.
func (p *process) end() {
	p.in.Close()
	p.Process.Kill()
	p.Wait()
}

// A pair is a server and its clients.
type pair struct{ server, clients *process }

// startPair starts the two parts of a program, with one client.
func startPair(addr string, args []string) (p *pair, err error) {
	p = &pair{}
	var at string
	if p.server, at, err = start(slices.Concat(args, []string{"serve", addr})...); err != nil {
		return nil, err
	}
	if p.clients, _, err = start(slices.Concat(args, []string{"dial", at})...); err == nil {
		err = p.clients.ask("connect", 1)
	}
	if err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}

// end ends the server first, which would report that its clients have gone.
func (p *pair) end() {
	p.server.end()
	if p.clients != nil {
		p.clients.end()
	}
}

// measureParts measures a program with n clients, beside itself with one client.
func measureParts(w io.Writer, addr string, n int, args []string) error {
	alone, err := startPair(addr, args)
	if err != nil {
		return err
	}
	defer alone.end()
	p, err := startPair(addr, args)
	if err != nil {
		return err
	}
	defer p.end()
	if err := p.connectAll(w, n); err != nil {
		return err
	}
	// The two take turns, because how long a wait polls depends on what else the machine does.
	var all [2][]float64
	for range rounds {
		for i, p := range []*pair{alone, p} {
			c, err := p.cost("call", calls)
			if err != nil {
				return err
			}
			all[i] = append(all[i], c)
		}
	}
	_, err = fmt.Fprintf(w, "call.alone %.0f\ncall.beside %.0f\n", results.Quantile(all[0], 0.5),
		results.Quantile(all[1], 0.5))
	return err
}

// connectAll connects n clients in all, and writes what they take.
func (p *pair) connectAll(w io.Writer, n int) error {
	before, err := p.usage()
	if err != nil {
		return err
	}
	var costs [3]float64 // of the first clients, of most, and of the last
	for i, count := range []int{step, n - 2*step - 1, step} {
		if costs[i], err = p.cost("connect", count); err != nil {
			return err
		}
	}
	after, err := p.usage()
	if err != nil {
		return err
	}
	after.print(w, before, float64(n-1))
	_, err = fmt.Fprintf(w, "connect.first %.0f\nconnect.last %.0f\n", costs[0], costs[2])
	return err
}

// cost has the clients do something n times, and returns the CPU time of each.
func (p *pair) cost(word string, n int) (cost float64, err error) {
	var before, after int64
	if before, err = p.cpu(); err == nil {
		if err = p.clients.ask(word, n); err == nil {
			after, err = p.cpu()
		}
	}
	return float64(after-before) / float64(n), err
}

func (p *pair) cpu() (int64, error) {
	a, err := p.server.cpu()
	if err != nil {
		return 0, err
	}
	b, err := p.clients.cpu()
	return a + b, err
}

// A usage is the memory of the processes, and what the machine has left.
type usage struct {
	server, clients procmem.Usage
	available       float64
}

// usage returns what is used when both parts have freed what they can.
func (p *pair) usage() (u usage, err error) {
	if err = errors.Join(p.server.ask("collect", 1), p.clients.ask("collect", 1)); err != nil {
		return u, err
	}
	if u.server, err = procmem.Of(p.server.Process.Pid); err != nil {
		return u, err
	}
	if u.clients, err = procmem.Of(p.clients.Process.Pid); err != nil {
		return u, err
	}
	u.available, err = available()
	return u, err
}

func available() (float64, error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), "MemAvailable:")
	kib, err := strconv.ParseFloat(strings.Fields(rest + " none")[0], 64)
	return kib * 1024, err
}

// print writes what each of n clients has added.
func (u usage) print(w io.Writer, before usage, n float64) {
	for _, f := range []struct {
		name          string
		before, after float64
	}{
		{"server.pinned", before.server.Pinned, u.server.Pinned},
		{"server.rss", before.server.RSS, u.server.RSS},
		{"clients.pinned", before.clients.Pinned, u.clients.Pinned},
		{"clients.rss", before.clients.RSS, u.clients.RSS},
		{"machine", u.available, before.available},
	} {
		fmt.Fprintf(w, "%s %.0f\n", f.name, (f.after-f.before)/n)
	}
}
