package rnc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbstest"
)

// A side is a run of the program.
type side struct {
	out, messages lockedBuffer
	ended         chan error
	cancel        context.CancelCauseFunc
}

// lockedBuffer is a buffer that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// start runs the program on a machine.
func start(t *testing.T, m *verbstest.Machine, in io.Reader, args ...string) *side {
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &side{ended: make(chan error, 1), cancel: cancel}
	m.Run(func() { go func() { s.ended <- run(ctx, args, in, &s.out, &s.messages) }() })
	return s
}

// wait returns what the program has returned.
func (s *side) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the program does not end")
		return nil
	}
}

// says waits for a message.
func (s *side) says(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(s.messages.String(), text); {
		if time.Now().After(end) {
			t.Fatalf("the messages are %q, without %q", s.messages.String(), text)
		}
		select {
		case err := <-s.ended:
			t.Fatalf("the program has ended with %v before it said %q", err, text)
		case <-time.After(time.Millisecond):
		}
	}
}

func machines(t *testing.T) (here, there *verbstest.Machine) {
	n := verbstest.NewNetwork(t)
	return n.Machine(), n.Machine()
}

// file returns a file with data.
func file(t *testing.T, data []byte) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func data(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * i >> 3)
	}
	return b
}

// TestCopy copies a file to the server, from the server, and in both directions.
func TestCopy(t *testing.T) {
	const size = 3<<20 + 5
	empty := func(*testing.T) io.Reader { return strings.NewReader("") }
	full := func(t *testing.T) io.Reader { return file(t, data(size)) }
	for _, test := range []struct {
		name                  string
		toServer, toClient    func(*testing.T) io.Reader
		serverArgs, clientArg string
		atServer, atClient    int
	}{
		{"to the server", full, empty, "-l", "-N", size, 0},
		{"from the server", empty, full, "-l -N", "", 0, size},
		{"without input at the client", nil, full, "-l -N", "-d", 0, size},
		{"both", full, full, "-l", "-N", size, size},
		{"IPv4, small buffers", full, empty, "-l -4 -I 4096 -O 4096", "-4 -N -O 4096", size, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			here, there := machines(t)
			in := func(f func(*testing.T) io.Reader) io.Reader {
				if f == nil {
					return nil
				}
				return f(t)
			}
			server := start(t, there, in(test.toClient), append(strings.Fields(test.serverArgs), "-v", "7471")...)
			server.says(t, "Listening on")
			args := append(strings.Fields(test.clientArg), there.Addr().String(), "7471")
			client := start(t, here, in(test.toServer), args...)
			if err := client.wait(t); err != nil {
				t.Errorf("client: %v", err)
			}
			if err := server.wait(t); err != nil {
				t.Errorf("server: %v", err)
			}
			if got := server.out.String(); got != string(data(size)[:test.atServer]) {
				t.Errorf("the server has received %d bytes, not the %d of the file", len(got), test.atServer)
			}
			if got := client.out.String(); got != string(data(size)[:test.atClient]) {
				t.Errorf("the client has received %d bytes, not the %d of the file", len(got), test.atClient)
			}
		})
	}
}

// TestDialogue types lines on both sides.
func TestDialogue(t *testing.T) {
	here, there := machines(t)
	toClient, typeServer := io.Pipe()
	toServer, typeClient := io.Pipe()
	server := start(t, there, toClient, "-lv", "7471")
	server.says(t, "Listening on :: 7471\n")
	client := start(t, here, toServer, "-Nv", there.Addr().String(), "7471")
	client.says(t, fmt.Sprintf("Connection to %v 7471 port [rsocket] succeeded!\n", there.Addr()))
	server.says(t, fmt.Sprintf("Connection received on %v", here.Addr()))
	for i := range 3 {
		fmt.Fprintf(typeClient, "question %d\n", i)
		await(t, &server.out, fmt.Sprintf("question %d\n", i))
		fmt.Fprintf(typeServer, "answer %d\n", i)
		await(t, &client.out, fmt.Sprintf("answer %d\n", i))
	}
	typeClient.Close() // ends the server, whose input goes on
	if err := server.wait(t); err != nil {
		t.Errorf("server: %v", err)
	}
	if err := client.wait(t); err != nil {
		t.Errorf("client: %v", err)
	}
	typeServer.Close()
}

