package provider_test

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
)

const size = 64 << 10

func TestMain(m *testing.M) { leaktest.Main(m) }

// fileDevice returns an ioctl.Device whose descriptor is an ordinary file, which
// can be mapped like a uverbs node.
func fileDevice(t *testing.T) (dev *ioctl.Device, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "node")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dev = ioctl.New(fd, "file", 0)
	t.Cleanup(func() { dev.Close() })
	return dev, path
}

func TestMapSharesTheFile(t *testing.T) {
	before := len(tickets())
	dev, path := fileDevice(t)
	m, err := provider.Map(dev, 0, size)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(tickets()); n != before+1 {
		t.Errorf("%d mappings in the leak account, want %d", n, before+1)
	}
	copy(m.Bytes()[100:], "through the mapping")
	if err := m.Retire(); err != nil {
		t.Fatal(err)
	}
	if n := len(tickets()); n != before {
		t.Errorf("%d mappings in the leak account after Retire, want %d", n, before)
	}

	copy(m.Bytes()[100:], "after Retire: nobody")
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(file[100:119]); got != "through the mapping" {
		t.Errorf("the file holds %q: Retire came too early or not at all", got)
	}
	if m.Bytes()[99] != 0 {
		t.Error("retired memory is not zero")
	}
	if mapped(t, path) {
		t.Error("the file is still mapped after Retire")
	}
	if err := m.Retire(); err != nil {
		t.Errorf("second Retire: %v", err)
	}
	runtime.KeepAlive(m)
}

func TestMapErrors(t *testing.T) {
	dev, _ := fileDevice(t)
	if _, err := provider.Map(dev, 1, size); !errors.Is(err, unix.EINVAL) {
		t.Errorf("Map at an odd offset: %v, want EINVAL", err)
	}
	if _, err := provider.Anon(0); !errors.Is(err, unix.EINVAL) {
		t.Errorf("Anon(0): %v, want EINVAL", err)
	}
	// Whether huge pages are reserved depends on the machine.
	if m, err := provider.Huge(size); err == nil {
		if n := len(m.Bytes()); n != 2<<20 {
			t.Errorf("%d bytes of huge pages", n)
		}
		if err := m.Retire(); err != nil {
			t.Error(err)
		}
	} else if !errors.Is(err, unix.ENOMEM) {
		t.Errorf("Huge: %v, want ENOMEM", err)
	}
	dev.Close()
	if _, err := provider.Map(dev, 0, size); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Map on a closed device: %v, want os.ErrClosed", err)
	}
}

