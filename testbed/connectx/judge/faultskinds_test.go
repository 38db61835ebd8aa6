//go:build vm

package main

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/connectx/fabric"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// commands checks that a command refused by the firmware is reported as an
// errno in C, that the device and the kernel have no more objects than before,
// and that the next command works.
func (f *faulty) commands(y *program.Dialogue) {
	const (
		syndrome = 0xabcde
		tries    = 6 // libmlx5 opens a context with three lengths of its request, first with DevX, then without
	)
	y.Do("End(ca).close()") // the driver creates a queue pair for memory keys on first use
	for _, x := range []struct {
		opcode        uint16
		status        uint8
		before, code  string
		errno, closed string
		count         int
	}{
		{0x800, 0x8, "", "x = PD(ca)", "ENOMEM", "x.close()", 1},
		{0x400, 0x3, "", "x = CQ(ca, 10)", "EINVAL", "x.close()", 1},
		{0x400, 0xf, "", "x = CQ(ca, 10)", "EAGAIN", "x.close()", 1},
		{0x403, 0x1, "x = CQ(ca, 10)", "x.resize(100)", "EIO", "x.close()", 1},
		{0x200, 0x8, "p = PD(ca)", "x = MR(p, 1 << 20, ACCESS)", "ENOMEM", "x.close(); p.close()", 1},
		{0x500, 0x6, "", "x = End(ca)", "EBUSY", "x.close()", 1},
		{0x90c, 0x8, "p = PD(ca)", "x = SRQ(p, SrqInitAttr(SrqAttr(10)))", "ENOMEM", "x.close(); p.close()", 1},
		{0x80e, 0x8, "", "x = XRCD(ca, XRCDInitAttr(e.IBV_XRCD_INIT_ATTR_FD | e.IBV_XRCD_INIT_ATTR_OFLAGS, os.O_CREAT, -1))",
			"ENOMEM", "x.close()", 1},
		{0x502, 0x10, "x = End(ca)", "x.qp.to_init(QPAttr(port_num=1))", "EINVAL", "x.close()", 1},
		{0x503, 0x3, "x = End(ca)", "x.qp.to_rtr(x.attr(x, 14, 7, 7))", "EINVAL", "x.close()", 1},
		{0x504, 0x4, "x = End(ca)", "x.qp.to_rts(x.attr(x, 14, 7, 7))", "EIO", "x.close()", 1},
		{0x816, 0x8, "", "x = Context(name='mlx5_0')", "ENOMEM", "x.close()", tries},
	} {
		empty := f.objects(0)
		if x.before != "" {
			y.Do(x.before)
		}
		before := f.objects(0)
		for _, skip := range []int{0, 1} {
			f.must(f.c.FailCommand("connectx0", x.opcode, x.status, syndrome, skip, x.count))
			if skip > 0 { // it is not the first one that fails
				y.Do(x.code)
				y.Do(x.closed)
				if x.before != "" {
					y.Do(x.before)
				}
			}
			y.Want(x.code, "! "+x.errno)
			if after := f.objects(0); strings.HasPrefix(x.code, "x = ") && after != before {
				f.Errorf("%s fails, and leaves %+v, it was %+v", x.code, after, before)
			}
		}
		y.Do(x.code)
		y.Do(x.closed)
		if after := f.objects(0); after != empty {
			f.Errorf("%s leaves %+v, it was %+v", x.code, after, empty)
		}
	}
	// The kernel logs the first ones, and none of a user of DevX.
	f.shell(fmt.Sprintf("dmesg | grep -F 'CREATE_MKEY(0x200) op_mod(0x0) failed, status limits exceeded(0x8),"+
		" syndrome (%#x), err(-12)'", syndrome))
}

