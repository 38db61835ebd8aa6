//go:build vm

package main

import (
	"context"
	pipes "net" // the package has a variable net
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

// A faulty is a guest with fault injection by the control socket.
type faulty struct {
	*testing.T
	w *world.World
	g *vm.Guest
	c *control.Client
}

// startFaulty boots a guest with two InfiniBand devices. Injected faults are
// not violations of the driver.
func startFaulty(t *testing.T, kernel string, boot func(testing.TB, vm.Config) *vm.Guest) *faulty {
	w := world.StartTest(t, world.Config{Devices: 2, Adapt: world.ByCommands})
	ours, theirs := pipes.Pipe()
	done := make(chan bool)
	go func() { w.Control.ServeConn(t.Context(), theirs); close(done) }()
	t.Cleanup(func() {
		if err := ours.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return &faulty{t, w, boot(t, vm.Config{
		Kernel: kernel, Root: true, VFIOUser: w.Sockets(), Modules: []string{"mlx5_ib", "ib_umad"},
	}), control.NewClient(ours)}
}

// in returns f for a subtest.
func (f *faulty) in(t *testing.T) *faulty { return &faulty{t, f.w, f.g, f.c} }

// shell runs a script that must succeed.
func (f *faulty) shell(script string) string {
	f.Helper()
	return program.Run(f, f.g, "sh", "-e", "-c", script)
}

// must fails the test if a request to the control socket failed.
func (f *faulty) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// objects returns the object counts of a device.
func (f *faulty) objects(device int) (n engine.Objects) {
	f.w.Loop.Run(func() { n = f.w.Devices[device].Engine().Objects() })
	return n
}

// log logs the kernel's messages about the devices if the test has failed.
func (f *faulty) log() {
	if f.Failed() {
		log, err := f.g.Dmesg(context.WithoutCancel(f.Context()))
		_, log, _ = strings.Cut(log, "mlx5_core") // after the boot
		f.Logf("%v\n%s", err, log)
	}
}

// TestFaults checks that C's libraries and programs report injected faults, and
// that the device continues to work.
func TestFaults(t *testing.T) { testFaults(t, "6.12", faults) }

// A fault is a part of the test with its faults. Python has both devices open.
type fault struct {
	name string
	test func(*faulty, *program.Dialogue)
}

var faults = []fault{
	{"completions", (*faulty).completions}, {"commands", (*faulty).commands}, {"network", (*faulty).network},
	{"port", (*faulty).port},
	{"scale", scale(100)}, {"idle", (*faulty).idle}, {"eventQueue", (*faulty).eventQueue}, {"health", (*faulty).health},
	{"bus", (*faulty).bus}, {"removal", (*faulty).removal},
}

func testFaults(t *testing.T, kernel string, faults []fault) {
	f := startFaulty(t, kernel, vm.Start)
	t.Cleanup(f.log)
	for _, x := range faults {
		t.Run(x.name, func(t *testing.T) {
			y := startPython(t, f.g)
			y.Do("ca, cb = Context(name='mlx5_0'), Context(name='mlx5_1')")
			x.test(f.in(t), y)
		})
	}
	complaints, err := f.g.Complaints(t.Context())
	if err != nil || len(complaints) > 0 {
		t.Errorf("the kernel complains: %q, %v", complaints, err)
	}
}

// completions injects each syndrome and checks the status in C.
func (f *faulty) completions(y *program.Dialogue) {
	for s, status := range map[transport.Syndrome]string{
		0x01: "LOC_LEN_ERR", 0x02: "LOC_QP_OP_ERR", 0x04: "LOC_PROT_ERR", 0x05: "WR_FLUSH_ERR", 0x06: "MW_BIND_ERR",
		0x10: "BAD_RESP_ERR",
		0x11: "LOC_ACCESS_ERR", 0x12: "REM_INV_REQ_ERR", 0x13: "REM_ACCESS_ERR", 0x14: "REM_OP_ERR", 0x15: "RETRY_EXC_ERR",
		0x16: "RNR_RETRY_EXC_ERR", 0x22: "REM_ABORT_ERR", 0x7f: "GENERAL_ERR",
	} {
		y.Do("a, b = pair(ca, cb)")
		f.must(f.c.InjectCompletion("connectx0", f.number(y, "a.qp.qp_num"), s, 0x51, 1, 1))
		y.Want("once()", "= SUCCESS / SUCCESS")
		y.Do("b.receive(2); a.send(2)")
		y.Want("a.poll(2)", "= "+status+" 0x51, WR_FLUSH_ERR 0xf9")
		y.Want("a.state()", "= ERR")
		y.Do("a.close(); b.close()")
	}
	y.Do("a, b = pair(ca, cb)")
	f.must(f.c.InjectCompletion("connectx1", f.number(y, "b.qp.qp_num"), transport.LocalLength, 0x99, 0, 1))
	y.Do("b.receive(); a.send()")
	y.Want("b.poll()", "= LOC_LEN_ERR 0x99")
	y.Do("a.close(); b.close()")
}

// number returns the value of an expression.
func (f *faulty) number(y *program.Dialogue, code string) uint32 {
	f.Helper()
	n, err := strconv.ParseUint(y.Value(code), 0, 32)
	f.must(err)
	return uint32(n)
}
