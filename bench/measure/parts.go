package measure

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
)

// Parts are the server and the clients of a program. bench/clients runs each part as a process and asks it, line by
// line, for work. A C program has the same parts (testbed/speed/testdata/fabricclients.c).
type Parts struct {
	// Listen serves at an address until close is called, and returns where.
	Listen func(addr string) (at string, close func() error, err error)
	// Dial connects a client. A call of it sends SmallSize bytes and receives as many.
	Dial func(at string) (call, close func() error, err error)
}

// Run runs the part that the two arguments name: "serve ADDRESS", or "dial" and what the server has printed. It reads
// lines, each a word and a number, and replies with a line when the work is done: "connect 10" connects ten more
// clients, each of which calls once, "call 10" lets the first client call ten times, and "collect 1" frees what is not
// used. At the end of the lines it closes everything.
func (p *Parts) Run(args []string, in io.Reader, out io.Writer) (err error) {
	work := map[string]func() error{"collect": func() error { debug.FreeOSMemory(); return nil }}
	reply := "ready"
	var closes []func() error
	switch {
	case len(args) == 2 && args[0] == "serve":
		closes = make([]func() error, 1)
		reply, closes[0], err = p.Listen(args[1])
	case len(args) == 2 && args[0] == "dial":
		var first func() error
		work["connect"] = func() error {
			call, close, err := p.Dial(args[1])
			if err != nil {
				return fmt.Errorf("client %d: %w", len(closes)+1, err)
			}
			if closes = append(closes, close); len(closes) == 1 {
				first = call
			}
			return call()
		}
		work["call"] = func() error { return first() }
	default:
		err = fmt.Errorf("the arguments are %q, not serve or dial and an address", args)
	}
	if err != nil {
		return err
	}
	err = obey(in, out, reply, work)
	for _, close := range closes {
		err = errors.Join(err, close())
	}
	return err
}

// obey writes a line, and one more when the work of each line that it reads is done.
func obey(in io.Reader, out io.Writer, reply string, work map[string]func() error) error {
	fmt.Fprintln(out, reply)
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := do(lines.Text(), work); err != nil {
			return err
		}
		fmt.Fprintln(out, "done")
	}
	return lines.Err()
}

func do(line string, work map[string]func() error) error {
	var word string
	var n int
	if _, err := fmt.Sscanf(line, "%s %d", &word, &n); err != nil || work[word] == nil {
		return fmt.Errorf("the line is %q, not a word and a number", line)
	}
	for range n {
		if err := work[word](); err != nil {
			return err
		}
	}
	return nil
}
