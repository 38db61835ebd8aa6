package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/testbed/vm/internal/wire"
)

// ErrClosed is the error of everything that is asked of a guest after Close.
var ErrClosed = errors.New("vm: the guest is closed")

// A Guest is a running virtual machine. Its methods may be called from many
// goroutines.
type Guest struct {
	config     Config
	release    string
	launched   time.Time
	dir        *runDir
	files      string // host directory of installed files
	qemu       *process
	qmp        *monitor
	console    *console
	consoleEnd *os.File
	agent      *os.File
	ours       []*os.File
	hello      chan wire.HelloReport
	background sync.WaitGroup

	sendMu sync.Mutex // one frame at a time
	heard  atomic.Int64

	mu        sync.Mutex
	err       error // why the guest is dead
	closing   bool
	closed    bool
	commands  map[uint32]*Cmd
	stream    uint32
	installed int
	models    []string      // ids of AddVFIOUser
	dead      chan struct{} // closed with err set
}

// Release is the guest's kernel version, as `uname -r` says it.
func (g *Guest) Release() string { return g.release }

// Kernel is the kernel that the guest was configured with, such as "6.12".
func (g *Guest) Kernel() string { return g.config.Kernel }

// ConsoleText is what the guest has written to its serial console.
func (g *Guest) ConsoleText() string { return g.console.String() }

// Err is nil while the guest lives, and then tells why it does not.
func (g *Guest) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Done is closed when the guest has died or was closed.
func (g *Guest) Done() <-chan struct{} { return g.dead }

// fail declares the guest dead. Only the first reason counts. Everybody who
// waits for the guest learns of it.
func (g *Guest) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return
	}
	g.err = err
	close(g.dead)
}

// withConsole adds the end of the console to an error.
func (g *Guest) withConsole(err error) error {
	text := g.console.tail(60)
	if text == "" {
		text = "(nothing)"
	}
	return fmt.Errorf("%w\n--- end of the guest's console ---\n%s\n---", err, text)
}

// kernelTrouble is called with the console line that tells that the kernel is
// in trouble. The kernel goes on to panic, which ends QEMU; the rest of the
// console is worth a moment, but not more.
func (g *Guest) kernelTrouble(line string) {
	go func() {
		select {
		case <-g.qemu.done:
			<-g.console.done
		case <-time.After(5 * time.Second):
		}
		g.fail(g.withConsole(fmt.Errorf("vm: the guest's kernel %s died: %s", g.config.Kernel, line)))
	}()
}

// watchQEMU turns an unexpected end of QEMU into the guest's death.
func (g *Guest) watchQEMU() {
	<-g.qemu.done
	<-g.console.done
	if line := troubleIn(g.console.String()); line != "" {
		g.fail(g.withConsole(fmt.Errorf("vm: the guest's kernel %s died: %s", g.config.Kernel, line)))
		return
	}
	g.mu.Lock()
	expected := g.closing || g.config.Init != ""
	g.mu.Unlock()
	if expected && g.qemu.err == nil {
		g.fail(ErrClosed)
		return
	}
	g.fail(g.withConsole(fmt.Errorf("vm: the guest of kernel %s ended by itself: %s", g.config.Kernel, g.qemu.ending())))
}

// followAgent hands the agent's frames to whom they concern.
func (g *Guest) followAgent() {
	for {
		f, err := wire.Read(g.agent)
		if err != nil {
			// QEMU has ended, or is about to: watchQEMU knows more.
			if errors.Is(err, wire.ErrFrame) {
				g.fail(g.withConsole(fmt.Errorf("vm: listening to the guest: %w", err)))
			}
			return
		}
		g.heard.Store(time.Now().UnixNano())
		if err := g.dispatch(f); err != nil {
			g.fail(g.withConsole(fmt.Errorf("vm: listening to the guest: %w", err)))
			return
		}
	}
}

func (g *Guest) dispatch(f wire.Frame) error {
	switch f.Kind {
	case wire.Hello:
		var h wire.HelloReport
		if err := f.Decode(&h); err != nil {
			return err
		}
		g.hello <- h
		return nil
	case wire.Pong:
		return nil
	case wire.Failure:
		return errors.New(string(f.Payload))
	}
	g.mu.Lock()
	c := g.commands[f.Stream]
	g.mu.Unlock()
	if c == nil {
		return nil // given up meanwhile
	}
	return c.receive(f)
}

// send sends a frame to the agent.
func (g *Guest) send(f wire.Frame) error {
	b := f.Append(nil)
	g.sendMu.Lock()
	defer g.sendMu.Unlock()
	if err := g.Err(); err != nil {
		return err
	}
	if _, err := g.agent.Write(b); err != nil {
		select {
		case <-g.dead:
			return g.Err()
		case <-time.After(5 * time.Second): // until watchQEMU knows why
			return fmt.Errorf("vm: talking to the guest: %w", err)
		}
	}
	return nil
}

