//go:build device

package nldev

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/internal/sim/usertest"
	"github.com/goverbs/goverbs/internal/uapi"
)

// These tests run as root on a machine with at least one RDMA device. They compare with sysfs,
// with the nodes and, if it is installed, with iproute2's rdma. In the test bed:
//
//	CGO_ENABLED=0 go test -tags device -c -o /tmp/nldev.test ./internal/nldev
//	go run -C testbed ./vm/cmd/vm -kernel 6.12 -rxe -- @/tmp/nldev.test -test.v -test.run '^TestDevice[A-Z]'

func mustDevices(t *testing.T) []Device {
	t.Helper()
	devs, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	if len(devs) == 0 {
		t.Fatal("no RDMA device: these tests need one")
	}
	for _, d := range devs {
		t.Logf("%+v %+v", d, d.Char)
	}
	return devs
}

// rdmaTool runs rdma -j and decodes its output. It returns false if rdma is not installed.
func rdmaTool(t *testing.T, out any, args ...string) bool {
	t.Helper()
	if _, err := exec.LookPath("rdma"); err != nil {
		t.Log("no rdma tool to compare with")
		return false
	}
	b, err := exec.Command("rdma", append([]string{"-j", "-d"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("rdma %v: %v\n%s", args, err, b)
	}
	if err := json.Unmarshal(b, out); err != nil {
		t.Fatalf("rdma %v: %v\n%s", args, err, b)
	}
	return true
}

func TestDeviceAgainstSysfs(t *testing.T) {
	devs := mustDevices(t)
	fallback, err := deaf(unix.EPERM, "/sys").devices()
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]Device{}
	for _, d := range fallback {
		byName[d.Name] = d
	}
	for _, d := range devs {
		index := d.Index
		d.Index = NoIndex
		if diff := cmp.Diff(d, byName[d.Name]); diff != "" {
			t.Errorf("device %d (-netlink +sysfs):\n%s", index, diff)
		}
		if d.Char == nil {
			t.Errorf("%s has no uverbs node", d.Name)
			continue
		}
		checkNode(t, *d.Char)
	}
}

// checkNode compares cd with the file in /dev/infiniband.
func checkNode(t *testing.T, cd CharDev) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat("/dev/infiniband/"+cd.Name, &st); err != nil {
		t.Errorf("node %s: %v", cd.Name, err)
		return
	}
	if unix.Major(st.Rdev) != cd.Major || unix.Minor(st.Rdev) != cd.Minor {
		t.Errorf("node %s is %d:%d, netlink says %d:%d", cd.Name, unix.Major(st.Rdev), unix.Minor(st.Rdev),
			cd.Major, cd.Minor)
	}
}

func TestDeviceAgainstTool(t *testing.T) {
	devs := mustDevices(t)
	var tool []struct {
		Ifindex  uint32
		Ifname   string
		NodeGUID string `json:"node_guid"`
		Fw       string
		NodeType string `json:"node_type"`
	}
	if !rdmaTool(t, &tool, "dev", "show") {
		return
	}
	if len(tool) != len(devs) {
		t.Errorf("rdma shows %d devices, we %d", len(tool), len(devs))
	}
	for i, d := range devs[:min(len(devs), len(tool))] {
		g := fmt.Sprintf("%016x", d.NodeGUID)
		guid := strings.Join([]string{g[:4], g[4:8], g[8:12], g[12:]}, ":")
		if x := tool[i]; x.Ifindex != d.Index || x.Ifname != d.Name || x.NodeGUID != guid || x.Fw != d.FWVersion {
			t.Errorf("rdma shows %+v, we %+v", x, d)
		}
	}
}

