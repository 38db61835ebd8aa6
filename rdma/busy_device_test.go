//go:build device

package rdma_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/monitortest"
	"github.com/goverbs/goverbs/rdma"
)

// envBusy has the number of CPUs of the server, which is a child process of TestDeviceBusyHandlers.
const envBusy = "GOVERBS_TEST_BUSY"

// busyTime is far more than a short call waits for handlers that compute, tens of milliseconds, and less than the 60
// seconds that the runtime's monitor may sleep.
const busyTime = 5 * time.Second

// TestDeviceBusyHandlers checks that a call is served while handlers of other connections compute on all CPUs of a
// process that was idle before.
func TestDeviceBusyHandlers(t *testing.T) {
	if n, err := strconv.Atoi(os.Getenv(envBusy)); err == nil {
		serveBusy(t, int64(n))
		return
	}
	for cpus := 1; cpus <= 2; cpus++ {
		t.Run(fmt.Sprintf("GOMAXPROCS=%d", cpus), func(t *testing.T) {
			addr := startBusy(t, strconv.Itoa(cpus))
			ctx := limit(t)
			short := must(rdma.Dial(ctx, addr, nil))(t)
			t.Cleanup(func() { mayLose(t, short.Close()) })
			must(short.Call(ctx, nil))(t).Release()
			waits := make(chan string, cpus)
			for range cpus {
				c := must(rdma.Dial(ctx, addr, nil))(t)
				t.Cleanup(func() { mayLose(t, c.Close()) })
				<-time.After(monitortest.Idle)
				go func() {
					reply, err := c.Call(ctx, []byte("compute"))
					if err != nil {
						t.Error(err)
					}
					waits <- string(reply.Copy())
				}()
			}
			for got := 0; got < cpus; {
				must(short.Call(ctx, nil))(t).Release()
				select {
				case d := <-waits:
					t.Logf("a handler has computed for %s before another one ran", d)
					if d := must(time.ParseDuration(d))(t); d >= busyTime {
						t.Error("a call was not served while handlers computed")
					}
					got++
				default:
				}
			}
		})
	}
}

// startBusy starts the server, and returns its address.
func startBusy(t *testing.T, cpus string) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestDeviceBusyHandlers$")
	cmd.Env = append(os.Environ(), envBusy+"="+cpus, "GOMAXPROCS="+cpus)
	cmd.Stderr = os.Stderr
	stdin := must(cmd.StdinPipe())(t)
	stdout := bufio.NewReader(must(cmd.StdoutPipe())(t))
	check(t, cmd.Start())
	t.Cleanup(func() { // after the connections were closed
		check(t, stdin.Close())
		if out, err := io.ReadAll(stdout); err != nil || cmd.Wait() != nil {
			t.Errorf("the server: %s (%v)", out, err)
		}
	})
	return strings.TrimSpace(must(stdout.ReadString('\n'))(t))
}

// serveBusy is the server. Its input ends when it is to end. Handlers of the message "compute" compute on all n CPUs
// until a handler of another connection runs, and reply with how long that took.
func serveBusy(t *testing.T, n int64) {
	l := must(rdma.Listen(deviceIP+":0", listening(&rdma.Options{KeepAlive: -1})))(t)
	fmt.Println(l.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			t.Error(err)
		}
	}()
	var computing, others atomic.Int64
	check(t, l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
		return c.ServeCalls(ctx, func(request []byte) []byte {
			if len(request) == 0 {
				others.Add(1)
				return nil
			}
			began := time.Now()
			computing.Add(1)
			for computing.Load() < n && time.Since(began) < busyTime {
			}
			before, all := others.Load(), time.Now()
			for others.Load() == before && time.Since(all) < busyTime {
			}
			return fmt.Append(nil, time.Since(all))
		})
	}))
}
