package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/bench/measure"
	"github.com/goverbs/goverbs/verbstest"
)

// TestMain runs a part for TestProcesses.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "parts" {
		if err := overTCP.Run(os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

var overTCP = measure.Parts{
	Listen: func(addr string) (string, func() error, error) {
		l, err := net.Listen("tcp", addr+":0")
		if err != nil {
			return "", nil, err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go io.Copy(c, c)
			}
		}()
		return l.Addr().String(), l.Close, nil
	},
	Dial: func(at string) (call, close func() error, err error) {
		c, err := net.Dial("tcp", at)
		if err != nil {
			return nil, nil, err
		}
		b := make([]byte, measure.SmallSize)
		return func() error {
			if _, err := c.Write(b); err != nil {
				return err
			}
			_, err := io.ReadFull(c, b)
			return err
		}, c.Close, nil
	},
}

// Every figure of a program of two processes is printed.
func TestProcesses(t *testing.T) {
	var out strings.Builder
	if err := measureParts(&out, "127.0.0.1", 2*step+1, []string{os.Args[0], "parts"}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(out.String()) {
		name, _, _ := strings.Cut(line, " ")
		names = append(names, name)
	}
	want := strings.Fields("server.pinned server.rss clients.pinned clients.rss machine" +
		" connect.first connect.last call.alone call.beside")
	if !slices.Equal(names, want) {
		t.Errorf("the output is\n%s", &out)
	}
	if err := measureParts(io.Discard, "127.0.0.1", 2*step+1, []string{os.Args[0], "parts", "none"}); err == nil {
		t.Error("a program without parts is measured")
	}
}

// Both parts of package rdma do what they are asked for.
func TestParts(t *testing.T) {
	addr := verbstest.New(t).Addr().String()
	for name, p := range kinds {
		t.Run(name, func(t *testing.T) {
			in, ask := io.Pipe()
			replies, out := io.Pipe()
			served := make(chan error, 1)
			go func() { served <- p.Run([]string{"serve", addr}, in, out) }()
			at, err := bufio.NewReader(replies).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			lines := strings.NewReader("connect 3\ncall 5\ncollect 1\n")
			if err := p.Run([]string{"dial", strings.TrimSpace(at)}, lines, &b); err != nil {
				t.Error(err)
			}
			if b.String() != "ready\ndone\ndone\ndone\n" {
				t.Errorf("the replies are %q", &b)
			}
			if err := p.Run([]string{"dial", strings.TrimSpace(at)}, strings.NewReader("leave 1\n"), io.Discard); err == nil {
				t.Error("there is a word leave")
			}
			ask.Close()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}
