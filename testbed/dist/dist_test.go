//go:build vm

package dist

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// The addresses of the guest with C's programs, and of the guest with the image.
const (
	cAddress     = "10.8.0.1"
	imageAddress = "10.8.0.2"
)

// image builds the image, and returns a directory with its files.
func image(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "run", ".", "-o", out, "-version", "test", "-arch", "amd64")
	cmd.Dir = "../../dist"
	cmd.Env = append(os.Environ(), "GOFLAGS=")
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	root := t.TempDir()
	if err := unpackImage(filepath.Join(out, "goverbs-test-oci.tar"), root); err != nil {
		t.Fatal(err)
	}
	return root
}

// guests are a guest with C's programs, and one that has nothing but the image, in /share.
type guests struct{ c, image *vm.Guest }

func start(t *testing.T) guests {
	t.Helper()
	left, right, err := vm.Link()
	if err != nil {
		t.Fatal(err)
	}
	root := image(t)
	var g guests
	var booting sync.WaitGroup
	booting.Go(func() {
		g.c = vm.Start(t, vm.Config{Kernel: "6.12", Root: true, CPUs: 1, MemoryMB: 512, NICs: []vm.NIC{left}})
	})
	booting.Go(func() {
		g.image = vm.Start(t, vm.Config{Kernel: "6.12", Share: root, CPUs: 1, MemoryMB: 512, NICs: []vm.NIC{right}})
	})
	booting.Wait()
	if g.c == nil || g.image == nil {
		t.FailNow()
	}
	network := vm.BuildProgram(t, "github.com/goverbs/goverbs/testbed/dist/network", "", "amd64")
	for guest, addr := range map[*vm.Guest]string{g.c: cAddress, g.image: imageAddress} {
		path, err := guest.Install(network)
		if err != nil {
			t.Fatal(err)
		}
		program.Run(t, guest, path, "eth0", addr+"/24")
	}
	return g
}

// TestImage runs the programs of the image.
func TestImage(t *testing.T) {
	g := start(t)
	t.Run("doctor", g.testDoctor)
	for _, test := range []string{"send_lat", "write_bw", "read_lat"} {
		t.Run("client/"+test, func(t *testing.T) { g.testClient(t, test) })
		t.Run("server/"+test, func(t *testing.T) { g.testServer(t, test) })
	}
	t.Run("rping", g.testRping)
	t.Run("devinfo", func(t *testing.T) {
		if out := program.Run(t, g.image, "/share/bin/devinfo", "-d", "rxe0"); !strings.Contains(out, "PORT_ACTIVE") {
			t.Error(out)
		}
	})
	t.Run("asyncwatch", g.testAsyncwatch)
	for _, name := range []string{"rnc", "rproxy"} {
		t.Run(name, func(t *testing.T) {
			if out := program.Run(t, g.image, "/share/bin/"+name, "-h"); !strings.Contains(out, name) {
				t.Error(out)
			}
		})
	}
}

// testDoctor checks that doctor finds no error without any other file.
func (g guests) testDoctor(t *testing.T) {
	out := program.Run(t, g.image, "/share/bin/doctor", "-v")
	if !strings.HasSuffix(out, "RDMA works.\n") {
		t.Error(out)
	}
	t.Log(out)
}

// testClient runs a test of perftest in the image with C's server.
func (g guests) testClient(t *testing.T, test string) {
	s := program.StartOn(t, g.c, &program.Terminal, "ib_"+test, "-F", "-R", "-n", "100")
	program.Until(t, g.c, "rdma resource show cm_id | grep -q 'LISTEN.* src-addr [^ ]*:18515 '")
	c := program.Start(t, g.image, "/share/bin/perftest", test, "-F", "-R", "-n", "100", cAddress)
	check(t, s, c)
}

// testServer runs C's client with perftest in the image.
func (g guests) testServer(t *testing.T, test string) {
	s := program.Start(t, g.image, "/share/bin/perftest", test, "-F", "-R", "-n", "100")
	if !s.Stdout.Await("Waiting for client to connect") {
		t.Fatal(s)
	}
	check(t, s, program.StartOn(t, g.c, &program.Terminal, "ib_"+test, "-F", "-R", "-n", "100", imageAddress))
}

// check checks that both ends succeed, and that the client prints figures.
func check(t *testing.T, s, c *program.Process) {
	t.Helper()
	if serverErr, clientErr := program.Finish(s, c); serverErr != nil || clientErr != nil {
		t.Fatalf("server: %v\n%v\nclient: %v\n%v", serverErr, s, clientErr, c)
	}
	for _, line := range strings.Split(c.Stdout.String(), "\n") {
		if strings.Contains(line, " 100 ") && len(strings.Fields(line)) >= 5 {
			t.Log(strings.Join(strings.Fields(line), " "))
			return
		}
	}
	t.Errorf("no figures:\n%v", c)
}

func (g guests) testRping(t *testing.T) {
	s := program.Start(t, g.image, "/share/bin/rping", "-s", "-a", imageAddress, "-C", "10")
	program.Until(t, g.c, "rping -c -a "+imageAddress+" -C 10") // again until the server listens
	if err := s.Wait(); err != nil {
		t.Errorf("%v: %v", s, err)
	}
}

func (g guests) testAsyncwatch(t *testing.T) {
	p := program.Start(t, g.image, "/share/bin/asyncwatch", "-d", "rxe0")
	if !p.Stdout.Await("rxe0: async event FD ") {
		t.Fatal(p)
	}
	if err := p.Cmd.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err != nil {
		t.Errorf("%v: %v", p, err)
	}
}
