package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/testbed/vm"
)

// A host runs programs.
type host interface {
	// run runs a program and returns its output, also if it fails.
	run(ctx context.Context, args ...string) (string, error)
	// install copies a program from this machine to the host.
	install(ctx context.Context, file string) (string, error)
	// compile compiles C source, and returns the program and the compiler's name. The program is linked with
	// libraries, which are names as after -l.
	compile(ctx context.Context, source string, libraries ...string) (program, compiler string, err error)
}

// A guest is a host of the test bed.
type guest struct {
	*vm.Guest
	dir string // on this machine, for programs
}

func (g guest) run(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, longestAlone)
	defer cancel()
	out, err := g.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
	return withOutput(args, out, err)
}

func (g guest) install(_ context.Context, file string) (string, error) { return g.Install(file) }

// compile prefers this machine's compiler, which optimizes, with the guest's headers and
// libraries.
func (g guest) compile(ctx context.Context, source string, libraries ...string) (string, string, error) {
	if _, err := exec.LookPath("gcc"); err != nil {
		program, err := g.CompileC(ctx, source, libraries...)
		return program, "tcc", err
	}
	flags, err := rootFlags(ctx, g.dir)
	if err != nil {
		return "", "", err
	}
	program := filepath.Join(g.dir, strings.TrimSuffix(filepath.Base(source), ".c"))
	args := append([]string{"gcc", "-O2", "-D_GNU_SOURCE", "-o", program, source}, flags.compile...)
	args = append(append(args, flags.link...), "-lrdmacm", "-libverbs")
	if slices.Contains(libraries, libfabric) {
		more, err := fabricFlags(ctx)
		if err != nil {
			return "", "", err
		}
		args = append(append(args, more.compile...), more.link...)
	}
	for _, name := range libraries {
		args = append(args, "-l"+name)
	}
	if _, err := local(ctx, nil, args...); err != nil {
		return "", "", err
	}
	path, err := g.Install(program)
	return path, "gcc -O2", err
}

// local runs a program on this machine.
func local(ctx context.Context, env []string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	return withOutput(args, out, err)
}

// withOutput returns a program's output, and its error with the end of the output. The
// last line, which usually has the reason, comes first.
func withOutput(args []string, out []byte, err error) (string, error) {
	if err == nil {
		return string(out), nil
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	last := len(lines) - 1
	before := lines[max(0, last-10):last]
	return string(out), fmt.Errorf("%s: %w: %s%s", strings.Join(args, " "), err, lines[last],
		bytes.Join(append([][]byte{nil}, before...), []byte("\n\t")))
}

// A machine is a server and a client, which may be the same host.
type machine struct {
	server, client host
	address        string // of the server, for TCP and for the QPs' connection
	from           string // address of the client, if programs must bind it
	device         string
	serverDevice   string // the server's device, if its name differs
	args           string // additional options of perftest
	serverArgs     string // additional options of perftest's server, instead of args
	port           int
	about          string               // description of the devices
	programs       map[string][2]string // on server and client
	dir            string               // on this machine, for programs
	arch           string               // GOARCH of the hosts; "" for this machine's
}

// firstPort is perftest's default port. Each run uses the next port, and after the last
// one the first again, whose connection is gone by then.
const (
	firstPort = 18515
	lastPort  = firstPort + 99
)

// next returns the port of the next run.
func (m *machine) next() int {
	if m.port++; m.port > lastPort {
		m.port = firstPort
	}
	return m.port
}

// program builds one of our programs and installs it at both ends.
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

// pair starts a server, runs the command listening, which waits until the server
// listens, and runs the client, whose output it returns.
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
		cancel() // a server whose client has failed may wait forever
		return out, errors.Join(err, <-ended)
	}
	return out, <-ended
}
