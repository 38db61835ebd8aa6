package rdma

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// BenchmarkSend sends 1 MiB and waits for a reply: as a copy, from the program's memory,
// and in a buffer that already has the data.
func BenchmarkSend(b *testing.B) {
	const size = 1 << 20
	clients, servers, _ := honestConns(b, 1, nil, nil)
	c, ctx := clients[0], bounded(b)
	c.watcher, servers[0].watcher = nil, nil // watches allocate
	served := make(chan error, 1)
	go func() {
		served <- servers[0].ServeCalls(ctx, func([]byte) []byte { return nil })
	}()
	region := NewRegion(size)
	for name, call := range map[string]func(context.Context) (Message, error){
		"copy": func(ctx context.Context) (Message, error) { return c.Call(ctx, region.Bytes()) },
		"region": func(ctx context.Context) (Message, error) {
			return callBuffer(ctx, c, func() (Buffer, error) { return c.BufferOf(region, 0, size) })
		},
		"filled": func(ctx context.Context) (Message, error) {
			return callBuffer(ctx, c, func() (Buffer, error) { return c.Alloc(size) })
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(size)
			for b.Loop() {
				m, err := call(ctx)
				if err != nil {
					b.Fatal(err)
				}
				m.Release()
			}
		})
	}
	for _, end := range []func() error{c.Close, func() error { return <-served }, region.Close} {
		if err := end(); err != nil {
			b.Error(err)
		}
	}
}

// callBuffer calls with a buffer.
func callBuffer(ctx context.Context, c *Conn, get func() (Buffer, error)) (Message, error) {
	b, err := get()
	if err != nil {
		return Message{}, err
	}
	return c.CallBuffer(ctx, b)
}

// BenchmarkParts takes a buffer of a region and releases it.
func BenchmarkParts(b *testing.B) {
	clients, _, _ := honestConns(b, 1, nil, nil)
	c, region := clients[0], NewRegion(1<<20)
	c.watcher = nil // watches allocate
	b.ReportAllocs()
	for b.Loop() {
		buf, err := c.BufferOf(region, 4096, 1000)
		if err != nil {
			b.Fatal(err)
		}
		buf.Release()
	}
	if err := region.Close(); err != nil {
		b.Error(err)
	}
}

// BenchmarkGrow registers memory for a message, writes to it, and deregisters it.
func BenchmarkGrow(b *testing.B) {
	m := verbstest.New(b)
	v, err := uverbs.Open(m.Device())
	good(b, v, err)
	pd, err := v.AllocPD()
	p := openPool(good(b, pd, err))
	for _, size := range []int{slabSize, 1 << 20, 64 << 20} {
		b.Run(fmt.Sprint(size>>10, "KiB"), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				m, err := p.get(size)
				if err != nil {
					b.Fatal(err)
				}
				clear(m.bytes)
				p.put(m)
				p.shrink(0)
			}
		})
	}
	for _, close := range []func() error{p.close, pd.Close, v.Close} {
		if err := close(); err != nil {
			b.Error(err)
		}
	}
}

// BenchmarkIdle measures a process with idle connections, both ends of which wait: the CPU time of a second in which
// nothing happens, with that of the devices in memory, and the threads of the process.
func BenchmarkIdle(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			idleConns(b, n)
			used, began := cpuTime(b), time.Now()
			for b.Loop() {
				<-time.After(100 * time.Millisecond) // it is this time that is measured
			}
			used = cpuTime(b) - used
			b.ReportMetric(float64(threads(b)), "threads")
			b.ReportMetric(float64(used.Microseconds())/time.Since(began).Seconds(), "cpu-us/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// idleConns returns both ends of n connections. A call waits for a message of each.
func idleConns(t testing.TB, n int) []*Conn {
	t.Helper()
	var waiting sync.WaitGroup
	t.Cleanup(waiting.Wait) // after the connections are closed
	o := Options{Depth: 1, EagerSize: 256, KeepAlive: -1}
	clients, servers, _ := honestConns(t, n, &o, &ListenOptions{Options: o})
	all := append(clients, servers...)
	for _, c := range all {
		waiting.Go(func() {
			if _, err := c.Recv(t.Context()); err == nil {
				t.Error("a message that nobody has sent")
			}
		})
	}
	return all
}

// threads returns the number of threads of the process.
func threads(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/task")
	return len(good(t, all, err))
}

// TestIdleThreads checks that calls that wait need no thread.
func TestIdleThreads(t *testing.T) {
	const n = 100
	idleConns(t, 1)
	before := threads(t)
	for _, c := range idleConns(t, n) {
		soon(t, "the call waits", c.waiting)
	}
	if more := threads(t) - before; more > n/4 {
		t.Errorf("%d calls that wait take %d threads", 2*n, more)
	}
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
