//go:build vm

package interop

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// A streamCase is a run of rstream or riostream, with the same options at both ends.
type streamCase struct {
	program string
	options string
	newer   bool // the C program is that of rdma-core 65
}

func (c streamCase) String() string { return c.program + " " + c.options }

// streamCases are the modes of the programs: polling without pause is the default, b means calls that block, and a
// calls of rpoll. With v, each end checks what it receives. The C riostream polls the last byte of a write, and then
// checks all from the first one. rxe may copy a packet of more than 16 bytes from its end. In a write of one such
// packet the check can fail, between two C programs as well. In a long write it reaches the last packet later.
var streamCases = []streamCase{
	{"rstream", "-S 64 -C 1 -I 50 -T v", false},
	{"rstream", "-S 1000 -C 100 -I 3 -T n -T v", false},
	{"rstream", "-S 64 -C 1 -I 50 -T b -T v", true},
	{"rstream", "-S 65536 -C 20 -I 3 -T b -T v -T r", false},
	{"rstream", "-S 4096 -C 100 -I 2 -T a -T v", false},
	{"rstream", "-S 65536 -C 20 -I 2 -T a -T b -T v", true},
	{"rstream", "-S 20000 -C 10 -I 2 -T b -T v -B 4096 -i 16 -k 3", false}, // buffers are shorter than a transfer
	{"riostream", "-S 16 -C 1 -I 50 -T v", false},
	{"riostream", "-S 65536 -C 5 -I 3 -T b -T v", true},
	{"riostream", "-S 200000 -C 3 -I 2 -T a -T v", false},
}

// briefStreams are those that make test runs on each device.
var briefStreams = []streamCase{streamCases[0], streamCases[3], streamCases[5], streamCases[8]}

// streamSizes are sizes of transfers: within and above the inline limit, a packet and a half of the ring.
var streamSizes = []int{1, 65, 1500, 4097, 131073, 6 << 20}

func (h *host) testStreams(t *testing.T) {
	for _, c := range streamCases {
		for _, p := range pairs {
			for _, f := range families {
				first := c == streamCases[0]
				if !first && (f.addr != address || p == pair{goSide, goSide}) || f.addr != address && (p == pair{cSide, cSide}) {
					continue
				}
				t.Run(fmt.Sprintf("%v/%v/%s", c, p, f.name), func(t *testing.T) {
					skipAlike(t, p, first && p.server == goSide)
					h.skipRepeat(t, slices.Contains(briefStreams, c))
					h.stream(t, c, p, f.addr)
				})
			}
		}
	}
}

func (h *host) testStreamSizes(t *testing.T) {
	for _, size := range streamSizes {
		for _, p := range goPairs[:2] {
			t.Run(fmt.Sprintf("%d/%v", size, p), func(t *testing.T) {
				h.skipRepeat(t, size == streamSizes[len(streamSizes)-1])
				count := min(3, 1+(4<<20)/size)
				h.stream(t, streamCase{"rstream", fmt.Sprintf("-S %d -C %d -I 2 -T b -T v", size, count), false}, p, address)
			})
		}
	}
}

// stream runs a case with a pair of programs, and compares their outputs.
func (h *host) stream(t *testing.T, c streamCase, p pair, addr string) {
	port := h.port()
	s, cl := h.begin(t, h.streamEnd(c, p.server, "-b "+addr, port),
		func(s *program.Process) bool { return h.awaitListener(t, s, "TCP", port) },
		h.streamEnd(c, p.client, "-s "+addr, port))
	serverErr, clientErr := program.Finish(s, cl)
	want, got := formOf(t, s), formOf(t, cl)
	if p.client == cSide && strings.Contains(c.options, "-T a") && cl.Status() == pollHUP {
		// The server has ended before the client has read everything.
		clientErr, got = nil, want
	}
	if serverErr != nil || clientErr != nil {
		t.Fatalf("server: %v\n%v\nclient: %v\n%v", serverErr, s, clientErr, cl)
	}
	if want != got || !strings.Contains(want, "custom") {
		t.Errorf("the outputs differ:\nserver\n%v\nclient\n%v", s, cl)
	}
	t.Log(lastLine(cl.Stdout.String()))
}

// pollHUP is the exit status of C's rstream if rpoll reports it, even if it reports data as well. A client with -T a
// may end with it, because the server sends last, and then disconnects.
const pollHUP = 0x10

func (h *host) streamEnd(c streamCase, s side, role, port string) end {
	e := end{path: h.path(s, c.program), args: strings.Fields(role + " -p " + port + " " + c.options)}
	if s == cSide && c.newer {
		e.path, e.args = preloadRun, append([]string{c.program}, e.args...)
	}
	return e
}

// formOf returns the output of a program that has succeeded, without the figures.
func formOf(t *testing.T, p *program.Process) string {
	t.Helper()
	form, err := streamForm(p.Stdout.String())
	if err != nil || p.Stderr.String() != "" {
		t.Errorf("that is not what rstream prints: %v\n%v", err, p)
	}
	return form
}

// preloadRun runs a program with the libraries of rdma-core 65, and preloadRDMA with librspreload, too.
const (
	preloadRun  = "/run/preload/run"
	preloadRDMA = "/run/preload/rsrun"
)

// testRsocket runs the programs on rsockets.
func (h *host) testRsocket(t *testing.T) {
	t.Run("modes", h.testStreams)
	t.Run("rcopy", h.testRcopy)
	t.Run("netcat", h.testNetcat)
	t.Run("sizes", h.testStreamSizes)
}

// testRcopy copies files of several sizes. Servers run until they are killed.
func (h *host) testRcopy(t *testing.T) {
	for _, p := range pairs {
		t.Run(p.String(), func(t *testing.T) {
			skipAlike(t, p, p.server == goSide)
			h.skipRepeat(t, p.server != p.client)
			port := h.port()
			s := h.start(t, h.path(p.server, "rcopy"), "-p", port)
			if !h.awaitListener(t, s, "TCP", port) {
				t.Fatalf("the server does not listen:\n%v", s)
			}
			want := "waiting for connection..."
			for _, size := range []int{1, 70000, 3000000} {
				from, to := fmt.Sprintf("/tmp/from%d", size), fmt.Sprintf("/tmp/to%d.%s", size, port)
				h.output(t, "sh", "-c", fmt.Sprintf("head -c %d /dev/urandom > %s", size, from))
				c := h.start(t, h.path(p.client, "rcopy"), from, address+":"+to, "-p", port)
				if err := c.Wait(); err != nil { // between two C programs it has hung
					s.ShowThreads()
					t.Fatalf("client: %v\n%v\nserver: %v", err, c, s)
				}
				out := c.Stdout.String()
				line := fmt.Sprintf("opening...transferring...closing...done\n%d bytes in ", size)
				if !strings.HasPrefix(out, line) {
					t.Errorf("the client prints\n%s\nwant\n%s", out, line)
				}
				h.output(t, "cmp", from, to)
				want += fmt.Sprintf("client: %s\nopening: %s, transferring...%d bytes...closing...done\n"+
					"waiting for connection...", address, to, size)
			}
			s.Stdout.AwaitTimes("waiting for connection...", 4)
			s.Kill()
			<-s.Ended
			if got := s.Stdout.String(); got != want {
				t.Errorf("the server prints\n%v\nwant\n%s", s, want)
			}
		})
	}
}
