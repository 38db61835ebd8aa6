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
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/cmd/internal/program/programtest"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbstest"
)

// start runs the program on a machine.
func start(t *testing.T, m *verbstest.Machine, in io.Reader, args ...string) *programtest.Run {
	return programtest.Start(t, m, func(ctx context.Context, out, messages io.Writer) error {
		return run(ctx, args, in, out, messages)
	})
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

// TestCopy copies a file to the server, from the server, and in both directions.
func TestCopy(t *testing.T) {
	const size = 3<<20 + 5
	empty := func(*testing.T) io.Reader { return strings.NewReader("") }
	full := func(t *testing.T) io.Reader { return file(t, programtest.Data(size)) }
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
			server.Says("Listening on")
			args := append(strings.Fields(test.clientArg), there.Addr().String(), "7471")
			client := start(t, here, in(test.toServer), args...)
			if err := client.Wait(); err != nil {
				t.Errorf("client: %v", err)
			}
			if err := server.Wait(); err != nil {
				t.Errorf("server: %v", err)
			}
			if got := server.Out.String(); got != string(programtest.Data(size)[:test.atServer]) {
				t.Errorf("the server has received %d bytes, not the %d of the file", len(got), test.atServer)
			}
			if got := client.Out.String(); got != string(programtest.Data(size)[:test.atClient]) {
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
	server.Says("Listening on :: 7471\n")
	client := start(t, here, toServer, "-Nv", there.Addr().String(), "7471")
	client.Says(fmt.Sprintf("Connection to %v 7471 port [rsocket] succeeded!\n", there.Addr()))
	server.Says(fmt.Sprintf("Connection received on %v", here.Addr()))
	for i := range 3 {
		fmt.Fprintf(typeClient, "question %d\n", i)
		prints(t, server, fmt.Sprintf("question %d\n", i))
		fmt.Fprintf(typeServer, "answer %d\n", i)
		prints(t, client, fmt.Sprintf("answer %d\n", i))
	}
	typeClient.Close() // ends the server, whose input goes on
	if err := server.Wait(); err != nil {
		t.Errorf("server: %v", err)
	}
	if err := client.Wait(); err != nil {
		t.Errorf("client: %v", err)
	}
	typeServer.Close()
}

// prints waits until the output of a program ends with text.
func prints(t *testing.T, r *programtest.Run, text string) {
	t.Helper()
	programtest.Await(t, "output "+text, func() bool { return strings.HasSuffix(r.Out.String(), text) })
}

// TestKeep connects to one server three times, once only to see whether it listens, and interrupts it.
func TestKeep(t *testing.T) {
	here, there := machines(t)
	server := start(t, there, nil, "-lkdv", "-p", "7471", "-s", there.Addr().String())
	server.Says("Listening on")
	for i := range 2 {
		in := strings.NewReader(fmt.Sprint("input ", i, "\n"))
		if err := start(t, here, in, "-N", there.Addr().String(), "7471").Wait(); err != nil {
			t.Error(err)
		}
	}
	if err := start(t, here, nil, "-z", there.Addr().String(), "7471").Wait(); err != nil {
		t.Error(err)
	}
	prints(t, server, "input 0\ninput 1\n")
	server.Interrupt()
	if err := server.Wait(); !errors.Is(err, program.ErrInterrupted) {
		t.Errorf("the server ends with %v", err)
	}
}

// TestIdle ends a connection on which nothing happens.
func TestIdle(t *testing.T) {
	here, there := machines(t)
	silent, never := io.Pipe()
	defer never.Close()
	server := start(t, there, nil, "-lvd", "7471")
	server.Says("Listening on")
	if err := start(t, here, silent, "-w", "1", there.Addr().String(), "7471").Wait(); err != nil {
		t.Errorf("client: %v", err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("server: %v", err)
	}
}

// TestSource connects from a given address and port.
func TestSource(t *testing.T) {
	here, there := machines(t)
	server := start(t, there, nil, "-lvd", "7471")
	server.Says("Listening on")
	args := []string{"-s", here.Addr().String(), "-p", "4711", "-N", there.Addr().String(), "7471"}
	if err := start(t, here, strings.NewReader(""), args...).Wait(); err != nil {
		t.Error(err)
	}
	server.Says(fmt.Sprintf("Connection received on %v\n", here.AddrPort(4711)))
}

// TestErrors has peers that do not exist, end too early, or are interrupted.
func TestErrors(t *testing.T) {
	here, there := machines(t)
	err := start(t, here, nil, "-d", there.Addr().String(), "7471").Wait()
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("without a server: %v", err)
	}
	if err := start(t, here, nil, "-d", "127.0.0.1", "7471").Wait(); !errors.Is(err, rsocket.ErrNoRDMA) ||
		!strings.Contains(err.Error(), "nc uses TCP") {
		t.Errorf("an address without a device: %v", err)
	}
	silent, never := io.Pipe()
	defer never.Close()
	server := start(t, there, silent, "-lv", "7471")
	server.Says("Listening on")
	client := start(t, here, silent, "-v", there.Addr().String(), "7471")
	server.Says("Connection received")
	client.Interrupt()
	if err := client.Wait(); !errors.Is(err, program.ErrInterrupted) {
		t.Errorf("an interrupted client: %v", err)
	}
	if err := server.Wait(); err != nil {
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
	server.Says("Listening on")
	if err := start(t, here, broken{}, "-N", there.Addr().String(), "7471").Wait(); !errors.Is(err, syscall.EIO) {
		t.Errorf("the client ends with %v", err)
	}
	if err := server.Wait(); err != nil {
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