func await(t *testing.T, b *lockedBuffer, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !strings.HasSuffix(b.String(), text); {
		if time.Now().After(end) {
			t.Fatalf("the output is %q, without %q", b.String(), text)
		}
		<-time.After(time.Millisecond)
	}
}

// TestKeep connects to one server three times, once only to see whether it listens, and interrupts it.
func TestKeep(t *testing.T) {
	here, there := machines(t)
	server := start(t, there, nil, "-lkdv", "-p", "7471", "-s", there.Addr().String())
	server.says(t, "Listening on")
	for i := range 2 {
		in := strings.NewReader(fmt.Sprint("input ", i, "\n"))
		if err := start(t, here, in, "-N", there.Addr().String(), "7471").wait(t); err != nil {
			t.Error(err)
		}
	}
	if err := start(t, here, nil, "-z", there.Addr().String(), "7471").wait(t); err != nil {
		t.Error(err)
	}
	await(t, &server.out, "input 0\ninput 1\n")
	server.cancel(program.ErrInterrupted)
	if err := server.wait(t); !errors.Is(err, program.ErrInterrupted) {
		t.Errorf("the server ends with %v", err)
	}
}

// TestIdle ends a connection on which nothing happens.
func TestIdle(t *testing.T) {
	here, there := machines(t)
	silent, never := io.Pipe()
	defer never.Close()
	server := start(t, there, nil, "-lvd", "7471")
	server.says(t, "Listening on")
	if err := start(t, here, silent, "-w", "1", there.Addr().String(), "7471").wait(t); err != nil {
		t.Errorf("client: %v", err)
	}
	if err := server.wait(t); err != nil {
		t.Errorf("server: %v", err)
	}
}

// TestSource connects from a given address and port.
func TestSource(t *testing.T) {
	here, there := machines(t)
	server := start(t, there, nil, "-lvd", "7471")
	server.says(t, "Listening on")
	args := []string{"-s", here.Addr().String(), "-p", "4711", "-N", there.Addr().String(), "7471"}
	if err := start(t, here, strings.NewReader(""), args...).wait(t); err != nil {
		t.Error(err)
	}
	server.says(t, fmt.Sprintf("Connection received on %v\n", here.AddrPort(4711)))
}

// TestErrors has peers that do not exist, end too early, or are interrupted.
func TestErrors(t *testing.T) {
	here, there := machines(t)
	err := start(t, here, nil, "-d", there.Addr().String(), "7471").wait(t)
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without a server: %v", err)
	}
	if err := start(t, here, nil, "-d", "127.0.0.1", "7471").wait(t); !errors.Is(err, rsocket.ErrNoRDMA) ||
		!strings.Contains(err.Error(), "nc uses TCP") {
		t.Errorf("an address without a device: %v", err)
	}
	silent, never := io.Pipe()
	defer never.Close()
	server := start(t, there, silent, "-lv", "7471")
	server.says(t, "Listening on")
	client := start(t, here, silent, "-v", there.Addr().String(), "7471")
	server.says(t, "Connection received")
	client.cancel(program.ErrInterrupted)
	if err := client.wait(t); !errors.Is(err, program.ErrInterrupted) {
		t.Errorf("an interrupted client: %v", err)
	}
	if err := server.wait(t); err != nil {
		t.Errorf("a server whose client is interrupted: %v", err)
	}
}

// broken is input that fails.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, syscall.EIO }

// TestInputFails has an input that cannot be read.
func TestInputFails(t *testing.T) {
	here, there := machines(t)
	server := start(t, there, nil, "-lvd", "7471")
	server.says(t, "Listening on")
	if err := start(t, here, broken{}, "-N", there.Addr().String(), "7471").wait(t); !errors.Is(err, syscall.EIO) {
		t.Errorf("the client ends with %v", err)
	}
	if err := server.wait(t); err != nil {
		t.Errorf("server: %v", err)
	}
}

// TestOptions checks options that are refused, and the usage.
func TestOptions(t *testing.T) {
	for _, args := range []string{"", "host", "host 1 2", "-k host 1", "-l", "-l a b c", "-lz 1", "-46 host 1",
		"-w 0 host 1", "-w x host 1", "-x host 1", "-p", "-T 256 host 1"} {
		if _, err := parseOptions(strings.Fields(args)); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	var out bytes.Buffer
	err := run(t.Context(), []string{"-h"}, nil, &out, nil)
	if err != nil || !strings.Contains(out.String(), "rnc -l") {
		t.Errorf("the usage is %q, %v", &out, err)
	}
}
