package nldev

import (
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/uapi"
)

// player is a kernel that replays a recording. A recording has "open" for each socket, a line for
// each request (>), a line for each datagram of the reply (<), and the decoded results (=).
type player struct {
	t     *testing.T
	lines []string
}

func (p *player) next(what string) string {
	if len(p.lines) == 0 {
		p.t.Fatalf("recording ends where %q should come", what)
	}
	line := p.lines[0]
	p.lines = p.lines[1:]
	got, rest, _ := strings.Cut(line, " ")
	if got != what {
		p.t.Fatalf("recording has %q where %q should come", line, what)
	}
	return rest
}

func (p *player) send(b []byte) error {
	if want := p.next(">"); want != hex.EncodeToString(b) {
		p.t.Errorf("request %x, recorded was %s", b, want)
	}
	return nil
}

func (p *player) receive() ([]byte, error) { return hex.DecodeString(p.next("<")) }

func (p *player) close() {}

// recorded has the results of the calls in record.
type recorded struct {
	Devices    []Device
	CM         CharDev
	Resources  map[string]uint64
	CopyOnFork uint64
	Shared     uint64
}

// record makes the calls whose replies are recorded in testdata/*.nl.
func record(c client, dev string) (r recorded, err error) {
	if r.Devices, err = c.devices(); err != nil {
		return r, err
	}
	if r.CM, err = c.clientCharDev("rdma_cm"); err != nil {
		return r, err
	}
	if r.Resources, err = c.resources(dev); err != nil {
		return r, err
	}
	if r.CopyOnFork, err = c.system(uapi.RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK); err != nil {
		return r, err
	}
	r.Shared, err = c.system(uapi.RDMA_NLDEV_SYS_ATTR_NETNS_MODE)
	return r, err
}

// TestRecorded replays conversations with real kernels. The requests must have the same bytes,
// and the replies must decode to the recorded results.
func TestRecorded(t *testing.T) {
	files, err := filepath.Glob("testdata/*.nl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var lines, want []string
			for _, l := range strings.Split(strings.TrimSpace(string(text)), "\n") {
				switch {
				case strings.HasPrefix(l, "= "):
					want = append(want, l[2:])
				case !strings.HasPrefix(l, "#"):
					lines = append(lines, l)
				}
			}
			p := &player{t: t, lines: lines}
			c := client{
				dial: func() (transport, error) { p.next("open"); return p, nil },
				sys:  Sysfs{Root: t.TempDir()},
			}
			got, err := record(c, "rxe0")
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got.lines()); d != "" {
				t.Errorf("decoded (-want +got):\n%s", d)
			}
			if len(p.lines) != 0 {
				t.Errorf("%d lines of the recording were not used", len(p.lines))
			}
		})
	}
}

// lines returns the results in text form.
func (r recorded) lines() []string {
	var out []string
	for _, d := range r.Devices {
		char := CharDev{}
		if d.Char != nil {
			char = *d.Char
		}
		d.Char = nil
		out = append(out, fmt.Sprintf("%+v", d), fmt.Sprintf("%+v", char))
	}
	return append(out, fmt.Sprintf("%+v", r.CM), fmt.Sprint(r.Resources),
		fmt.Sprintf("copy-on-fork %d shared %d", r.CopyOnFork, r.Shared))
}
