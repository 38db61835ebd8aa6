package devicetest

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
)

// This file has the tests of device memory in rdma-core's tests/test_device.py and tests/test_mr.py.

// deviceMemory returns how much memory the device has, in bytes. If it has none, it checks that AllocDM reports this,
// and skips the test.
func deviceMemory(t testing.TB, dev *uverbs.Context) int {
	t.Helper()
	n := must(dev.QueryDevice())(t).MaxDMSize
	if n > 0 {
		return int(n)
	}
	_, err := dev.AllocDM(uverbs.DMConfig{Size: 4})
	if !errors.Is(err, uverbs.ErrNotSupported) {
		t.Fatalf("AllocDM on a device without memory: %v", err)
	}
	features.Missing(t, features.DeviceMemory, err)
	return 0
}

// allocDM allocates n bytes of device memory. If the device has none, it skips the test.
func allocDM(t testing.TB, dev *uverbs.Context, n int) *uverbs.DM {
	t.Helper()
	deviceMemory(t, dev)
	return must(dev.AllocDM(uverbs.DMConfig{Size: n}))(t)
}

// parts returns sizes of device memory: pyverbs draws one of those that are up to half of the memory.
func parts(t testing.TB, dev *uverbs.Context) []int {
	t.Helper()
	half := deviceMemory(t, dev) / 2
	return []int{4, 60, half / 3 &^ 3, half}
}

func createDM(t *testing.T, dev *uverbs.Context) {
	for _, n := range parts(t, dev) {
		dm := must(dev.AllocDM(uverbs.DMConfig{Size: n, Align: 4}))(t)
		if dm.Size() != n {
			t.Errorf("of %d bytes, %d were allocated", n, dm.Size())
		}
		check(t, dm.Close())
	}
}

func createDMBad(t *testing.T, dev *uverbs.Context) {
	n := deviceMemory(t, dev)
	if _, err := dev.AllocDM(uverbs.DMConfig{Size: n + 1}); !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOMEM) {
		t.Errorf("more than the device has: %v", err)
	}
	if _, err := dev.AllocDM(uverbs.DMConfig{Size: 64, Align: 3}); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("an alignment of 3: %v", err)
	}
}

func destroyDMTwice(t *testing.T, dev *uverbs.Context) {
	dm := allocDM(t, dev, 64)
	check(t, dm.Close())
	check(t, dm.Close())
	if _, err := dm.ReadAt(make([]byte, 4), 0); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("ReadAt after Close: %v", err)
	}
}

func writeDM(t *testing.T, dev *uverbs.Context) {
	for _, n := range parts(t, dev) {
		dm := must(dev.AllocDM(uverbs.DMConfig{Size: n}))(t)
		off := n / 4 &^ 3
		if wrote := must(dm.WriteAt(bytes.Repeat([]byte("aaaa"), (n-off)/4), int64(off)))(t); wrote != n-off {
			t.Errorf("of %d bytes, %d were written", n-off, wrote)
		}
		check(t, dm.Close())
	}
}

func writeDMBad(t *testing.T, dev *uverbs.Context) {
	dm := allocDM(t, dev, 128)
	before := make([]byte, 128)
	must(dm.ReadAt(before, 0))(t)
	for _, off := range []int64{1, 2, 61} {
		if n, err := dm.WriteAt([]byte("aaaa"), off); n != 0 || !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("WriteAt at %d: %d, %v", off, n, err)
		}
	}
	after := make([]byte, 128)
	must(dm.ReadAt(after, 0))(t)
	same(t, after, before)
}

func readDM(t *testing.T, dev *uverbs.Context) {
	for i, n := range parts(t, dev) {
		dm := must(dev.AllocDM(uverbs.DMConfig{Size: n}))(t)
		off := n / 4 &^ 3
		want := pattern(n-off, byte(i))
		must(dm.WriteAt(want, int64(off)))(t)
		got := make([]byte, n-off)
		must(dm.ReadAt(got, int64(off)))(t)
		same(t, got, want)
		check(t, dm.Close())
	}
}

// pattern returns n bytes that differ from those of another seed.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = seed + byte(i*7) + byte(i>>8)
	}
	return b
}