// network checks lost, duplicate and delayed packets.
func (f *faulty) network(y *program.Dialogue) {
	add := func(n fabric.Fault) {
		f.Helper()
		n.Port = "connectx0"
		_, err := f.c.AddFault(n)
		f.must(err)
	}
	hits := func() (n uint64) {
		f.Helper()
		all, err := f.c.Faults()
		f.must(err)
		f.must(f.c.ClearFaults())
		for _, x := range all {
			n += x.Hit
		}
		return n
	}
	took := func(code, want string) (t time.Duration) {
		f.Helper()
		seconds, reply, _ := strings.Cut(y.Value("timed(lambda: "+code+")"), " ")
		if reply != want {
			f.Errorf("%s: %s, want %s", code, reply, want)
		}
		t, err := time.ParseDuration(seconds + "s")
		f.must(err)
		return t
	}
	const both = "SUCCESS / SUCCESS"
	y.Do("a, b = pair(ca, cb)")
	add(fabric.Fault{Action: fabric.Drop, Count: 1}) // repeated after 4.096 µs << 14
	if t := took("once()", both); t < 60*time.Millisecond || hits() != 1 {
		f.Errorf("a message that was lost took %v", t)
	}
	add(fabric.Fault{Action: fabric.Duplicate})
	y.Want("once(16)", "= "+strings.Repeat("SUCCESS, ", 15)+"SUCCESS / "+strings.Repeat("SUCCESS, ", 15)+"SUCCESS")
	y.Want("len(b.cq.poll(100)[1])", "= 0")
	if n := hits(); n < 16 {
		f.Errorf("%d packets were duplicated", n)
	}
	add(fabric.Fault{Action: fabric.Delay, Delay: 300 * time.Millisecond}) // longer than the acknowledgment timeout
	if t := took("once()", both); t < 300*time.Millisecond || hits() < 2 {
		f.Errorf("a delayed message took %v", t)
	}
	y.Do("a.close(); b.close()")

	y.Do("a, b = pair(ca, cb, timeout=16, retry=3)") // 4 times 268 ms
	add(fabric.Fault{Action: fabric.Drop})
	y.Do("b.receive()")
	want := 4 * (4096 * time.Nanosecond << 16)
	if t := took("a.send() or a.poll()", "RETRY_EXC_ERR 0x95"); t < want || t > 4*want || hits() != 4 {
		f.Errorf("retries took %v, want %v", t, want)
	}
	y.Do("a.close(); b.close()")
	y.Do("a, b = pair(ca, cb, rnr=2)") // min_rnr_timer 12 is 640 µs
	y.Do("a.send()")
	y.Want("a.poll()", "= RNR_RETRY_EXC_ERR 0x96")
	y.Do("a.close(); b.close()")
}

// port checks that C's ibv_asyncwatch reports link changes, and that no message
// passes while the link is down.
func (f *faulty) port(y *program.Dialogue) {
	watch := program.StartOn(f, f.g, &program.Terminal, "ibv_asyncwatch", "-d", "mlx5_0")
	defer watch.Kill()
	watch.Stdout.Await("async event FD")
	y.Do("a, b = pair(ca, cb, timeout=10, retry=1)")
	f.must(f.c.SetLink("connectx0", false))
	if !watch.Stdout.Await("PORT_ERR") {
		f.Errorf("no event: %v", watch)
	}
	if state := f.shell("cat /sys/class/infiniband/mlx5_0/ports/1/state"); !strings.Contains(state, "DOWN") {
		f.Errorf("the port is %s", state)
	}
	y.Do("b.receive(); a.send()")
	y.Want("a.poll()", "= RETRY_EXC_ERR 0x95")
	y.Do("a.close(); b.close()")
	f.must(f.c.SetLink("connectx0", true))
	if !watch.Stdout.Await("PORT_ACTIVE") {
		f.Errorf("no event: %v", watch)
	}
	y.Do("a, b = pair(ca, cb)")
	y.Want("once()", "= SUCCESS / SUCCESS")
	y.Do("a.close(); b.close()")
}

// scale creates many QPs at once, and checks that nothing is left of them.
func scale(qps int) func(*faulty, *program.Dialogue) {
	return func(f *faulty, y *program.Dialogue) {
		y.Do("End(ca).close()") // the driver creates a queue pair for memory keys on first use
		before := f.objects(0)
		y.Do(fmt.Sprintf("one, qps, got, n = many(ca, %d)", qps))
		if n := f.objects(0); n.QPs != before.QPs+qps+1 {
			f.Errorf("%+v, it was %+v", n, before)
		}
		y.Want("got, n", fmt.Sprintf("= (['SUCCESS'], %d)", 2*qps))
		y.Do("close(qps); one.close()")
		if n := f.objects(0); n != before {
			f.Errorf("%+v, it was %+v", n, before)
		}
	}
}

