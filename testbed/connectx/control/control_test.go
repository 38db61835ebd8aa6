package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/sim/connectx/fabric"
	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A device records its method calls.
type device struct {
	calls []string
	err   error
}

func (d *device) note(format string, args ...any) {
	d.calls = append(d.calls, fmt.Sprintf(format, args...))
}

func (d *device) FailCommand(opcode uint16, status uint8, syndrome uint32, skip, count int) error {
	d.note("fail %#x %d %#x %d %d", opcode, status, syndrome, skip, count)
	return d.err
}
func (d *device) SetHealth(syndrome uint8) { d.note("health %d", syndrome) }
func (d *device) SetGone(gone bool)        { d.note("gone %v", gone) }
func (d *device) EQs() []uint32            { return []uint32{4, 5} }

func (d *device) OverrunEQ(number uint32) bool {
	d.note("overrun %d", number)
	return number == 4
}

func (d *device) InjectCompletion(qpn uint32, syndrome transport.Syndrome, vendor uint8, skip, count int) error {
	d.note("inject %#x %#x %#x %d %d", qpn, uint8(syndrome), vendor, skip, count)
	return d.err
}

func (d *device) Pull() { d.note("pull") }
func (d *device) Plug() { d.note("plug") }

// A world is a switch with two devices. The second one supports no methods.
type world struct {
	loop   *loop.Loop
	sw     *fabric.Switch
	server *Server
	device *device
	port   *fabric.Port
	links  []bool
}

func newWorld(t testing.TB) *world {
	w := &world{loop: &loop.Loop{}, device: &device{}}
	w.sw = fabric.NewSwitch(fabric.Config{Loop: w.loop})
	w.server = NewServer(w.loop, w.sw)
	w.loop.Run(func() {
		var err error
		if w.port, err = w.sw.Attach("mlx5_0", func([]byte) {}, func(up bool) { w.links = append(w.links, up) }); err != nil {
			t.Fatal(err)
		}
		err = errors.Join(
			w.server.Add(Device{Name: "mlx5_0", Firmware: w.device, Engine: w.device, Slot: w.device,
				Counters: func() any { return map[string]int{"doorbells": 7} }}),
			w.server.Add(Device{Name: "bare"}))
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []Device{{}, {Name: "bare"}} {
			if err := w.server.Add(bad); !errors.Is(err, ErrParam) {
				t.Errorf("device %q was added: %v", bad.Name, err)
			}
		}
	})
	return w
}

// client connects to the world until the test ends.
func (w *world) client(t *testing.T) *Client {
	theirs, ours := net.Pipe()
	c := NewClient(ours)
	var serving sync.WaitGroup
	serving.Go(func() { w.server.ServeConn(t.Context(), theirs) })
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		serving.Wait()
	})
	return c
}

func TestNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.client(t)
		want := fabric.Fault{Action: fabric.Delay, Port: "mlx5_0", Direction: fabric.To, Delay: time.Second, Probability: 0.5,
			Match: fabric.Match{Opcodes: fabric.Opcodes{roce.RC.Of(roce.Acknowledge)}}}
		id, err := c.AddFault(want)
		if err != nil {
			t.Fatal(err)
		}
		faults, err := c.Faults()
		if diff := cmp.Diff([]fabric.FaultStatus{{ID: id, Fault: want}}, faults); diff != "" || err != nil {
			t.Error(diff, err)
		}
		if err := errors.Join(c.RemoveFault(id), c.SetLink("mlx5_0", false)); err != nil {
			t.Error(err)
		}
		if _, err := c.AddFault(fabric.Fault{Action: fabric.Drop}); err != nil {
			t.Error(err)
		}
		if err := c.ClearFaults(); err != nil {
			t.Error(err)
		}
		if faults, err := c.Faults(); len(faults) != 0 || err != nil {
			t.Error(faults, err)
		}
		w.loop.Run(func() { w.port.Frame(make([]byte, 60)) })
		ports, err := c.Ports()
		lost := fabric.PortStatus{Name: "mlx5_0", Counters: fabric.Counters{Sent: 1, SentBytes: 60, LinkDown: 1}}
		if diff := cmp.Diff([]fabric.PortStatus{lost}, ports); diff != "" || err != nil {
			t.Error(diff, err)
		}
		if err := c.SetLink("mlx5_0", true); err != nil {
			t.Error(err)
		}
		// The response is sent after the device was notified.
		if !cmp.Equal(w.links, []bool{false, true}) {
			t.Errorf("the device was notified of %v", w.links)
		}
	})
}

func TestListDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := w.client(t)
		all, err := c.Devices()
		want := []DeviceStatus{
			{Name: "mlx5_0", EQs: []uint32{4, 5}, Counters: json.RawMessage(`{"doorbells":7}`)},
			{Name: "bare"},
		}
		if diff := cmp.Diff(want, all); diff != "" || err != nil {
			t.Error(diff, err)
		}
		err = errors.Join(
			c.FailCommand("mlx5_0", 0x500, 8, 0x1234, 1, 2),
			c.InjectCompletion("mlx5_0", 0x41, transport.RemoteAccess, 0x89, 3, 4),
			c.SetHealth("mlx5_0", 7),
			c.SetGone("mlx5_0", true),
			c.OverrunEQ("mlx5_0", 4),
			c.RemoveDevice("mlx5_0"),
			c.InsertDevice("mlx5_0"))
		if err != nil {
			t.Error(err)
		}
		calls := []string{"fail 0x500 8 0x1234 1 2", "inject 0x41 0x13 0x89 3 4", "health 7", "gone true", "overrun 4",
			"pull", "plug"}
		if diff := cmp.Diff(calls, w.device.calls); diff != "" {
			t.Error(diff)
		}
	})
}

func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.device.err = errors.New("there are 1024 injections")
		c := w.client(t)
		add := func(f fabric.Fault) error { _, err := c.AddFault(f); return err }
		for _, x := range []struct {
			err  error
			kind Kind
			says string
		}{
			{add(fabric.Fault{Action: "eat"}), ErrParam, "drop, duplicate"},
			{add(fabric.Fault{Action: fabric.Drop, Port: "x"}), ErrUnknown, "Ports lists"},
			{add(fabric.Fault{Match: fabric.Match{Frame: func([]byte) bool { return true }}}), ErrParam,
				"cannot be sent over a socket"},
			{c.RemoveFault(5), ErrUnknown, "Faults lists"},
			{c.SetLink("x", true), ErrUnknown, "Ports lists"},
			{c.SetHealth("x", 1), ErrUnknown, "the method devices"},
			{c.SetHealth("bare", 1), ErrRefused, "does not support this"},
			{c.SetGone("bare", true), ErrRefused, "does not support this"},
			{c.FailCommand("bare", 1, 1, 1, 0, 1), ErrRefused, "does not support this"},
			{c.OverrunEQ("bare", 1), ErrRefused, "does not support this"},
			{c.RemoveDevice("bare"), ErrRefused, "does not support this"},
			{c.InsertDevice("bare"), ErrRefused, "does not support this"},
			{c.InjectCompletion("bare", 1, 1, 0, 0, 1), ErrRefused, "does not support this"},
			{c.FailCommand("mlx5_0", 1, 0, 1, 0, 1), ErrParam, "success"},
			{c.FailCommand("mlx5_0", 1, 1, 1, -1, 1), ErrParam, "skip"},
			{c.FailCommand("mlx5_0", 1, 1, 1, 0, 0), ErrParam, "count"},
			{c.InjectCompletion("mlx5_0", 1, transport.OK, 0, 0, 1), ErrParam, "success"},
			{c.InjectCompletion("mlx5_0", 1, 1, 0, 0, 0), ErrParam, "count"},
			{c.InjectCompletion("mlx5_0", 1, 1, 0, 0, 1), ErrRefused, "1024 injections"},
			{c.OverrunEQ("mlx5_0", 9), ErrUnknown, "there are [4 5]"},
			{c.FailCommand("mlx5_0", 1, 1, 1, 0, 1), ErrRefused, "1024"},
		} {
			var e *Error
			if !errors.Is(x.err, x.kind) || !errors.As(x.err, &e) || !strings.Contains(e.Detail, x.says) {
				t.Errorf("got %v, want %v: %s", x.err, x.kind, x.says)
			}
		}
	})
}

// TestLines sends request lines written by hand.
func TestLines(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct{ line, want string }{
		{`{"id":1,"method":"set-link","params":{"port":"mlx5_0","up":false}}`, `{"id":1,"result":null}`},
		{`{"id":"x","method":"add-fault","params":{"action":"drop","match":{"opcodes":["RC_SEND_ONLY"]},"skip":2,"count":1}}`,
			`{"id":"x","result":{"id":1}}`},
		{`{"method":"faults"}`,
			`{"result":[{"id":1,"fault":{"action":"drop","direction":"from","match":{"opcodes":["RC_SEND_ONLY"]},` +
				`"skip":2,"count":1},"matched":0,"hit":0}]}`},
		{`{"method":"clear-faults","params":null}`, `{"result":null}`},
		{`{"method":"faults","params":{}}`, `{"result":[]}`},
		{`hello`, `{"error":{"kind":"invalid request","detail":"invalid character 'h' looking for beginning of value"}}`},
		{`{"id":2,"method":"ports","params":{"port":"x"}}`,
			`{"id":2,"error":{"kind":"invalid parameter","detail":"json: unknown field \"port\""}}`},
		{`{"id":3,"method":"set-health","params":{"device":"mlx5_0","syndrome":256}}`,
			`{"id":3,"error":{"kind":"invalid parameter","detail":"json: cannot unmarshal number 256 into` +
				` Go struct field healthParam.syndrome of type uint8"}}`},
		{`{"id":4,"method":"add-fault","params":{"match":{"opcodes":["RC_EAT"]}}}`,
			`{"id":4,"error":{"kind":"invalid parameter","detail":"opcode \"RC_EAT\": want a name such as \"RC_SEND_ONLY\""}}`},
		{`{"id":5,"method":"eat"}`,
			`{"id":5,"error":{"kind":"unknown method","detail":"\"eat\": the methods are add-fault, clear-faults, devices,` +
				` fail-command, faults, inject-cqe, insert-device, overrun-eq, ports, remove-device, remove-fault, set-gone,` +
				` set-health, set-link"}}`},
	} {
		got, err := json.Marshal(w.server.respond([]byte(c.line)))
		if err != nil || string(got) != c.want {
			t.Errorf("%s\ngot  %s\nwant %s (%v)", c.line, got, c.want, err)
		}
	}
}

