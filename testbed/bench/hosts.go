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
	"time"

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

// A remote is a host that ssh reaches.
type remote struct{ name, dir string }

// watched ends a program, with what it has started, when its input ends, which
// is ssh's, or its time. One that stays would keep its port and its device. It
// is no child of timeout, which leaves it behind when it is told to end early.
const watched = `exec 3<&0; setsid %[2]s </dev/null 3<&- & p=$!
{ timeout %[1]d cat <&3; kill -TERM -$p || kill $p; } >/dev/null 2>&1 & w=$!
wait $p; s=$?; kill $w 2>/dev/null; exit $s`

func (r remote) run(ctx context.Context, args ...string) (string, error) {
	c := r.command(ctx, fmt.Sprintf(watched, int(longest.Seconds()), quote(args)))
	in, err := c.StdinPipe()
	if err != nil {
		return "", err
	}
	c.Cancel, c.WaitDelay = in.Close, 5*time.Second // ssh would leave the program behind
	out, err := c.CombinedOutput()
	return told(c.Args, out, err)
}

func (r remote) command(ctx context.Context, script string) *exec.Cmd {
	return exec.CommandContext(ctx, "ssh", "-o", "BatchMode=yes", "-o", "ControlMaster=auto", "-o", "ControlPath=~/.ssh/goverbs-%C", "-o", "ControlPersist=60", r.name, script)
}

func (r remote) install(ctx context.Context, file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	path := r.dir + "/goverbs-bench." + filepath.Base(file)
	c := r.command(ctx, "cat > "+path+".new && chmod 755 "+path+".new && mv "+path+".new "+path)
	c.Stdin = f
	out, err := c.CombinedOutput()
	_, err = told(c.Args, out, err)
	return path, err
}

func (r remote) compile(ctx context.Context, source string) (string, string, error) {
	c, err := r.install(ctx, source)
	if err != nil {
		return "", "", err
	}
	program := strings.TrimSuffix(c, ".c")
	_, err = r.run(ctx, "cc", "-O2", "-D_GNU_SOURCE", "-o", program, c, "-libverbs")
	return program, "cc -O2", err
}

// quote makes a line for a shell.
func quote(args []string) string {
	var b strings.Builder
	for i, a := range args {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("'" + strings.ReplaceAll(a, "'", `'\''`) + "'")
	}
	return b.String()
}

// local runs a program of this machine.
func local(ctx context.Context, env []string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	return told(args, out, err)
}

// told is what a program printed, and its error with the end of that.
func told(args []string, out []byte, err error) (string, error) {
	if err == nil {
		return string(out), nil
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	lines = lines[max(0, len(lines)-10):]
	return string(out), fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, bytes.Join(lines, []byte("\n")))
}

// A machine is a server and a client, which may be the same.
type machine struct {
	server, client host
	address        string // of the server, for TCP and for the QPs' connection
	device         string
	args           string // of perftest, always
	port           int
	programs       map[string][2]string // on server and client
	dir            string               // of this machine, for programs
	arch           string               // Go's name of the hosts'; "": this machine's
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
