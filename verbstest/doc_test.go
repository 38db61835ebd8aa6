package verbstest_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbstest"
)

// The program under test: a server, and a client that sends a message and returns the reply.

func listen(addr string) (*cm.Listener, error) {
	return cm.Listen(addr, &cm.Options{Setup: func(c *cm.Conn) error {
		mr, err := c.AllocMsgs(messageSize)
		if err != nil {
			return err
		}
		c.Own(mr)
		c.ID().Context = mr
		return c.PostRecv(0, mr.SGE(0, messageSize))
	}})
}

func serve(l *cm.Listener) error {
	for {
		conn, err := l.Accept(context.Background())
		if errors.Is(err, cm.ErrListenerClosed) {
			return nil
		}
		if err == nil {
			err = serveConn(conn, messageSize)
		}
		if err != nil {
			return err
		}
	}
}

func request(addr, text string) (string, error) {
	return echo(context.Background(), addr, messageSize, text)
}

func TestRequest(t *testing.T) {
	net := verbstest.NewNetwork(t)
	server, client := net.Machine(), net.Machine()
	server.Run(func() {
		l, err := listen(":7471") // before the client dials
		if err != nil {
			t.Fatal(err)
		}
		served := make(chan error, 1)
		go func() { served <- serve(l) }() // until l is closed
		t.Cleanup(func() {
			if err := errors.Join(l.Close(), <-served); err != nil {
				t.Error(err)
			}
		})
	})
	client.Run(func() {
		reply, err := request(server.AddrPort(7471).String(), "hello")
		if err != nil || reply != "hello" {
			t.Errorf("reply %q, %v", reply, err)
		}
	})
}

// TestDocumentation checks that the package comment and docs/testing.md have the text of TestRequest.
func TestDocumentation(t *testing.T) {
	read := func(name string) string { return string(must(os.ReadFile(name))(t)) }
	const first = "func TestRequest("
	_, rest, _ := strings.Cut(read("doc_test.go"), "\n"+first)
	body, _, ok := strings.Cut(rest, "\n}\n")
	if !ok {
		t.Fatal("doc_test.go has no TestRequest")
	}
	text := first + body + "\n}\n"
	if !strings.Contains(read("../docs/testing.md"), "```go\n"+text+"```\n") {
		t.Error("the test in docs/testing.md is not TestRequest: copy it")
	}
	comment := "//\t" + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n//\t")
	if !strings.Contains(read("doc.go"), "\n//\n"+comment+"\n//\n") {
		t.Error("the test in doc.go is not TestRequest: copy it")
	}
}