// TestConnection checks that each line gets a response, including a last line
// without a newline, and that a line that is too long ends the connection.
func TestConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		talk := func(text string) string {
			ours, theirs := net.Pipe()
			var serving sync.WaitGroup
			in, out := io.Pipe()
			serving.Go(func() { w.server.ServeConn(t.Context(), &halves{Conn: theirs, r: in}) })
			serving.Go(func() {
				if _, err := io.WriteString(out, text); err != nil && err != io.ErrClosedPipe {
					t.Error(err)
				}
				out.Close()
			})
			got, err := io.ReadAll(ours)
			if err := errors.Join(err, in.Close(), ours.Close()); err != nil {
				t.Error(err)
			}
			serving.Wait()
			return string(got)
		}
		if got := talk("x\n{}\n{\"method\":\"faults\"}"); strings.Count(got, "\n") != 3 ||
			!strings.HasSuffix(got, "{\"result\":[]}\n") {
			t.Errorf("got %s", got)
		}
		if got := talk(strings.Repeat(" ", MaxLine-3) + "{}\n"); !strings.Contains(got, "unknown method") {
			t.Errorf("the longest line: got %s", got)
		}
		if got := talk(strings.Repeat(" ", MaxLine) + "{}\n{}\n"); !strings.Contains(got, "64 KiB") ||
			strings.Count(got, "\n") != 1 {
			t.Errorf("a line that is too long: got %s", got)
		}
	})
}

// halves reads from another connection: a net.Pipe cannot be closed in one
// direction.
type halves struct {
	net.Conn
	r *io.PipeReader
}

func (h *halves) Read(p []byte) (int, error) { return h.r.Read(p) }

func TestServe(t *testing.T) {
	w := newWorld(t)
	path := filepath.Join(t.TempDir(), "control")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.server.Serve(ctx, l) }()
	var clients []*Client
	for range maxConnections + 1 { // one has to wait
		c, err := Dial(path)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	for _, c := range clients[:maxConnections] {
		if _, err := c.Ports(); err != nil {
			t.Error(err)
		}
	}
	if err := clients[0].Close(); err != nil {
		t.Error(err)
	}
	for _, c := range clients[1:] {
		if _, err := c.Ports(); err != nil {
			t.Error(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, c := range clients[1:] {
		if _, err := c.Ports(); err == nil {
			t.Error("the server responds after its end")
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := Dial(path); err == nil {
		t.Error("the server listens after its end")
	}
}

// TestServeFails checks that the error of a listener is returned.
func TestServeFails(t *testing.T) {
	w := newWorld(t)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "control"))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := w.server.Serve(t.Context(), l); !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

// TestClient checks that a missing or invalid response is an error.
func TestClient(t *testing.T) {
	for _, reply := range []string{"", "hello\n", `{"id":7,"result":[]}` + "\n", `{"id":1,"result":"x"}` + "\n"} {
		synctest.Test(t, func(t *testing.T) {
			theirs, ours := net.Pipe()
			c := NewClient(ours)
			c.Timeout = time.Second
			go func() {
				b := make([]byte, 1000)
				if _, err := theirs.Read(b); err != nil {
					t.Error(err)
				}
				if _, err := io.WriteString(theirs, reply); err != nil {
					t.Error(err)
				}
			}()
			_, err := c.Ports()
			var refused *Error
			if err == nil || errors.As(err, &refused) || !strings.HasPrefix(err.Error(), "control: ports: ") {
				t.Errorf("response %q: %v", reply, err)
			}
			if err := errors.Join(c.Close(), theirs.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// FuzzLine checks that any line gets a response that is a line of JSON, and
// that the network continues to work.
func FuzzLine(f *testing.F) {
	for name := range methods {
		f.Add([]byte(`{"id":1,"method":"` + name + `","params":{}}`))
		f.Add([]byte(`{"id":1,"method":"` + name +
			`","params":{"device":"mlx5_0","port":"mlx5_0","count":1,"status":1,"syndrome":1}}`))
	}
	f.Add([]byte(`{"method":"add-fault","params":` +
		`{"action":"corrupt","direction":"from","match":{"psns":[0]},"offset":-5}}`))
	f.Add([]byte(`{"method":"add-fault","params":{"action":"reorder","behind":1}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		w := newWorld(t)
		got, err := json.Marshal(w.server.respond(line))
		if err != nil || strings.Contains(string(got), "\n") {
			t.Errorf("response %s: %v", got, err)
		}
		w.loop.Run(func() {
			w.port.Frame(make([]byte, 100))
			w.port.Frame(make([]byte, 14))
			w.port.Detach()
		})
	})
}
