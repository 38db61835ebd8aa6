package program

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

// Until waits until a shell script succeeds.
func Until(t testing.TB, g *vm.Guest, script string) {
	t.Helper()
	Run(t, g, "timeout", "90", "sh", "-c", "until "+script+"; do sleep 0.2; done")
}

// A Dialogue is a connection to a program that executes commands step by step.
// The program reads lines, each a JSON string, and replies to each with a line
// "= value" or "! error". Its other output is shown if it exits early.
type Dialogue struct {
	t    testing.TB
	in   *io.PipeWriter
	out  *bufio.Reader
	said strings.Builder
}

// Converse starts such a program. The first line of the program is also a
// reply. The program is killed at the end of the test.
func Converse(t testing.TB, g *vm.Guest, name string, args ...string) *Dialogue {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	d := &Dialogue{t: t, in: in, out: bufio.NewReader(out)}
	c := g.CommandContext(ctx, name, args...)
	c.Stdin, c.Stdout, c.Stderr = stdin, stdout, stdout
	if err := c.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		stdout.CloseWithError(fmt.Errorf("the program has ended: %v", c.Wait()))
		close(ended)
	}()
	t.Cleanup(func() {
		in.Close()
		out.Close()
		cancel()
		<-ended
	})
	d.reply("the start")
	return d
}

// Say sends a line, and returns the reply.
func (d *Dialogue) Say(line string) string {
	d.t.Helper()
	b, err := json.Marshal(line)
	if err == nil {
		_, err = d.in.Write(append(b, '\n'))
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return d.reply(line)
}

func (d *Dialogue) reply(what string) string {
	d.t.Helper()
	for {
		line, err := d.out.ReadString('\n')
		if err != nil {
			d.t.Fatalf("%s: %v\n%s", what, err, d.said.String())
		}
		if strings.HasPrefix(line, "= ") || strings.HasPrefix(line, "! ") || line == "=\n" {
			return strings.TrimSpace(line)
		}
		d.said.WriteString(line)
	}
}

// Value sends a line that must succeed, and returns the value.
func (d *Dialogue) Value(line string) string {
	d.t.Helper()
	v, ok := strings.CutPrefix(d.Say(line), "=")
	if !ok {
		d.t.Fatalf("%s: %s", line, v)
	}
	return strings.TrimSpace(v)
}

// Do sends a line that must succeed without a value.
func (d *Dialogue) Do(line string) {
	d.t.Helper()
	d.Value(line)
}

// Want sends a line, and checks the reply.
func (d *Dialogue) Want(line, reply string) {
	d.t.Helper()
	if got := d.Say(line); got != reply {
		d.t.Errorf("%s\ngot  %s\nwant %s", line, got, reply)
	}
}