// idle checks that idle devices use no CPU time.
func (f *faulty) idle(*program.Dialogue) {
	used := func() (d time.Duration) {
		var u unix.Rusage
		f.must(unix.Getrusage(unix.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	const span = 3 * time.Second
	before := used()
	<-time.After(span)
	if d := used() - before; d > span/25 {
		f.Errorf("idle devices used %v of the processor in %v", d, span)
	} else {
		f.Logf("idle devices used %v of the processor in %v", d, span)
	}
}

// eventQueue checks event queues that overrun and get no more events. Without
// completion events, completions can be polled. Without asynchronous events, C
// gets no port events, and the firmware gets no pages. After a restart of the
// driver everything works.
func (f *faulty) eventQueue(y *program.Dialogue) {
	const event = "(a.cq.req_notify(), once(), a.event(%d))[1:]"
	y.Do("a, b = pair(ca, cb, events=True)")
	y.Want(fmt.Sprintf(event, 20), "= ('SUCCESS / SUCCESS', True)")
	devices, err := f.c.Devices()
	f.must(err)
	eqs := devices[0].EQs
	f.pages(true)
	for _, n := range eqs[1:] { // after the queue of commands
		f.must(f.c.OverrunEQ("connectx0", n))
	}
	y.Want(fmt.Sprintf(event, 1), "= ('SUCCESS / SUCCESS', False)")
	f.pages(false)
	f.portEvents(false)
	y.Do("a.close(); b.close(); ca.close(); cb.close()")
	f.shell("cd /sys/bus/pci/drivers/mlx5_core; echo 0000:05:00.0 > unbind; echo 0000:05:00.0 > bind")
	f.awaitDevices()
	y.Do("ca, cb = Context(name='mlx5_0'), Context(name='mlx5_1')")
	y.Do("a, b = pair(ca, cb, events=True)")
	y.Want(fmt.Sprintf(event, 20), "= ('SUCCESS / SUCCESS', True)")
	y.Do("a.close(); b.close(); ca.close(); cb.close()")
	f.pages(true)
	f.portEvents(true)
}

// pages makes the firmware request pages, which it gets if the driver gets the
// event.
func (f *faulty) pages(come bool) {
	f.Helper()
	d := f.w.Devices[0]
	const more = 16
	var got, want int
	f.w.Loop.Run(func() {
		if want = d.PagesHeld(); come {
			want += more
		}
		d.RequestPages(more)
	})
	f.shell("ibv_devinfo -d mlx5_0 -v") // time in which unexpected pages could arrive
	if !f.w.AwaitTest(f, 20*time.Second, func() bool { got = d.PagesHeld(); return got == want }) {
		f.Errorf("the firmware has %d pages, want %d", got, want)
	}
}

// portEvents sets the port down and up. C gets events only if the queue works.
// The driver knows the port's state in any case, because it queries it.
func (f *faulty) portEvents(come bool) {
	f.Helper()
	watch := program.StartOn(f, f.g, &program.Terminal, "ibv_asyncwatch", "-d", "mlx5_0")
	defer watch.Kill()
	watch.Stdout.Await("async event FD")
	for _, state := range []string{"DOWN", "ACTIVE"} {
		f.must(f.c.SetLink("connectx0", state == "ACTIVE"))
		program.Until(f, f.g, "grep -q "+state+" /sys/class/infiniband/mlx5_0/ports/1/state")
	}
	if come {
		watch.Stdout.Await("PORT_ACTIVE")
	}
	if n := strings.Count(watch.Stdout.String(), "PORT_"); come && n != 2 || !come && n != 0 {
		f.Errorf("%d port events, want some: %v\n%v", n, come, watch)
	}
}

// awaitDevices waits until both devices exist, with active ports.
func (f *faulty) awaitDevices() {
	f.Helper()
	program.Until(f, f.g, "test $(cat /sys/class/infiniband/*/ports/1/state | grep -c ACTIVE) = 2")
}

// dies checks that ibv_asyncwatch reports a fatal error of the device while a
// program has a QP on it, that its requests complete with errors, and that
// nothing hangs.
func (f *faulty) dies(y *program.Dialogue, device string, of func() error) {
	f.Helper()
	watch := program.StartOn(f, f.g, &program.Terminal, "ibv_asyncwatch", "-d", device)
	defer watch.Kill()
	watch.Stdout.Await("async event FD")
	y.Do("a, b = pair(ca, cb)")
	f.must(of())
	if !watch.Stdout.Await("DEVICE_FATAL") {
		f.Errorf("no event: %v", watch)
	}
	y.Do("a.close(); b.close(); ca.close(); cb.close()")
}

// health checks that the driver resets failed firmware.
func (f *faulty) health(y *program.Dialogue) {
	f.dies(y, "mlx5_0", func() error { return f.c.SetHealth("connectx0", 0x1) })
	f.recovered(y)
}

// bus checks that the driver resets a device that did not respond, when it
// responds again. It is the other device, because the driver does not recover a
// device twice in twenty minutes.
func (f *faulty) bus(y *program.Dialogue) {
	f.dies(y, "mlx5_1", func() error { return f.c.SetGone("connectx1", true) })
	f.must(f.c.SetGone("connectx1", false))
	f.recovered(y)
}

// recovered waits until the driver has recovered the device.
func (f *faulty) recovered(y *program.Dialogue) {
	f.Helper()
	program.Until(f, f.g, "dmesg | grep -q 'health recovery succeeded'")
	f.shell("dmesg -C") // for the next call
	f.awaitDevices()
	f.works(y)
}

// works checks that both devices work.
func (f *faulty) works(y *program.Dialogue) {
	f.Helper()
	y.Do("ca, cb = Context(name='mlx5_0'), Context(name='mlx5_1'); a, b = pair(ca, cb)")
	y.Want("once()", "= SUCCESS / SUCCESS")
	y.Do("a.close(); b.close(); ca.close(); cb.close()")
}

// removal checks that a removed device is dead, and that it is found after
// reinsertion.
func (f *faulty) removal(y *program.Dialogue) {
	f.dies(y, "mlx5_0", func() error { return f.c.RemoveDevice("connectx0") })
	f.shell("echo 1 > /sys/bus/pci/devices/0000:05:00.0/remove")
	if left := f.shell("ls /sys/class/infiniband"); left != "mlx5_1\n" {
		f.Errorf("there is %s", left)
	}
	f.must(f.c.InsertDevice("connectx0"))
	f.shell("echo 1 > /sys/bus/pci/rescan")
	f.awaitDevices()
	f.works(y)
}