func TestDeviceClientNode(t *testing.T) {
	cd, err := ClientCharDev("rdma_cm")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", cd)
	checkNode(t, cd)
	sys, err := Sysfs{Root: "/sys"}.ClientCharDev("rdma_cm")
	if err != nil || sys != cd {
		t.Errorf("sysfs says %+v, %v", sys, err)
	}
	_, err = ClientCharDev("frob")
	t.Log(err)
	if !errnoIs(err, unix.EOPNOTSUPP, unix.ENOENT) || !strings.Contains(err.Error(), "modprobe") {
		t.Errorf("an unknown client: %v", err)
	}
}

func TestDeviceResources(t *testing.T) {
	for _, d := range mustDevices(t) {
		got, err := Resources(d.Name)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(d.Name, got)
		var tool []map[string]any
		if !rdmaTool(t, &tool, "resource", "show", d.Name) {
			continue
		}
		for kind, n := range got {
			if v, ok := tool[0][kind].(float64); !ok || uint64(v) != n {
				t.Errorf("%s: %s is %d, rdma shows %v", d.Name, kind, n, tool[0][kind])
			}
		}
	}
	for _, d := range mustDevices(t) {
		if ports, err := FailedGSI(d.Name); err != nil || len(ports) > 0 {
			t.Errorf("%s: ports %v have failed, %v", d.Name, ports, err)
		}
	}
	if _, err := Resources("none"); !errors.Is(err, unix.ENODEV) {
		t.Errorf("resources of an unknown device: %v", err)
	}
}

func TestDeviceSystem(t *testing.T) {
	fork, err := CopyOnFork()
	want := true
	if kernel, device, ok := features.Here(); ok {
		want, _, _ = features.Lookup(kernel, device, features.CopyOnFork)
	}
	if err != nil || fork != want {
		t.Errorf("copy on fork: %v, %v, want %v; Linux 5.12 and later have it", fork, err, want)
	}
	shared, err := NetnsMode()
	if err != nil {
		t.Fatal(err)
	}
	// iproute2 6.15 prints invalid JSON here: "netns shared ...".
	out, err := exec.Command("rdma", "system", "show").Output()
	if err != nil {
		t.Log("no rdma tool to compare with: ", err)
	} else if strings.Contains(string(out), "netns shared") != shared {
		t.Errorf("shared %v, rdma shows %q", shared, out)
	}
}

func TestDevicePorts(t *testing.T) {
	for _, d := range mustDevices(t) {
		nd, err := Netdev(d.Name, 1)
		if err != nil {
			t.Logf("%s: %v", d.Name, err)
		}
		keys, err := PKeys(d.Name, 1)
		if err != nil || len(keys) == 0 || keys[0]&0x7fff != 0x7fff {
			t.Errorf("%s: pkeys %#x, %v; want the default key first", d.Name, keys, err)
		}
		gids, err := GIDTable(d.Name, 1)
		if err != nil || len(gids) == 0 {
			t.Errorf("%s: gids %v, %v", d.Name, gids, err)
		}
		for _, g := range gids {
			t.Logf("%s: netdev %s gid %+v", d.Name, nd, g)
			if nd != "" && (g.Netdev != nd || g.IfIndex == 0 || g.Type == uapi.IB_UVERBS_GID_TYPE_IB) {
				t.Errorf("%s: gid %+v, netdev %s", d.Name, g, nd)
			}
		}
	}
}

