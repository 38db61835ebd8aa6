package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/goverbs/goverbs/testbed/vm"
)

// A host is where programs run.
type host interface {
	// run runs a program and returns all that it printed, in an error too.
	run(ctx context.Context, args ...string) (string, error)
	// install brings a program of this machine there.
	install(ctx context.Context, file string) (string, error)
	// compile makes a program of C source, and says by which compiler.
	compile(ctx context.Context, source string) (program, compiler string, err error)
}

// A guest is a host of the test bed.
type guest struct {
	*vm.Guest
	dir string // of this machine, for programs
}

func (g guest) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, longestAlone)
	defer cancel()
	out, err := g.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	return told(args, out, err)
}

func (g guest) install(_ context.Context, file string) (string, error) { return g.Install(file) }

// compile prefers the compiler of this machine, which optimizes, with the
// guest's headers and libraries.
func (g guest) compile(ctx context.Context, source string) (string, string, error) {
	if _, err := exec.LookPath("gcc"); err != nil {
		program, err := g.CompileC(ctx, source)
		return program, "tcc", err
	}
	flags, err := rootFlags(ctx, g.dir)
	if err != nil {
		return "", "", err
	}
	program := filepath.Join(g.dir, strings.TrimSuffix(filepath.Base(source), ".c"))
	args := append([]string{"gcc", "-O2", "-D_GNU_SOURCE", "-o", program, source}, flags.compile...)
	args = append(append(args, flags.link...), "-libverbs")
	if _, err := local(ctx, nil, args...); err != nil {
		return "", "", err
	}
	path, err := g.Install(program)
	return path, "gcc -O2", err
}

// local runs a program of this machine.
func local(ctx context.Context, env []string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	return told(args, out, err)
}

// told is what a program printed, and its error with the end of that. The last
// line, which mostly has the reason, comes first.
func told(args []string, out []byte, err error) (string, error) {
	if err == nil {
		return string(out), nil
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	last := len(lines) - 1
	before := lines[max(0, last-10):last]
	return string(out), fmt.Errorf("%s: %w: %s%s", strings.Join(args, " "), err, lines[last],
		bytes.Join(append([][]byte{nil}, before...), []byte("\n\t")))
}

// A machine is a server and a client, which may be the same.
type machine struct {
	server, client host
	address        string // of the server, for TCP and for the QPs' connection
	device         string
	serverDevice   string // where it has another name
	args           string // of perftest, always
	serverArgs     string // of its server, in their place
	port           int
	about          string               // the devices
	programs       map[string][2]string // on server and client
	dir            string               // of this machine, for programs
	arch           string               // Go's name of the hosts'; "": this machine's
}

// firstPort is perftest's own; a run has the next, until it is the first's turn
// again: by then nothing is left of its connection.
const (
	firstPort = 18515
	lastPort  = firstPort + 99
)

// next is the port of another run.
func (m *machine) next() int {
	if m.port++; m.port > lastPort {
		m.port = firstPort
	}
	return m.port
}

func (m *machine) both() []host {
	if m.server == m.client {
		return []host{m.server}
	}
	return []host{m.server, m.client}
}

// program builds one of our programs and brings it to both ends.
func (m *machine) program(ctx context.Context, pkg string) (paths [2]string, err error) {
	if paths, ok := m.programs[pkg]; ok {
		return paths, nil
	}
	file := filepath.Join(m.dir, filepath.Base(pkg))
	env := []string{"CGO_ENABLED=0"}
	if m.arch != "" {
		env = append(env, "GOOS=linux", "GOARCH="+m.arch)
	}
	if _, err := local(ctx, env, "go", "build", "-buildvcs=false", "-o", file, module+"/"+pkg); err != nil {
		return paths, err
	}
	paths[0], err = m.server.install(ctx, file)
	paths[1] = paths[0]
	if m.client != m.server && err == nil {
		paths[1], err = m.client.install(ctx, file)
	}
	m.programs[pkg] = paths
	return paths, err
}

// pair runs a server, waits until listening says that it listens, and runs its
// client, whose output it returns.
func (m *machine) pair(ctx context.Context, server, listening, client []string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	waiting, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := m.server.run(ctx, server...)
		stop()
		ended <- err
	}()
	if _, err := m.server.run(waiting, listening...); err != nil {
		cancel()
		return "", errors.Join(<-ended, err)
	}
	out, err := m.client.run(ctx, client...)
	if err != nil {
		cancel() // a server whose client has failed may wait for ever
		return out, errors.Join(err, <-ended)
	}
	return out, <-ended
}
