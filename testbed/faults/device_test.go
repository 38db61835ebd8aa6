//go:build vm

package faults

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx/control"
	"github.com/goverbs/goverbs/testbed/connectx/engine"
	"github.com/goverbs/goverbs/testbed/connectx/transport"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// A patient is a guest whose device, a software ConnectX, is told to misbehave
// while command victim uses it.
type patient struct {
	*testing.T
	w      *world.World
	g      *vm.Guest
	c      *control.Client
	victim string // its path
}

// TestDeviceFaults: what only this device can be told to do. C's part of it is in
// testbed/connectx/judge.
func TestDeviceFaults(t *testing.T) {
	w := world.StartTest(t, world.Config{Devices: 1})
	ours, theirs := net.Pipe()
	done := make(chan bool)
	go func() { w.Control.ServeConn(t.Context(), theirs); close(done) }()
	t.Cleanup(func() {
		if err := ours.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	path := vm.BuildProgram(t, "github.com/goverbs/goverbs/testbed/faults/victim", "", "amd64")
	g := vm.Start(t, vm.Config{Kernel: "6.12", Root: true, VFIOUser: w.Sockets(), Modules: []string{"mlx5_ib"}})
	p := &patient{T: t, w: w, g: g, c: control.NewClient(ours)}
	var err error
	p.victim, err = g.Install(path)
	p.must(err)
	p.awaitDevice()
	for _, x := range []struct {
		name string
		test func(*patient, *puppet)
	}{
		{"completions", (*patient).completions}, {"commands", (*patient).commands}, {"port", (*patient).port},
		{"health", (*patient).health}, {"removal", (*patient).removal},
	} {
		t.Run(x.name, func(t *testing.T) {
			q := &patient{t, p.w, p.g, p.c, p.victim}
			v := q.start()
			v.do("open mlx5_0")
			x.test(q, v)
			v.do("close")
			v.want("left", "= []")
		})
	}
}

func (p *patient) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// until waits for what a script says.
func (p *patient) until(script string) {
	p.Helper()
	program.Run(p, p.g, "timeout", "90", "sh", "-c", "until "+script+"; do sleep 0.2; done")
}

func (p *patient) awaitDevice() {
	p.Helper()
	p.until("grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state")
}

// objects counts what the device has. The driver keeps memory keys for the next
// user, with what they translate.
func (p *patient) objects() (n engine.Objects) {
	p.w.Loop.Run(func() { n = p.w.Devices[0].Engine().Objects() })
	n.MKeys, n.Translations = 0, 0
	return n
}

// completions: each syndrome is the status that it stands for, with the vendor's
// code; what follows is flushed, and what was before is not touched.
func (p *patient) completions(v *puppet) {
	for s, want := range map[transport.Syndrome]string{
		0x01: "local length error", 0x02: "local QP operation error", 0x04: "local protection error", 0x05: "flushed",
		0x06: "memory window bind error", 0x10: "bad response", 0x11: "local access error", 0x12: "remote invalid request",
		0x13: "remote access error", 0x14: "remote operation error", 0x15: "retry count exceeded", 0x16: "receiver-not-ready",
		0x22: "remote abort", 0x7f: "general error",
	} {
		v.do("pair")
		n, err := strconv.ParseUint(v.value("qpn"), 10, 32)
		p.must(err)
		p.must(p.c.InjectCompletion("connectx0", uint32(n), s, 0x51, 1, 1))
		v.want("once", "= ok / ok")
		said := v.value("once 2")
		first, second, _ := strings.Cut(said, " + ")
		if !strings.Contains(strings.ToLower(first), strings.ToLower(want)) || !strings.Contains(first, "(vendor 0x51)") || !strings.Contains(second, "flushed") {
			p.Errorf("syndrome %#x: %s, want %s", uint8(s), said, want)
		}
		v.do("close")
		v.do("open mlx5_0")
	}
}

// commands: a command that fails half-way through the making of an object is a
// typed error, nothing of the object is left, and the next one is made.
func (p *patient) commands(v *puppet) {
	const (
		syndrome = 0xabcde
		status   = 0x8 // limits exceeded
	)
	for _, x := range []struct {
		kind   string
		opcode uint16
		count  int
	}{
		{"context", 0x816, 1}, // a transport domain
		{"context", 0x802, 1}, // a register page
		{"pd", 0x800, 1}, {"mr", 0x200, 1}, {"cq", 0x400, 1}, {"resized", 0x403, 1}, {"srq", 0x90c, 1}, {"qp", 0x500, 1},
		{"connected", 0x502, 1}, {"connected", 0x503, 1}, {"connected", 0x504, 1},
		{"mw", 0x200, 1},
	} {
		v.do("make " + x.kind) // what the driver makes for the first user
		v.do("make " + x.kind)
		before := p.objects()
		p.must(p.c.FailCommand("connectx0", x.opcode, status, syndrome, 0, x.count))
		if said := v.say("make " + x.kind); !strings.HasPrefix(said, "! uverbs: ") {
			p.Errorf("%s, where command %#x fails: %s", x.kind, x.opcode, said)
		} else {
			p.Logf("%s, %#x: %s", x.kind, x.opcode, said)
		}
		if after := p.objects(); after != before {
			p.Errorf("%s, where command %#x fails, leaves %+v, it was %+v", x.kind, x.opcode, after, before)
		}
		v.do("make " + x.kind)
		if after := p.objects(); after != before {
			p.Errorf("%s leaves %+v, it was %+v", x.kind, after, before)
		}
	}
}

// port: the link goes, and comes again.
func (p *patient) port(v *puppet) {
	v.do("pair")
	p.must(p.c.SetLink("connectx0", false))
	v.want("event", "= port error, port 1")
	p.must(p.c.SetLink("connectx0", true))
	v.want("event", "= port active, port 1")
	v.want("once 5", "= ok + ok + ok + ok + ok / ok + ok + ok + ok + ok")
}

// fails has the device fail under traffic. Posts and waits end with a typed error,
// an event tells, and everything can be closed.
func (p *patient) fails(v *puppet, of func() error) {
	v.do("pair")
	v.do("traffic")
	p.must(of())
	if said := v.say("event"); !strings.HasPrefix(said, "= local catastrophic error") { // the port means nothing
		p.Errorf("event: %s", said)
	}
	const gone = "uverbs: device is gone: it was removed, or has failed: close the Context, and open the device when it is back"
	v.want("stopped", fmt.Sprintf("= post: %s; wait: %s", gone, gone))
	if said := v.say("make qp"); !strings.Contains(said, "device is gone") {
		p.Errorf("CreateQP: %s", said)
	}
	v.do("close")
}

// health: firmware that fails is reset by the driver.
func (p *patient) health(v *puppet) {
	p.fails(v, func() error { return p.c.SetHealth("connectx0", 0x1) })
	p.until("dmesg | grep -q 'health recovery succeeded'")
	p.recovered(v)
}

// removal: a device is pulled out, and put back.
func (p *patient) removal(v *puppet) {
	p.fails(v, func() error { return p.c.RemoveDevice("connectx0") })
	program.Run(p, p.g, "sh", "-c", "echo 1 > /sys/bus/pci/devices/0000:05:00.0/remove")
	if said := v.say("open mlx5_0"); !strings.Contains(said, "no RDMA device") {
		p.Errorf("Open of a device that was pulled out: %s", said)
	}
	p.must(p.c.InsertDevice("connectx0"))
	program.Run(p, p.g, "sh", "-c", "echo 1 > /sys/bus/pci/rescan")
	p.recovered(v)
}

// recovered is about a device that is back.
func (p *patient) recovered(v *puppet) {
	p.Helper()
	p.awaitDevice()
	v.do("open mlx5_0")
	v.do("pair")
	v.want("once 3", "= ok + ok + ok / ok + ok + ok")
}

// A puppet is a running victim.
type puppet struct {
	t   *testing.T
	in  *io.PipeWriter
	out *bufio.Reader
	cmd *vm.Cmd
}

// start starts one, which ends with the test.
func (p *patient) start() *puppet {
	p.Helper()
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	v := &puppet{t: p.T, in: in, out: bufio.NewReader(out), cmd: p.g.CommandContext(p.Context(), p.victim)}
	v.cmd.Stdin, v.cmd.Stdout, v.cmd.Stderr = stdin, stdout, stdout
	p.must(v.cmd.Start())
	ended := make(chan bool)
	go func() {
		stdout.CloseWithError(fmt.Errorf("the victim has ended: %v", v.cmd.Wait()))
		close(ended)
	}()
	p.Cleanup(func() {
		in.Close()
		out.Close()
		<-ended
	})
	v.answer("the start")
	return v
}

// say has a line carried out. The answer is "= result" or "! error".
func (v *puppet) say(line string) string {
	v.t.Helper()
	if _, err := io.WriteString(v.in, line+"\n"); err != nil {
		v.t.Fatal(err)
	}
	return v.answer(line)
}

func (v *puppet) answer(what string) string {
	v.t.Helper()
	said := ""
	for {
		line, err := v.out.ReadString('\n')
		if err != nil {
			v.t.Fatalf("%s: %v\n%s", what, err, said)
		}
		if strings.HasPrefix(line, "= ") || strings.HasPrefix(line, "! ") || line == "=\n" {
			return strings.TrimSpace(line)
		}
		said += line
	}
}

func (v *puppet) do(line string) { v.t.Helper(); v.value(line) }

func (v *puppet) value(line string) string {
	v.t.Helper()
	said, ok := strings.CutPrefix(v.say(line), "=")
	if !ok {
		v.t.Fatalf("%s: %s", line, said)
	}
	return strings.TrimSpace(said)
}

func (v *puppet) want(line, answer string) {
	v.t.Helper()
	if got := v.say(line); got != answer {
		v.t.Errorf("%s\ngot  %s\nwant %s", line, got, answer)
	}
}