// TestDeviceLinks creates and removes an rxe device on lo.
func TestDeviceLinks(t *testing.T) {
	const link = "rxe_nldev"
	existing := mustDevices(t)[0]
	if err := AddLink(link, "rxe", "lo"); err != nil {
		t.Fatal(err)
	}
	found := false
	for _, d := range mustDevices(t) {
		if d.Name == link {
			found = d.Char != nil && d.Char.DriverID == uapi.RDMA_DRIVER_RXE
		}
	}
	if !found {
		t.Errorf("%s is not listed as rxe", link)
	}
	if nd, err := Netdev(link, 1); nd != "lo" {
		t.Errorf("netdev %q, %v", nd, err)
	}
	for _, c := range []struct {
		name, typ, netdev string
		want              unix.Errno
	}{
		{link + "2", "rxe", "lo", unix.EEXIST},
		{link + "2", "rxe", "none0", unix.ENODEV},
		{link + "2", "frob", "lo", unix.EINVAL},
	} {
		err := AddLink(c.name, c.typ, c.netdev)
		t.Log(err)
		if !errors.Is(err, c.want) {
			t.Errorf("AddLink(%q, %q, %q): %v; want %v", c.name, c.typ, c.netdev, err, c.want)
		}
	}
	if err := DeleteLink(link); err != nil {
		t.Error(err)
	}
	if err := DeleteLink(link); !errors.Is(err, unix.ENODEV) {
		t.Errorf("second delete: %v", err)
	}
	if err := AddLink(existing.Name, "rxe", "lo"); !errors.Is(err, unix.ENFILE) {
		t.Errorf("a name that is taken: %v", err)
	}
}

// TestDeviceChurn lists devices while others are added and removed. No call fails, and the
// permanent devices are always in the list.
func TestDeviceChurn(t *testing.T) {
	const link = "rxe_churn"
	stays := mustDevices(t)[0]
	stop, finished := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				finished <- nil
				return
			default:
			}
			if err := errors.Join(AddLink(link, "rxe", "lo"), DeleteLink(link)); err != nil {
				finished <- err
				return
			}
		}
	}()
	seen, lists := 0, 0
	for start := time.Now(); time.Since(start) < time.Second; lists++ {
		devs, err := Devices()
		if err != nil {
			t.Error(err)
			break
		}
		found := false
		for _, d := range devs {
			found = found || d.Name == stays.Name && d.Index == stays.Index && d.Char != nil
			if d.Name == link {
				seen++
			}
		}
		if !found {
			t.Errorf("%s is missing in %+v", stays.Name, devs)
		}
		if _, err := deaf(unix.EPERM, "/sys").devices(); err != nil {
			t.Errorf("sysfs: %v", err)
		}
	}
	close(stop)
	if err := <-finished; err != nil {
		t.Error(err)
	}
	t.Logf("%d lists, %d of them with %s", lists, seen, link)
}

// TestDeviceUnprivileged: queries need no capability, changes do.
func TestDeviceUnprivileged(t *testing.T) {
	if os.Getenv("NLDEV_CHILD") != "" {
		mustDevices(t)
		err := AddLink("rxe_nldev", "rxe", "lo")
		t.Log(err)
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("AddLink: %v", err)
		}
		return
	}
	bin := filepath.Join(t.TempDir(), "test")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bin, self, 0o755); err != nil {
		t.Fatal(err)
	}
	for d := filepath.Dir(bin); d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil && !os.IsPermission(err) {
			t.Log(err)
		}
	}
	cmd := exec.Command(bin, "-test.run", "^TestDeviceUnprivileged$", "-test.v")
	cmd.Env = append(os.Environ(), "NLDEV_CHILD=1")
	cmd.Dir = "/"
	cmd.SysProcAttr = usertest.Ordinary()
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// recorder records the traffic of a transport, for testdata/*.nl.
type recorder struct {
	transport
	log *bytes.Buffer
}

func (r recorder) send(b []byte) error {
	fmt.Fprintf(r.log, "> %x\n", b)
	return r.transport.send(b)
}

func (r recorder) receive() ([]byte, error) {
	b, err := r.transport.receive()
	if err == nil {
		fmt.Fprintf(r.log, "< %x\n", b)
	}
	return b, err
}

// TestDeviceRecord prints a recording for testdata, between two marks.
func TestDeviceRecord(t *testing.T) {
	dev := mustDevices(t)[0].Name
	var log bytes.Buffer
	c := kernel
	c.dial = func() (transport, error) {
		log.WriteString("open\n")
		tr, err := dialKernel()
		return recorder{tr, &log}, err
	}
	r, err := record(c, dev)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("---- recording\n%s= %s\n---- end\n", log.String(), strings.Join(r.lines(), "\n= "))
}
