//go:build vm

package faults

import (
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/testbed/connectx/control"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// A patient is a guest whose device, a software ConnectX, is made to fail while command
// victim uses it.
type patient struct {
	*testing.T
	w      *world.World
	g      *vm.Guest
	c      *control.Client
	victim string // its path
}

// TestDeviceFaults tests faults that only the software ConnectX can produce.
// testbed/connectx/judge does the same with C programs.
func TestDeviceFaults(t *testing.T) {
	victim := vm.BuildProgram(t, "github.com/goverbs/goverbs/testbed/faults/victim", "", "amd64")
	for _, kernel := range []string{"6.1", "6.12", "7.2"} {
		t.Run(kernel, func(t *testing.T) {
			if kernel != "6.12" {
				vm.SkipRepeat(t, "6.12")
			}
			deviceFaults(t, kernel, victim)
		})
	}
}

func deviceFaults(t *testing.T, kernel, victim string) {
	w := world.StartTest(t, world.Config{Devices: 1, Adapt: world.ByCommands})
	ours, theirs := net.Pipe()
	done := make(chan bool)
	go func() { w.Control.ServeConn(t.Context(), theirs); close(done) }()
	t.Cleanup(func() {
		if err := ours.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	g := vm.Start(t, vm.Config{Kernel: kernel, Root: true, VFIOUser: w.Sockets(), Modules: []string{"mlx5_ib"}})
	p := &patient{T: t, w: w, g: g, c: control.NewClient(ours)}
	var err error
	p.victim, err = g.Install(victim)
	p.must(err)
	p.awaitDevice()
	for _, x := range []struct {
		name string
		test func(*patient, *program.Dialogue)
	}{
		{"completions", (*patient).completions}, {"commands", (*patient).commands}, {"port", (*patient).port},
		{"DC", (*patient).dc}, {"DCT", (*patient).dct}, {"streams", (*patient).streams},
		{"dcCommands", (*patient).dcCommands}, {"health", (*patient).health}, {"removal", (*patient).removal},
	} {
		t.Run(x.name, func(t *testing.T) {
			q := &patient{t, p.w, p.g, p.c, p.victim}
			v := program.Converse(t, p.g, p.victim)
			v.Do("open mlx5_0")
			x.test(q, v)
			v.Do("close")
			v.Want("left", "= []")
		})
	}
}

func (p *patient) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *patient) awaitDevice() {
	p.Helper()
	program.Until(p, p.g, "grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state")
}

// objects counts the device's objects. The driver caches memory keys and their
// translations.
func (p *patient) objects() (n engine.Objects) {
	p.w.Loop.Run(func() { n = p.w.Devices[0].Engine().Objects() })
	n.MKeys, n.Translations = 0, 0
	return n
}

// completions checks that each syndrome becomes its status, with the vendor's code, that
// later requests are flushed, and that earlier ones are not affected.
func (p *patient) completions(v *program.Dialogue) {
	for s, want := range map[transport.Syndrome]string{
		0x01: "local length error", 0x02: "local QP operation error", 0x04: "local protection error", 0x05: "flushed",
		0x06: "memory window bind error", 0x10: "bad response", 0x11: "local access error", 0x12: "remote invalid request",
		0x13: "remote access error", 0x14: "remote operation error", 0x15: "retry count exceeded", 0x16: "receiver-not-ready",
		0x22: "remote abort", 0x7f: "general error",
	} {
		v.Do("pair")
		n, err := strconv.ParseUint(v.Value("qpn"), 10, 32)
		p.must(err)
		p.must(p.c.InjectCompletion("connectx0", uint32(n), s, 0x51, 1, 1))
		v.Want("once", "= ok / ok")
		said := v.Value("once 2")
		first, second, _ := strings.Cut(said, " + ")
		if !strings.Contains(strings.ToLower(first), strings.ToLower(want)) || !strings.Contains(first, "(vendor 0x51)") ||
			!strings.Contains(second, "flushed") {
			p.Errorf("syndrome %#x: %s, want %s", uint8(s), said, want)
		}
		v.Do("close")
		v.Do("open mlx5_0")
	}
}

// commands makes commands fail during the creation of objects.
func (p *patient) commands(v *program.Dialogue) {
	for _, x := range []refusal{
		{"context", 0x816, 2}, // a transport domain, with DevX and without
		{"context", 0x802, 1}, // a register page
		{"pd", 0x800, 1}, {"mr", 0x200, 1}, {"cq", 0x400, 1}, {"resized", 0x403, 1}, {"srq", 0x90c, 1}, {"qp", 0x500, 1},
		{"connected", 0x502, 1}, {"connected", 0x503, 1}, {"connected", 0x504, 1},
		{"mw", 0x200, 1},
		{"xrc", 0x80e, 1}, {"xrc", 0x705, 1}, {"xrc", 0x500, 1},
	} {
		p.refuse(v, x)
	}
}

// A refusal is a command that fails count times during the creation of an object.
type refusal struct {
	kind   string
	opcode uint16
	count  int
}

// Results of commands that fail.
const (
	failedStatus   = 0x8 // limits exceeded
	failedSyndrome = 0xabcde
)

// refuse checks that a command that fails during the creation of an object is a typed error, that nothing of the object
// is left, and that the next creation succeeds.
func (p *patient) refuse(v *program.Dialogue, x refusal) {
	p.Helper()
	v.Do("make " + x.kind) // so that the driver creates what it keeps
	v.Do("make " + x.kind)
	before := p.objects()
	p.must(p.c.FailCommand("connectx0", x.opcode, failedStatus, failedSyndrome, 0, x.count))
	if said := v.Say("make " + x.kind); !strings.HasPrefix(said, "! uverbs: ") {
		p.Errorf("%s, where command %#x fails: %s", x.kind, x.opcode, said)
	} else {
		p.Logf("%s, %#x: %s", x.kind, x.opcode, said)
	}
	if after := p.objects(); after != before {
		p.Errorf("%s, where command %#x fails, leaves %+v, it was %+v", x.kind, x.opcode, after, before)
	}
	v.Do("make " + x.kind)
	if after := p.objects(); after != before {
		p.Errorf("%s leaves %+v, it was %+v", x.kind, after, before)
	}
}

// port takes the link down and up again.
func (p *patient) port(v *program.Dialogue) {
	v.Do("pair")
	p.must(p.c.SetLink("connectx0", false))
	p.portEvent(v, "= port error, port 1")
	p.must(p.c.SetLink("connectx0", true))
	p.portEvent(v, "= port active, port 1")
	v.Want("once 5", "= ok + ok + ok + ok + ok / ok + ok + ok + ok + ok")
}

// portEvent waits for an event of the port. Linux 7.2 reports a speed change before it.
func (p *patient) portEvent(v *program.Dialogue, want string) {
	p.Helper()
	said := v.Say("event")
	for strings.HasPrefix(said, "= device speed change") {
		said = v.Say("event")
	}
	if said != want {
		p.Errorf("the event is %q, want %q", said, want)
	}
}

// fails makes the device fail under traffic, of connected queue pairs and of DC, and while its memory is mapped. Posts,
// waits and copies must end with a typed error, an event must be reported, and everything can be closed.
func (p *patient) fails(v *program.Dialogue, of func() error) {
	v.Do("pair")
	v.Do("star")
	v.Do("watch")
	v.Do("flow")
	v.Do("traffic")
	p.must(of())
	if said := v.Say("event"); !strings.HasPrefix(said, "= local catastrophic error") { // the port means nothing
		p.Errorf("event: %s", said)
	}
	const gone = "the device was removed or has failed: close the Context"
	const post, wait = "post: uverbs: " + gone, `wait: uverbs: wait for a completion on \S+ CQ \d+: ` + gone
	const access = `uverbs: (read|write) device memory on \S+ DM \d+: ` + gone
	ends := map[string]string{"stopped": post + "; " + wait, "flowed": post + "|" + wait, "watched": access}
	for command, end := range ends {
		if said := v.Say(command); !regexp.MustCompile("^= (" + end + ")$").MatchString(said) {
			p.Errorf("%s: %s", command, said)
		}
	}
	if said := v.Say("make qp"); !strings.Contains(said, gone) {
		p.Errorf("CreateQP: %s", said)
	}
	v.Do("close")
}

// health makes the firmware fail. The driver resets it.
func (p *patient) health(v *program.Dialogue) {
	p.fails(v, func() error { return p.c.SetHealth("connectx0", 0x1) })
	program.Until(p, p.g, "dmesg | grep -q 'health recovery succeeded'")
	p.recovered(v)
}

// removal removes the device and adds it again.
func (p *patient) removal(v *program.Dialogue) {
	p.fails(v, func() error { return p.c.RemoveDevice("connectx0") })
	program.Run(p, p.g, "sh", "-c", "echo 1 > /sys/bus/pci/devices/0000:05:00.0/remove")
	if said := v.Say("open mlx5_0"); !strings.Contains(said, "no RDMA device") {
		p.Errorf("Open of a device that was removed: %s", said)
	}
	p.must(p.c.InsertDevice("connectx0"))
	program.Run(p, p.g, "sh", "-c", "echo 1 > /sys/bus/pci/rescan")
	p.recovered(v)
}

// recovered checks a device that works again.
func (p *patient) recovered(v *program.Dialogue) {
	p.Helper()
	p.awaitDevice()
	v.Do("open mlx5_0")
	v.Do("pair")
	v.Want("once 3", "= ok + ok + ok / ok + ok + ok")
}
