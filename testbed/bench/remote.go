package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// A remote is a host that is reached with ssh.
type remote struct {
	name    string
	dir     string // on the host, for programs
	control string // socket of the connection that all commands share
	sudo    bool
	cpus    string // CPUs for programs; "" for all
}

// watched kills a program and its children when ssh's standard input ends or the time
// limit expires. A program that stayed would keep its port and its device. It is not a
// child of timeout(1), which would leave it behind when timeout itself is killed.
const watched = `exec 3<&0; setsid %[2]s </dev/null 3<&- & p=$!
{ timeout %[1]d cat <&3; kill -TERM -$p || kill $p; } >/dev/null 2>&1 & w=$!
wait $p; s=$?; kill $w 2>/dev/null; exit $s`

func (r remote) run(ctx context.Context, args ...string) (string, error) {
	program := args
	if r.cpus != "" {
		program = append([]string{"taskset", "-c", r.cpus}, args...)
	}
	c := r.command(ctx, fmt.Sprintf(watched, int(longest.Seconds()), quote(program)))
	in, err := c.StdinPipe()
	if err != nil {
		return "", err
	}
	c.Cancel, c.WaitDelay = in.Close, 5*time.Second // ssh would leave the program behind
	out, err := c.CombinedOutput()
	return r.withOutput(args, out, err)
}

// withOutput is like the function withOutput, but names the host and omits the shell.
func (r remote) withOutput(args []string, out []byte, err error) (string, error) {
	if len(args) > 2 && args[1] == "-c" {
		args = append([]string{args[0], "-c", "…"}, args[3:]...)
	}
	return withOutput(append([]string{r.name + ":"}, args...), out, err)
}

// sbin adds the directories where some distributions have ip and rdma, which are not in a
// user's PATH.
const sbin = "PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin\n"

// command runs a script with sh, whatever the user's login shell is.
func (r remote) command(ctx context.Context, script string) *exec.Cmd {
	script = "sh -c " + quote([]string{sbin + script})
	if r.sudo {
		script = "sudo -n " + script
	}
	return r.ssh(ctx, r.name, "exec "+script)
}

func (r remote) ssh(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ssh", append([]string{"-o", "BatchMode=yes", "-o", "ConnectTimeout=20",
		"-o", "ServerAliveInterval=15",
		"-o", "ControlMaster=auto", "-o", "ControlPath=" + r.control, "-o", "ControlPersist=60"}, args...)...)
}

func (r remote) install(ctx context.Context, file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	path := r.dir + "/" + filepath.Base(file)
	to := quote([]string{path})
	c := r.command(ctx, "cat >"+to+" && chmod 755 "+to)
	c.Stdin = f
	out, err := c.CombinedOutput()
	_, err = r.withOutput([]string{"installing", path}, out, err)
	return path, err
}

func (r remote) compile(ctx context.Context, source string, libraries ...string) (string, string, error) {
	headers, err := filepath.Glob(filepath.Join(filepath.Dir(source), "*.h"))
	if err != nil {
		return "", "", err
	}
	var c string
	for _, file := range append(headers, source) {
		if c, err = r.install(ctx, file); err != nil {
			return "", "", err
		}
	}
	program := strings.TrimSuffix(c, ".c") + "-c" // ours may have the name
	args := []string{"cc", "-O2", "-D_GNU_SOURCE", "-o", program, c, "-libverbs"}
	for _, name := range libraries {
		args = append(args, "-l"+name)
	}
	_, err = r.run(ctx, args...)
	return program, "cc -O2", err
}

// leave removes the installed programs and closes the connection.
func (r remote) leave(ctx context.Context) error {
	if r.dir != "" {
		if _, err := r.run(ctx, "rm", "-rf", r.dir); err != nil {
			return err
		}
	}
	if _, err := os.Stat(r.control); err != nil {
		return nil // there is none
	}
	c := r.ssh(ctx, "-O", "exit", r.name)
	out, err := c.CombinedOutput()
	_, err = r.withOutput([]string{"ending the connection"}, out, err)
	return err
}

// quote quotes args for a shell.
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
