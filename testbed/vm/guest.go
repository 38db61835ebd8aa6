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

// ErrClosed is returned by methods of a guest after Close.
var ErrClosed = errors.New("vm: the guest is closed")

// A Guest is a running virtual machine. Its methods may be called concurrently.
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
	localEnds  []*os.File
	hello      chan wire.HelloReport
	background sync.WaitGroup

	sendMu      sync.Mutex // one frame at a time
	lastMessage atomic.Int64

	mu        sync.Mutex
	err       error // why the guest has failed
	closing   bool
	closed    bool
	commands  map[uint32]*Cmd
	stream    uint32
	installed int
	models    []string      // ids of AddVFIOUser
	dead      chan struct{} // closed when err is set
}

// Release returns the guest's kernel release, as of `uname -r`.
func (g *Guest) Release() string { return g.release }

// Kernel returns Config.Kernel, such as "6.12".
func (g *Guest) Kernel() string { return g.config.Kernel }

// ConsoleText returns what the guest has written to its serial console.
func (g *Guest) ConsoleText() string { return g.console.String() }

// Err returns nil while the guest runs, and then the reason why it does not.
func (g *Guest) Err() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}

// Done returns a channel that is closed when the guest has failed or was
// closed.
func (g *Guest) Done() <-chan struct{} { return g.dead }

// fail marks the guest as failed. Only the first error counts. Everything that
// waits for the guest is woken.
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

// kernelTrouble is called with a console line that shows that the kernel has
// crashed. The kernel will panic, which ends QEMU. Wait a short time for the
// rest of the console.
func (g *Guest) kernelTrouble(line string) {
	go func() {
		select {
		case <-g.qemu.done:
			<-g.console.done
		case <-time.After(5 * time.Second):
		}
		g.fail(g.withConsole(fmt.Errorf("vm: the guest's kernel %s crashed: %s", g.config.Kernel, line)))
	}()
}

// watchQEMU fails the guest when QEMU exits unexpectedly.
func (g *Guest) watchQEMU() {
	<-g.qemu.done
	<-g.console.done
	if line := troubleIn(g.console.String()); line != "" {
		g.fail(g.withConsole(fmt.Errorf("vm: the guest's kernel %s crashed: %s", g.config.Kernel, line)))
		return
	}
	g.mu.Lock()
	expected := g.closing || g.config.Init != ""
	g.mu.Unlock()
	if expected && g.qemu.err == nil {
		g.fail(ErrClosed)
		return
	}
	g.fail(g.withConsole(fmt.Errorf("vm: the guest of kernel %s exited: %s", g.config.Kernel, g.qemu.ending())))
}

// followAgent dispatches the agent's frames.
func (g *Guest) followAgent() {
	for {
		f, err := wire.Read(g.agent)
		if err != nil {
			// QEMU has exited, or is about to: watchQEMU has a better error.
			if errors.Is(err, wire.ErrFrame) {
				g.fail(g.withConsole(fmt.Errorf("vm: reading from the guest: %w", err)))
			}
			return
		}
		g.lastMessage.Store(time.Now().UnixNano())
		if err := g.dispatch(f); err != nil {
			g.fail(g.withConsole(fmt.Errorf("vm: reading from the guest: %w", err)))
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
		return nil // closed meanwhile
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
		case <-time.After(5 * time.Second): // until watchQEMU has the reason
			return fmt.Errorf("vm: writing to the guest: %w", err)
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

// heartbeat checks periodically that the agent responds. With ICount each
// request costs instructions, so the interval is longer.
func (g *Guest) heartbeat() {
	interval := g.config.HangTimeout / 10
	if g.config.ICount {
		interval = g.config.HangTimeout / 3
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	g.lastMessage.Store(time.Now().UnixNano())
	for {
		select {
		case <-g.dead:
			return
		case <-tick.C:
		}
		silent := time.Since(time.Unix(0, g.lastMessage.Load()))
		if silent > g.config.HangTimeout {
			g.fail(g.withConsole(fmt.Errorf("vm: the guest of kernel %s hangs: no heartbeat for %v (%s)",
				g.config.Kernel, silent.Round(time.Second), g.qmp.state())))
			return
		}
		// In the background, because a guest that hangs does not read either.
		go func() {
			if err := g.send(wire.Frame{Kind: wire.Ping}); err != nil {
				g.fail(err)
			}
		}()
	}
}

// Install copies a file of the host into the guest, executable, and returns its
// path there. The path is valid inside and outside the Debian root. The files
// beside are copied to the same directory.
func (g *Guest) Install(hostFile string, beside ...string) (guestPath string, err error) {
	g.mu.Lock()
	g.installed++
	sub := strconv.Itoa(g.installed)
	g.mu.Unlock()
	// A new directory for each, because the guest caches directories.
	if err := os.Mkdir(filepath.Join(g.files, sub), 0o755); err != nil {
		return "", fmt.Errorf("vm: install: %w", err)
	}
	for _, file := range append(beside, hostFile) {
		if err := copyFile(file, filepath.Join(g.files, sub, filepath.Base(file))); err != nil {
			return "", fmt.Errorf("vm: install: %w", err)
		}
	}
	return wire.FilesDir + "/" + sub + "/" + filepath.Base(hostFile), nil
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

// Wait waits for the end of a guest with Config.Init. A kernel panic, which is
// also the result of a failed first process, is returned as an error with the
// end of the console.
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

// closeLimit bounds an orderly power-off. Drivers that release thousands of
// objects are slow on a busy machine.
const closeLimit = 2 * time.Minute

// Close powers the guest off and releases its resources on the host. It returns
// an error if the guest had failed, or did not power off in time. Later calls
// do nothing.
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
		died = nil // it has exited normally
	}
	return errors.Join(died, g.free())
}

// powerOff powers the guest off, and waits until it has exited.
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

// free kills QEMU if it still runs, and releases the host's resources.
func (g *Guest) free() error {
	g.fail(ErrClosed)
	err := g.qemu.kill()
	for _, f := range g.localEnds {
		err = errors.Join(err, f.Close())
	}
	g.background.Wait()
	return errors.Join(err, g.dir.remove())
}

// Complaints returns the lines of the kernel's log about bugs that did not stop
// the kernel, such as WARN_ON.
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

// complaint matches the kernel's messages about its own bugs.
var complaint = regexp.MustCompile(`WARNING: CPU|WARNING: possible|BUG:|Call Trace:|refcount_t: |UBSAN: `)

// Dmesg returns the kernel's log.
func (g *Guest) Dmesg(ctx context.Context) (string, error) {
	c := g.CommandContext(ctx, "/init", "dmesg")
	c.Outside = true
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err
}