func (g *Guest) sendMessage(kind wire.Kind, stream uint32, v any) error {
	f, err := wire.Message(kind, stream, v)
	if err != nil {
		return err
	}
	return g.send(f)
}

// heartbeat asks the agent for a sign of life now and then. Under ICount each
// question costs instructions, so they are few.
func (g *Guest) heartbeat() {
	interval := g.config.HangTimeout / 10
	if g.config.ICount {
		interval = g.config.HangTimeout / 3
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	g.heard.Store(time.Now().UnixNano())
	for {
		select {
		case <-g.dead:
			return
		case <-tick.C:
		}
		silent := time.Since(time.Unix(0, g.heard.Load()))
		if silent > g.config.HangTimeout {
			g.fail(g.withConsole(fmt.Errorf("vm: the guest of kernel %s hangs: no sign of life for %v (%s)",
				g.config.Kernel, silent.Round(time.Second), g.qmp.state())))
			return
		}
		// In the background: a guest that hangs does not read either.
		go func() {
			if err := g.send(wire.Frame{Kind: wire.Ping}); err != nil {
				g.fail(err)
			}
		}()
	}
}

// Install copies a file of the host into the guest, executable, and returns
// its path there. The same path is valid inside and outside the Debian root.
func (g *Guest) Install(hostFile string) (guestPath string, err error) {
	g.mu.Lock()
	g.installed++
	sub := strconv.Itoa(g.installed)
	g.mu.Unlock()
	// A fresh directory for each: the guest caches what it has seen.
	if err := os.Mkdir(filepath.Join(g.files, sub), 0o755); err != nil {
		return "", fmt.Errorf("vm: install: %w", err)
	}
	name := filepath.Base(hostFile)
	if err := copyFile(hostFile, filepath.Join(g.files, sub, name)); err != nil {
		return "", fmt.Errorf("vm: install: %w", err)
	}
	return wire.FilesDir + "/" + sub + "/" + name, nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(0o755), out.Close())
}

// Wait waits for the end of a guest that ends by itself: one with Config.Init.
// A kernel panic, which is also how a first process ends that fails, is an
// error with the console's end.
func (g *Guest) Wait(ctx context.Context) error {
	select {
	case <-g.dead:
		if err := g.Err(); !errors.Is(err, ErrClosed) {
			return err
		}
		return nil
	case <-ctx.Done():
		return g.withConsole(fmt.Errorf("vm: waiting for the guest's end: %w", context.Cause(ctx)))
	}
}

// closeLimit bounds an orderly power-off. Drivers that give back thousands of objects
// take their time on a busy machine.
const closeLimit = 2 * time.Minute

// Close powers the guest off and frees everything that it used on the host. It
// returns an error if the guest had died, or did not end in time. Only the
// first call does anything.
func (g *Guest) Close() error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return nil
	}
	g.closed, g.closing = true, true
	died := g.err
	g.mu.Unlock()
	switch {
	case died == nil:
		died = g.powerOff()
	case errors.Is(died, ErrClosed):
		died = nil // it has ended by itself, in order
	}
	return errors.Join(died, g.free())
}

// powerOff asks the guest to end, and waits until it has.
func (g *Guest) powerOff() error {
	if g.agent != nil {
		if err := g.send(wire.Frame{Kind: wire.PowerOff}); err != nil && !errors.Is(err, ErrClosed) {
			return err
		}
	} else if err := g.qmp.execute("quit", nil, nil); err != nil {
		return err
	}
	select {
	case <-g.dead:
		if err := g.Err(); !errors.Is(err, ErrClosed) {
			return err
		}
		return nil
	case <-time.After(closeLimit):
		return g.withConsole(fmt.Errorf("vm: the guest did not power off within %v", closeLimit))
	}
}

// free kills QEMU if it still runs, and frees the host's side.
func (g *Guest) free() error {
	g.fail(ErrClosed)
	err := g.qemu.kill()
	for _, f := range g.ours {
		err = errors.Join(err, f.Close())
	}
	g.background.Wait()
	return errors.Join(err, g.dir.remove())
}

// Complaints gives the lines of the kernel's log that tell of a bug which the
// kernel has survived, such as WARN_ON.
func (g *Guest) Complaints(ctx context.Context) ([]string, error) {
	log, err := g.Dmesg(ctx)
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(log) {
		if complaint.MatchString(line) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found, nil
}

// complaint matches what the kernel says of its own mistakes.
var complaint = regexp.MustCompile(`WARNING: CPU|WARNING: possible|BUG:|Call Trace:|refcount_t: |UBSAN: `)

// Dmesg gives the kernel's log.
func (g *Guest) Dmesg(ctx context.Context) (string, error) {
	c := g.CommandContext(ctx, "/init", "dmesg")
	c.Outside = true
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err
}
