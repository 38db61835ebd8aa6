//go:build vm

package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

//go:embed testdata/verbs.py
var verbsPython string

// A python is a Python program in a guest that says verbs to C's libraries as it
// is told, so that a test can make things happen in between.
type python struct {
	t      *testing.T
	in     *io.PipeWriter
	out    *bufio.Reader
	stderr bytes.Buffer // complete at the end of out
}

// startPython starts one. It ends with the test, or by end.
func startPython(t *testing.T, g *vm.Guest) *python {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	y := &python{t: t, in: in, out: bufio.NewReader(out)}
	c := g.CommandContext(ctx, "python3", "-c", verbsPython)
	c.Stdin, c.Stdout, c.Stderr = stdin, stdout, &y.stderr
	if err := c.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	ended := make(chan bool)
	go func() {
		stdout.CloseWithError(fmt.Errorf("the program has ended: %v", c.Wait()))
		close(ended)
	}()
	t.Cleanup(func() {
		y.in.Close()
		out.Close()
		cancel()
		<-ended
	})
	y.answer("the start")
	return y
}

// say has an expression or a statement carried out. The answer is "= value" or
// "! error".
func (y *python) say(code string) string {
	y.t.Helper()
	line, err := json.Marshal(code)
	if err == nil {
		_, err = y.in.Write(append(line, '\n'))
	}
	if err != nil {
		y.t.Fatal(err)
	}
	return y.answer(code)
}

func (y *python) answer(what string) string {
	y.t.Helper()
	for {
		line, err := y.out.ReadString('\n')
		if err != nil {
			y.t.Fatalf("Python: %s: %v\n%s", what, err, &y.stderr)
		}
		if strings.HasPrefix(line, "= ") || strings.HasPrefix(line, "! ") { // C's libraries print, too
			return strings.TrimSpace(line)
		}
	}
}

// do has a statement carried out that has to work, and value an expression.
func (y *python) do(code string) { y.t.Helper(); y.value(code) }

func (y *python) value(code string) string {
	y.t.Helper()
	v, ok := strings.CutPrefix(y.say(code), "=")
	if !ok {
		y.t.Fatalf("Python: %s: %s", code, v)
	}
	return strings.TrimSpace(v)
}

// want is about the answer.
func (y *python) want(code, answer string) {
	y.t.Helper()
	if got := y.say(code); got != answer {
		y.t.Errorf("%s\ngot  %s\nwant %s", code, got, answer)
	}
}
