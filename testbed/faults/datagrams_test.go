//go:build vm

package faults

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// testDatagrams sends datagrams between rsockets of both guests: each is echoed in the end.
func (p *pair) testDatagrams(t *testing.T) {
	d := &datagrams{pair: p}
	ours := vm.BuildProgram(t, "github.com/goverbs/goverbs/cmd/udpong", "", "amd64")
	for i, e := range p.ends {
		path, err := e.guest.Install(ours)
		if err != nil {
			t.Fatal(err)
		}
		// The C program needs a library on RoCE: see testbed/interop.
		source, err := e.guest.Install("../interop/testdata/selfah.c")
		if err != nil {
			t.Fatal(err)
		}
		e.output(t, "tcc", "-D_GNU_SOURCE", "-shared", "-o", "/tmp/selfah.so", source, "-libverbs")
		d.programs[i] = map[string][]string{"go": {path}, "c": {"env", "LD_PRELOAD=/tmp/selfah.so", "udpong"}}
	}
	for _, server := range []string{"go", "c"} {
		for _, client := range []string{"go", "c"} {
			t.Run(fmt.Sprintf("%s-server/%s-client", server, client), func(t *testing.T) {
				if server == "c" && client == "c" && !p.scale.soak {
					vm.SkipRepeat(t, "the pairs of C and Go")
				}
				s := d.serve(t, server)
				d.finish(t, d.client(t, client, 300), 300)
				s.Kill()
			})
		}
	}
	for _, f := range networkFaults {
		t.Run(f.name, func(t *testing.T) {
			p.disturb(t, f)
			s := d.serve(t, "go")
			d.finish(t, d.client(t, "go", 100), 100)
			if !s.Running() {
				t.Errorf("the server has ended:\n%v", s)
			}
			s.Kill()
		})
	}
	t.Run("SIGKILL of the server", func(t *testing.T) {
		const count = 3000
		s := d.serve(t, "go")
		c := d.client(t, "go", count)
		if !s.Stdout.Await("client login from ") {
			t.Fatalf("the client does not log in:\n%v", s)
		}
		p.nothingLeft(t, s)
		s = d.serve(t, "go")
		d.finish(t, c, count)
		s.Kill()
	})
}

// datagrams are the programs in both guests.
type datagrams struct {
	*pair
	programs [2]map[string][]string // by language
	port     string
}

// serve starts a server, at the port of the last one if that was killed.
func (d *datagrams) serve(t *testing.T, lang string) *program.Process {
	t.Helper()
	if d.port == "" {
		d.pair.port++
		d.port = strconv.Itoa(d.pair.port)
		t.Cleanup(func() { d.port = "" })
	}
	e := d.ends[0]
	args := append(append([]string(nil), d.programs[0][lang]...), "-b", e.address, "-p", d.port, "-T", "b")
	s := program.Start(t, e.guest, args[0], args[1:]...)
	program.Until(t, e.guest, fmt.Sprintf("ss -Hlun sport = :%s | grep -q %s", d.port, d.port))
	return s
}

// client starts a client that sends datagrams until each of them was echoed.
func (d *datagrams) client(t *testing.T, lang string, count int) *program.Process {
	t.Helper()
	args := append(append([]string(nil), d.programs[1][lang]...), "-s", d.ends[0].address, "-p", d.port, "-S", "500",
		"-C", strconv.Itoa(count), "-T", "e", "-T", "b")
	return program.Start(t, d.ends[1].guest, args[0], args[1:]...)
}

var echoes = regexp.MustCompile(`(?m)^custom +500 +(\d+k?) `)

// finish waits for a client.
func (d *datagrams) finish(t *testing.T, c *program.Process, count int) {
	t.Helper()
	err := c.Wait()
	want := strconv.Itoa(2 * count)
	if s, ok := strings.CutSuffix(want, "000"); ok {
		want = s + "k"
	}
	if m := echoes.FindStringSubmatch(c.Stdout.String()); err != nil || m == nil || m[1] != want {
		t.Fatalf("%v, want %s transfers\n%v", err, want, c)
	}
}

// nothingLeft kills a server, and waits until the kernel has removed its QP.
func (p *pair) nothingLeft(t *testing.T, s *program.Process) {
	t.Helper()
	if err := s.Cmd.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = s.Wait() // it was killed
	program.Until(t, p.ends[0].guest, "! rdma resource show cm_id | grep -q UDP")
}
