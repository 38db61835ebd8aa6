package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbstest"
)

// errStop is the cause of the end of servers.
var errStop = errors.New("stopped by the test")

// A server is one that runs on a machine in memory. Its Write is what it prints.
type server struct {
	mu      sync.Mutex
	text    bytes.Buffer
	waiting chan struct{} // closed when it listens
	addr    string
	client  *verbstest.Machine
	stop    func() string // ends it, and returns what it has printed
}

func (s *server) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text.Len() == 0 {
		close(s.waiting)
	}
	return s.text.Write(b)
}

func startServer(t *testing.T) *server {
	t.Helper()
	n := verbstest.NewNetwork(t)
	machine := n.Machine()
	s := &server{waiting: make(chan struct{}), addr: machine.Addr().String(), client: n.Machine()}
	timeout, stop := context.WithTimeout(context.Background(), time.Minute)
	ctx, cancel := context.WithCancelCause(timeout)
	served := make(chan error, 1)
	machine.Run(func() { go func() { served <- run(ctx, nil, s) }() })
	select {
	case <-s.waiting:
	case err := <-served:
		t.Fatal(err)
	}
	s.stop = sync.OnceValue(func() string {
		cancel(errStop)
		if err := <-served; !errors.Is(err, errStop) {
			t.Errorf("the server: %v", err)
		}
		stop()
		return s.text.String()
	})
	t.Cleanup(func() { s.stop() })
	return s
}

// run runs a client, and returns what it prints.
func (s *server) run(t *testing.T, args ...string) (string, error) {
	var out strings.Builder
	var err error
	s.client.Run(func() { err = run(t.Context(), args, &out) })
	return out.String(), err
}

// file creates a file of n random bytes.
func file(t *testing.T, n int) (path string, data []byte) {
	t.Helper()
	data = make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(n)})
	if _, err := r.Read(data); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(path, data, 0o640); err != nil {
		t.Fatal(err)
	}
	return path, data
}

func TestCopy(t *testing.T) {
	s := startServer(t)
	want := "waiting for connection..."
	for _, size := range []int{0, 1, 70_000, 3_000_000} {
		source, data := file(t, size)
		to := filepath.Join(t.TempDir(), strings.Repeat("x", 1+size%8))
		out, err := s.run(t, source, s.addr+":"+to)
		if err != nil {
			t.Fatal(err)
		}
		if line := fmt.Sprintf("opening...transferring...closing...done\n%d bytes in ", size); !strings.HasPrefix(out, line) {
			t.Errorf("%d bytes: the client prints %q", size, out)
		}
		if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: the copy differs: %d bytes, %v", size, len(got), err)
		}
		if info, err := os.Stat(to); err != nil || info.Mode() != 0o640 {
			t.Errorf("the mode: %v, %v", info, err)
		}
		want += fmt.Sprintf("client: %v\nopening: %s, transferring...%d bytes...closing...done\nwaiting for connection...",
			s.client.Addr(), to, size)
	}
	if out := s.stop(); out != want {
		t.Errorf("the server prints\n%s\nwant\n%s", out, want)
	}
}

func TestErrors(t *testing.T) {
	s := startServer(t)
	source, _ := file(t, 10)
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct {
		args []string
		want error
	}{
		{[]string{missing, s.addr}, os.ErrNotExist},
		{[]string{source, s.addr + ":" + missing + "/file"}, os.ErrNotExist},
		{[]string{source, s.addr + ":" + filepath.Dir(missing)}, syscall.EISDIR},
		{[]string{source, s.addr, "-p", "1"}, syscall.ECONNREFUSED},
	} {
		if out, err := s.run(t, c.args...); !errors.Is(err, c.want) {
			t.Errorf("%q: error %v, want %v\n%s", c.args, err, c.want, out)
		}
	}
	for args, want := range map[string]string{
		"x":                                 "1 operands: give a source and server",
		filepath.Dir(source) + " " + s.addr: "is not a regular file",
		source + " " + s.addr + ":/" + strings.Repeat("x", 5000): "the path has 5001 bytes",
	} {
		if _, err := s.run(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", args, err, want)
		}
	}
}

// TestHostile sends what rcopy does not send. The server replies with an error, and serves the next client.
func TestHostile(t *testing.T) {
	s := startServer(t)
	path := filepath.Join(t.TempDir(), "file")
	open := func() []byte {
		return append(header{command: cmdOpen, length: headerLen + 256}.bytes(),
			append([]byte(path), make([]byte, 256-len(path))...)...)
	}
	for name, c := range map[string]struct {
		message []byte
		replies []uint32
	}{
		"version":    {append([]byte{1}, header{command: cmdClose, length: headerLen}.bytes()[1:]...), nil},
		"length":     {header{command: cmdOpen, length: headerLen - 1}.bytes(), nil},
		"no path":    {header{command: cmdOpen, length: headerLen}.bytes(), []uint32{uint32(syscall.ENAMETOOLONG)}},
		"long path":  {header{command: cmdOpen, length: 65535}.bytes(), []uint32{uint32(syscall.ENAMETOOLONG)}},
		"command":    {header{command: 9, length: headerLen}.bytes(), []uint32{uint32(syscall.EINVAL)}},
		"not open":   {header{command: cmdWrite, length: headerLen + sizeLen}.bytes(), []uint32{uint32(syscall.EINVAL)}},
		"open twice": {append(open(), open()...), []uint32{0, uint32(syscall.EBUSY)}},
		"short write": {append(open(), header{command: cmdWrite, length: headerLen}.bytes()...),
			[]uint32{0, uint32(syscall.EINVAL)}},
		"size": {append(open(), append(header{command: cmdWrite, length: headerLen + sizeLen}.bytes(),
			bytes.Repeat([]byte{0xff}, 8)...)...), []uint32{0, uint32(syscall.EFBIG)}},
	} {
		t.Run(name, func(t *testing.T) {
			s.client.Run(func() {
				conn, err := rsocket.Dial("tcp", net.JoinHostPort(s.addr, "7427"))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if _, err := conn.Write(c.message); err != nil {
					t.Error(err)
				}
				for _, want := range c.replies {
					if h, err := readHeader(conn); err != nil || h.data != want {
						t.Errorf("the reply is %+v, %v, want %d", h, err, want)
					}
				}
				if n, err := conn.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("more than the replies: %d, %v", n, err)
				}
			})
		})
	}
	source, _ := file(t, 10)
	if _, err := s.run(t, source, s.addr+":"+path); err != nil {
		t.Error(err)
	}
}

func TestDestination(t *testing.T) {
	for s, want := range map[string][2]string{
		"host": {"host", "src"}, "host:": {"host", "src"}, "host:/a:b": {"host", "/a:b"}, "10.0.0.1:x": {"10.0.0.1", "x"},
		"fd00::1": {"fd00::1", "src"}, "[fd00::1]": {"fd00::1", "src"}, "[fd00::1]:/a": {"fd00::1", "/a"},
	} {
		if host, path := destination(s, "src"); host != want[0] || path != want[1] {
			t.Errorf("%q: %q, %q", s, host, path)
		}
	}
}
