//go:build vm

package main

import (
	_ "embed"
	"regexp"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// ucxTransports are UCX's transports for the device. With the value "ib" of UCX_TLS, UCX chooses among them.
var ucxTransports = []string{"rc_mlx5", "dc_mlx5", "ud_mlx5"}

// ucxChoices are values of UCX_TLS. A name with _x stands for the transport and what it needs to connect.
var ucxChoices = []string{"ib", "rc_x", "dc_x", "ud_x"}

//go:embed testdata/mpi.py
var mpiPython string

// TestUCX runs UCX with its default settings, and Open MPI on it: programs that check what they receive.
func TestUCX(t *testing.T) {
	forAll(t)
	for _, p := range []place{{"6.12", roce}, {"6.12", ib}} {
		t.Run(p.link, func(t *testing.T) {
			m := startApps(t, p)
			t.Run("info", m.ucxInfo)
			for _, tls := range ucxChoices {
				if p.link == roce { // it connects by rdma_cm, which needs a network device
					t.Run("io_demo "+tls, func(t *testing.T) { m.leavesNothing(t, func(t *testing.T) { m.ucxDemo(t, tls) }) })
				}
				t.Run("mpi "+tls, func(t *testing.T) { m.leavesNothing(t, func(t *testing.T) { m.mpi(t, tls) }) })
			}
		})
	}
}

// ucxComplains matches messages of UCX about what it cannot do.
var ucxComplains = regexp.MustCompile(`\b(ERROR|WARN|DIAG)\b.*`)

// ucxInfo checks that UCX finds all transports, without complaints.
func (m *machines) ucxInfo(t *testing.T) {
	out := m.output(t, m.guests[0], "ucx_info -d 2>&1")
	for _, name := range ucxTransports {
		if !regexp.MustCompile(`Transport: ` + name + `\n#\s+Device: mlx5_0:1\n`).MatchString(out) {
			t.Errorf("UCX does not find %s:\n%s", name, out)
		}
	}
	for line := range strings.Lines(out) {
		if ucxComplains.MatchString(line) && !strings.HasPrefix(line, "#") {
			t.Errorf("UCX says: %s", line)
		}
	}
}

// ucxDemo runs a client that reads and writes blocks of a server. Both check the data.
func (m *machines) ucxDemo(t *testing.T, tls string) {
	g := m.guests[0]
	args := []string{"UCX_TLS=" + tls + ",self", "UCX_NET_DEVICES=mlx5_0:1", "io_demo", "-v", "-q", "-d", "1:100000"}
	s := program.StartOn(t, g, &program.Terminal, "env", args...)
	defer s.Kill()
	if !s.Stdout.Await("started listener") {
		t.Fatalf("the server does not listen:\n%v", s)
	}
	c := program.Start(t, g, "env", append(args, "-o", "read,write", "-i", "300", "-c", "1", address)...)
	if err := c.Wait(); err != nil {
		t.Fatalf("client: %v\n%v\nserver:\n%v", err, c, s)
	}
	if out := c.Stdout.String(); !strings.Contains(out, "<<<< iteration 299 >>>>") {
		t.Errorf("the client ended early:\n%s", out)
	}
	for _, p := range []*program.Process{s, c} {
		if text := ucxComplains.FindString(p.Stdout.String() + p.Stderr.String()); text != "" {
			t.Errorf("it complains: %s\n%v", text, p)
		}
	}
}

// mpi runs three processes of Open MPI.
func (m *machines) mpi(t *testing.T, tls string) {
	const processes = "3"
	out := program.Run(t, m.guests[0], "env", "UCX_TLS="+tls+",self", "UCX_NET_DEVICES=mlx5_0:1", "mpirun.openmpi",
		"--allow-run-as-root", "--oversubscribe", "-n", processes, "--mca", "pml", "ucx", "--mca", "osc", "ucx",
		"python3", "-c", mpiPython)
	if out != "3 processes\n" {
		t.Errorf("it printed %q", out)
	}
}
