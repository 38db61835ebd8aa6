package world_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/control"
	"github.com/goverbs/goverbs/testbed/connectx/vfiouser"
	"github.com/goverbs/goverbs/testbed/connectx/world"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestWorld checks, for both link layers, that the devices are on the network
// by name, that their sockets are served, that the control socket reaches both,
// and that their MACs differ.
func TestWorld(t *testing.T) {
	for link, want := range map[connectx.LinkLayer]uint16{connectx.InfiniBand: 0x0207, connectx.Ethernet: 0x0200} {
		w := world.StartTest(t, world.Config{LinkLayer: link, Devices: 2})
		if len(w.Devices) != 2 || len(w.Sockets()) != 2 || (w.Switch == nil) == (w.Subnet == nil) {
			t.Fatalf("%+v", w)
		}
		for i, path := range w.Sockets() {
			if class := plug(t, path); class != want {
				t.Errorf("device %d is of class %#x", i, class)
			}
		}
		w.Loop.Run(func() {
			if a, b := w.Devices[0].Engine(), w.Devices[1].Engine(); a.MAC() == b.MAC() {
				t.Errorf("two devices have the MAC %x", a.MAC())
			}
		})
		misbehave(t, w)
	}
}

// A machine's messages to a device: VERSION 0.0, and REGION_READ of two bytes
// at 10 of region 7.
const (
	version   = "\x01\x00\x01\x00\x14\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"
	readClass = "\x02\x00\x09\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
		"\x0a\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x02\x00\x00\x00"
)

// plug reads the class of the device behind a socket, as a machine does.
func plug(t *testing.T, path string) uint16 {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(version + readClass)); err != nil {
		t.Fatal(err)
	}
	var got []byte
	for b := make([]byte, 4096); ; {
		n, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b[:n]...)
		if _, reply, ok := bytes.Cut(got, []byte(readClass[:4])); ok && len(reply) >= 30 {
			return uint16(reply[28]) | uint16(reply[29])<<8
		}
	}
}

// misbehave injects faults over a control connection.
func misbehave(t *testing.T, w *world.World) {
	t.Helper()
	ours, theirs := net.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan bool)
	go func() { w.Control.ServeConn(ctx, theirs); close(done) }()
	c := control.NewClient(ours)
	ports, err := c.Ports()
	if err != nil || len(ports) != 2 || ports[0].Name != "connectx0" || ports[1].Name != "connectx1" {
		t.Errorf("ports %+v, %v", ports, err)
	}
	devices, err := c.Devices()
	if err != nil || len(devices) != 2 || string(devices[1].Counters) != `{"pages":0}` {
		t.Errorf("devices %+v, %v", devices, err)
	}
	if err := errors.Join(c.SetLink("connectx1", false), c.RemoveDevice("connectx0"),
		c.SetGone("connectx1", true)); err != nil {
		t.Error(err)
	}
	d := w.Devices
	w.Loop.Run(func() {
		if !d[0].Engine().Up() || d[1].Engine().Up() || !d[0].Slot.Out() || d[1].Slot.Out() {
			t.Error("the wrong one is down, or removed")
		}
	})
	if err := errors.Join(c.SetLink("connectx1", true), c.InsertDevice("connectx0"), c.SetGone("connectx1", false),
		c.FailCommand("connectx0", 0x104, 3, 1, 0, 1),
		c.SetHealth("connectx0", 1), c.Close()); err != nil {
		t.Error(err)
	}
	w.Loop.Run(func() {
		if !d[1].Engine().Up() || d[0].Slot.Out() {
			t.Error("the port or the device does not come back")
		}
	})
	<-done
}

// TestPanic checks that a step that panics is reported, and that the world
// continues.
func TestPanic(t *testing.T) {
	reported := make(chan error, 1)
	w := world.StartTest(t, world.Config{Devices: 1, Report: func(err error) { reported <- err }})
	w.Loop.Run(func() {
		w.Loop.After(0, func() { panic("a bug of the device") })
	})
	if err := <-reported; !strings.Contains(err.Error(), "a bug of the device") ||
		!strings.Contains(err.Error(), "TestPanic") {
		t.Errorf("reported %v", err)
	}
	if class := plug(t, w.Sockets()[0]); class != 0x0207 {
		t.Errorf("the device is of class %#x after that", class)
	}
}

// TestPanicOfDevice checks that after a panic in a device's step, in a timer or
// a message of its machine, the firmware of that device has failed, and not
// that of the other. A reset recovers it.
func TestPanicOfDevice(t *testing.T) {
	reported := make(chan error, 2)
	w := world.StartTest(t, world.Config{Devices: 3, Report: func(err error) { reported <- err }})
	dead := func() (all []bool) { // in the loop
		for _, d := range w.Devices {
			b := make([]byte, prm.InitSeg.Size)
			d.ReadBAR(0, b)
			all = append(all, prm.HealthSyndrome.Get(prm.InitSegHealth.Bytes(b)) != 0)
		}
		return all
	}
	d := w.Devices
	w.Loop.Run(func() {
		w.Loop.As(d[0], func() { w.Loop.After(0, func() { panic("a mistake") }) })
		d[1].Slot.Device = mistaken{d[1].Slot.Device}
	})
	c, err := net.Dial("unix", d[1].Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte(version + readClass)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-reported; !strings.Contains(err.Error(), "a mistake") || !strings.HasPrefix(err.Error(), "connectx") {
			t.Errorf("reported %v", err)
		}
	}
	var got []bool
	// The error is reported first.
	if !w.AwaitTest(t, 10*time.Second, func() bool { got = dead(); return slices.Equal(got, []bool{true, true, false}) }) {
		t.Errorf("dead are %v", got)
	}
	w.Loop.Run(func() { d[0].Reset(); d[1].Reset(); got = dead() })
	if slices.Contains(got, true) {
		t.Errorf("after a reset, dead are %v", got)
	}
}

// A mistaken device panics when it is read.
type mistaken struct{ vfiouser.Device }

func (mistaken) Read(int, uint64, []byte) error { panic("a mistake") }

// TestBadWorld checks that a failed Start leaves nothing behind.
func TestBadWorld(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	report := func(error) {}
	for want, c := range map[string]world.Config{
		"no Report":       {Dir: dir, Devices: 1},
		"1 sockets for 2": {Sockets: []string{path}, Devices: 2, Report: report},
		"no such file":    {Sockets: []string{path, dir + "/x/y"}, Devices: 2, Report: report},
		"already in use":  {Sockets: []string{path, path}, Devices: 2, Report: report},
		"LID 0xc000":      {Dir: dir, Devices: 1, Report: report, Adapt: func(_ int, c *connectx.Config) { c.LID = 0xc000 }},
	} {
		if w, err := world.Start(c); w != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", want, w, err)
		}
		left, err := os.ReadDir(dir)
		if err != nil || len(left) > 0 {
			t.Errorf("%q: left %v, %v", want, left, err)
		}
	}
}
