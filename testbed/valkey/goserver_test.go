//go:build vm && !device

package valkey_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/valkeyrdma"
	"github.com/goverbs/goverbs/verbstest"
)

// The client of Valkey's own tests uses a server in Go.
func TestGoServer(t *testing.T) {
	n := verbstest.NewNetwork(t)
	server, client := n.Machine(), n.Machine()
	var l *valkeyrdma.Listener
	served := make(chan error, 1)
	server.Run(func() {
		var err error
		lc := &valkeyrdma.ListenConfig{Config: valkeyrdma.Config{RecvBuffer: 1 << 16}} // which is filled many times
		l, err = lc.Listen(":6379")
		check(t, err)
		go func() {
			c, err := l.Accept()
			if err == nil {
				err = errors.Join(serve(c), c.Close())
			}
			served <- err
		}()
	})
	host := server.Addr().String()
	out, err := cshim.New(t, client).ValkeyClient("-h", host, "-m", "200", "-M", "201").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "GET 200 KVs [OK]") {
		t.Errorf("%v\n%s", err, out)
	}
	check(t, errors.Join(<-served, l.Close()))
}

// serve executes the commands that the client sends.
func serve(c net.Conn) error {
	in, values := bufio.NewReader(c), map[string]string{}
	for {
		args, err := readCommand(in)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		reply := "-ERR unknown command\r\n"
		switch args[0] {
		case "PING":
			reply = "+PONG\r\n"
		case "BGSAVE":
			reply = "+Background saving started\r\n"
		case "SET":
			values[args[1]] = args[2]
			reply = "+OK\r\n"
		case "GET":
			reply = fmt.Sprintf("$%d\r\n%s\r\n", len(values[args[1]]), values[args[1]])
		}
		if _, err := io.WriteString(c, reply); err != nil {
			return err
		}
	}
}

// readCommand reads an array of texts.
func readCommand(in *bufio.Reader) ([]string, error) {
	n, err := readNumber(in, '*')
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := readNumber(in, '$')
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(in, b); err != nil {
			return nil, err
		}
		args[i] = string(b[:size])
	}
	return args, nil
}

func readNumber(in *bufio.Reader, kind byte) (int, error) {
	line, err := in.ReadString('\n')
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	if err != nil || line[0] != kind || n < 1 || n > 1<<20 {
		return 0, fmt.Errorf("%q is no %c", line, kind)
	}
	return n, nil
}