// allocDMInProcesses allocates device memory in five processes, which have it at the same time.
func allocDMInProcesses(t *testing.T, dev *uverbs.Context) {
	const mark = "GOVERBS_TEST_DM"
	if n, err := strconv.Atoi(os.Getenv(mark)); err == nil {
		allocDM(t, dev, n)
		os.Stdout.WriteString("allocated\n")
		must(os.Stdin.Read(make([]byte, 1)))(t)
		return
	}
	const processes = 5
	n := deviceMemory(t, dev) / 2 / processes
	for range processes {
		cmd := exec.Command(os.Args[0], "-test.run=^TestDeviceParityDevice$/^test_multi_process_alloc_dm$")
		cmd.Env = append(os.Environ(), mark+"="+itoa(n))
		cmd.Stderr = os.Stderr
		in, out := must(cmd.StdinPipe())(t), must(cmd.StdoutPipe())(t)
		check(t, cmd.Start())
		t.Cleanup(func() {
			must(in.Write([]byte{0}))(t)
			check(t, cmd.Wait())
		})
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "allocated\n" {
			t.Errorf("a process with %d bytes: %q, %v", n, line, err)
		}
	}
}

// importDM reads through an imported DM what is written to the original.
func importDM(t *testing.T, dev *uverbs.Context) {
	n := deviceMemory(t, dev) / 2
	dm := allocDM(t, dev, n)
	other := importDevice(t, dev)
	imported, err := other.ImportDM(dm.Handle())
	if errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, features.ImportDM, err)
	}
	check(t, err)
	if imported.Size() != n {
		t.Errorf("the imported memory has %d bytes of %d", imported.Size(), n)
	}
	want := pattern(n, 0xab)
	must(dm.WriteAt(want, 0))(t)
	got := make([]byte, n)
	must(imported.ReadAt(got, 0))(t)
	same(t, got, want)
	check(t, imported.Close())
	must(dm.ReadAt(got, 0))(t) // the memory is the exporter's
	if _, err := other.ImportDM(1 << 20); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("an unknown handle: %v", err)
	}
}

// dmRemote are the rights of an MR of device memory that peers access.
const dmRemote = uverbs.RemoteRead | uverbs.RemoteWrite | uverbs.RemoteAtomic

// dmClient returns a client whose messages, and those of its peer, are in device memory.
func dmClient(t testing.TB, access uverbs.Access) *player {
	t.Helper()
	client, _ := newPlayers(t, setup{rounds: 10, onDevice: true, access: access, qpAccess: access})
	return client
}

func createDMMR(t *testing.T) {
	dev := openDevice(t)
	most := deviceMemory(t, dev)
	pd := must(dev.AllocPD())(t)
	for _, size := range []int{4, most / 4 &^ 3, most / 2 &^ 3} {
		dm := must(dev.AllocDM(uverbs.DMConfig{Size: size}))(t)
		for _, n := range []int{size / 10 &^ 3, size / 2 &^ 3, size} {
			if n == 0 {
				continue // Python registers no bytes, which Go refuses: see badDMRegistration
			}
			mr := must(pd.RegDM(dm, 0, n, uverbs.LocalWrite))(t)
			if mr.Addr() != 0 || mr.Len() != n || mr.Bytes() != nil {
				t.Errorf("of %d bytes: %d at %#x", n, mr.Len(), mr.Addr())
			}
			check(t, mr.Close())
		}
		check(t, dm.Close())
	}
}

// badDMAccess accesses device memory with bad offsets and lengths.
func badDMAccess(t *testing.T) {
	dev := openDevice(t)
	const size = 100
	dm := allocDM(t, dev, size)
	must(must(dev.AllocPD())(t).RegDM(dm, 0, size, uverbs.LocalWrite))(t)
	for _, c := range []struct{ off, n int }{{3, 4}, {4, 3}, {size + 4, 4}, {0, size + 4}} {
		if n, err := dm.ReadAt(make([]byte, c.n), int64(c.off)); err == nil {
			t.Errorf("ReadAt of %d bytes at %d: %d", c.n, c.off, n)
		}
		if n, err := dm.WriteAt(make([]byte, c.n), int64(c.off)); n != 0 || !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("WriteAt of %d bytes at %d: %d, %v", c.n, c.off, n, err)
		}
	}
}

func badDMRegistration(t *testing.T) {
	dev := openDevice(t)
	const size = 100
	dm := allocDM(t, dev, size)
	pd := must(dev.AllocPD())(t)
	for _, c := range []struct{ off, n int }{{0, size + 4}, {4, size}, {size + 4, 4}, {0, 0}, {-4, 4}} {
		if _, err := pd.RegDM(dm, c.off, c.n, uverbs.LocalWrite); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("registered %d bytes at %d: %v", c.n, c.off, err)
		}
	}
}