// Mappings are retired again and again while other goroutines write to them. No
// write may fault, or reach the file after Retire.
func TestRetireUnderStragglers(t *testing.T) {
	dev, path := fileDevice(t)
	for round := range 200 {
		m, err := provider.Map(dev, 0, size)
		if err != nil {
			t.Fatal(err)
		}
		var stop atomic.Bool
		var started, done sync.WaitGroup
		for w := range 3 {
			started.Add(1)
			done.Go(func() {
				b := m.Bytes()
				for i := 0; ; i++ {
					b[(i*4096+w)%len(b)]++
					if i == 0 {
						started.Done()
					}
					if stop.Load() {
						break
					}
					if i%256 == 0 {
						runtime.Gosched() // there may be fewer CPUs than writers
					}
				}
				runtime.KeepAlive(m)
			})
		}
		started.Wait()
		var retires sync.WaitGroup
		for range 2 {
			retires.Go(func() {
				if err := m.Retire(); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		retires.Wait()
		if mapped(t, path) {
			t.Fatalf("round %d: the file is still mapped after Retire", round)
		}
		stop.Store(true)
		done.Wait()
	}
}

// After Retire, the address range is unmapped when the Mapping is unreachable, and not before.
func TestUnmappedWhenUnreachable(t *testing.T) {
	dev, _ := fileDevice(t)
	var at uintptr
	func() {
		m, err := provider.Map(dev, 0, size)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Retire(); err != nil {
			t.Fatal(err)
		}
		at = reflect.ValueOf(m.Bytes()).Pointer()
		copy(m.Bytes(), mark)
		runtime.GC()
		if memoryAt(t, at) != mark {
			t.Error("unmapped while reachable")
		}
		runtime.KeepAlive(m)
	}()
	for range 1000 {
		runtime.GC()
		if memoryAt(t, at) != mark {
			return
		}
		runtime.Gosched()
	}
	t.Error("the retired mapping was never unmapped")
}

// Unmap unmaps at once, and only what Retire has not.
func TestUnmap(t *testing.T) {
	before := len(tickets())
	dev, path := fileDevice(t)
	for _, retire := range []bool{false, true} {
		m, err := provider.Map(dev, 0, size)
		if err != nil {
			t.Fatal(err)
		}
		at := reflect.ValueOf(m.Bytes()).Pointer()
		if retire {
			if err := m.Release(true); err != nil {
				t.Fatal(err)
			}
		}
		copy(m.Bytes(), mark)
		for range 2 {
			if err := m.Release(false); err != nil {
				t.Fatal(err)
			}
		}
		if there := memoryAt(t, at) == mark; mapped(t, path) || there != retire {
			t.Errorf("retired before: %v: the file is mapped: %v, the range is: %v", retire, mapped(t, path), there)
		}
		if n := len(tickets()); n != before {
			t.Errorf("%d mappings in the leak account after Unmap, want %d", n, before)
		}
		runtime.KeepAlive(m)
	}
}

// Retire does not change memory of the program. It is freed when the Mapping is
// unreachable.
func TestLend(t *testing.T) {
	before := len(tickets())
	mem := make([]byte, 100)
	back := make(chan []byte, 1)
	func() {
		m := provider.MappingOf(mem, func(b []byte) { back <- b })
		m.Bytes()[7] = 1
		for range 2 {
			if err := m.Retire(); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(tickets()); n != before {
			t.Errorf("%d mappings in the leak account after Retire, want %d", n, before)
		}
		runtime.GC()
		if mem[7] != 1 || len(back) > 0 {
			t.Errorf("after Retire, byte 7 is %d, and %d have been given back", mem[7], len(back))
		}
		runtime.KeepAlive(m)
	}()
	for range 1000 {
		runtime.GC()
		select {
		case b := <-back:
			if &b[0] != &mem[0] || len(b) != len(mem) {
				t.Error("other memory came back")
			}
			return
		default:
			runtime.Gosched()
		}
	}
	t.Error("the memory never came back")
}

// tickets returns the mappings that the leak detector knows.
func tickets() (mappings []*leak.Ticket) {
	for _, t := range leak.Live() {
		if strings.HasPrefix(t.String(), "mapping") {
			mappings = append(mappings, t)
		}
	}
	return mappings
}

// mapped reports whether this process maps the file.
func mapped(t *testing.T, path string) bool {
	t.Helper()
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if strings.HasSuffix(lines.Text(), " "+path) {
			return true
		}
	}
	return false
}

// memoryAt returns the first bytes at an address, or "" if nothing is mapped there. Other memory may be mapped where a
// Mapping was.
func memoryAt(t *testing.T, at uintptr) string {
	t.Helper()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	b := make([]byte, len(mark))
	switch _, _, errno := unix.Syscall(unix.SYS_WRITE, uintptr(pipe[1]), at, uintptr(len(b))); errno {
	case 0:
	case unix.EFAULT:
		return ""
	default:
		t.Fatal(errno)
	}
	if _, err := unix.Read(pipe[0], b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// mark is written to mappings that memoryAt looks at.
const mark = "the memory of a Mapping"

func BenchmarkRetire(b *testing.B) {
	for _, n := range []int{4 << 10, 64 << 10, 1 << 20} {
		b.Run(strconv.Itoa(n>>10)+"KiB", func(b *testing.B) {
			for b.Loop() {
				m, err := provider.Anon(n)
				if err != nil {
					b.Fatal(err)
				}
				if err := m.Retire(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
