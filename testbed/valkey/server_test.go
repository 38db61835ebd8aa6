//go:build vm || device

package valkey_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/valkeyrdma"
	"github.com/goverbs/goverbs/verbstest"
)

var check = errtest.Check

// A rig is Valkey's server and where clients run.
type rig struct {
	t        testing.TB
	addr     string
	onClient func(func())       // runs a function on the machine of clients
	network  *verbstest.Network // of machines in memory
	process  *exec.Cmd
	log      bytes.Buffer
}

// start starts the server.
func start(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t}
	await := r.prepare()
	r.process.Stdout, r.process.Stderr = &r.log, &r.log
	check(t, r.process.Start())
	t.Cleanup(func() {
		r.kill()
		if t.Failed() {
			t.Logf("the server:\n%s", &r.log)
		}
	})
	await()
	return r
}

// kill ends the server without giving it time to do anything.
func (r *rig) kill() {
	if r.process.ProcessState != nil {
		return
	}
	var exit *exec.ExitError
	if err := errors.Join(r.process.Process.Kill(), r.process.Wait()); !errors.As(err, &exit) {
		r.t.Errorf("the server has ended by itself: %v", err)
	}
}

// options returns options of valkey-go for the server. Its timeouts are those of a busy machine.
func (r *rig) options() valkey.ClientOption {
	return valkey.ClientOption{InitAddress: []string{r.addr}, DisableCache: true,
		Dialer: net.Dialer{Timeout: time.Minute}, ConnWriteTimeout: time.Minute,
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, config *tls.Config) (c net.Conn, err error) {
			r.onClient(func() { c, err = valkeyrdma.DialCtxFn(ctx, addr, d, config) })
			return c, err
		}}
}

func (r *rig) dial(options ...func(*valkey.ClientOption)) (c valkey.Client) {
	r.t.Helper()
	o := r.options()
	for _, f := range options {
		f(&o)
	}
	r.onClient(func() {
		var err error
		c, err = valkey.NewClient(o)
		check(r.t, err)
	})
	r.t.Cleanup(c.Close)
	return c
}

// limit returns a context that ends before a test is hopeless.
func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// The commands of valkey-go work unchanged.
func TestCommands(t *testing.T) {
	r := start(t)
	c, ctx := r.dial(), limit(t)
	text := func(cmd valkey.Completed, want string) {
		t.Helper()
		if got, err := c.Do(ctx, cmd).ToString(); err != nil || got != want {
			t.Errorf("%v: %q, %v, want %q", cmd.Commands(), got, err, want)
		}
	}
	text(c.B().Ping().Build(), "PONG")
	text(c.B().Set().Key("k").Value("v").Build(), "OK")
	text(c.B().Get().Key("k").Build(), "v")
	text(c.B().Echo().Message("").Build(), "")
	if _, err := c.Do(ctx, c.B().Get().Key("none").Build()).ToString(); !valkey.IsValkeyNil(err) {
		t.Errorf("a key that is not there: %v", err)
	}
	if _, ok := valkey.IsValkeyErr(c.Do(ctx, c.B().Incr().Key("k").Build()).Error()); !ok {
		t.Error("INCR of a text is no error of the server")
	}
	check(t, c.Do(ctx, c.B().Hset().Key("h").FieldValue().FieldValue("a", "1").FieldValue("b", "2").Build()).Error())
	if m, err := c.Do(ctx, c.B().Hgetall().Key("h").Build()).AsStrMap(); err != nil || m["a"] != "1" || m["b"] != "2" {
		t.Errorf("HGETALL: %v, %v", m, err)
	}
	check(t, c.Dedicated(func(d valkey.DedicatedClient) error { return transaction(ctx, d) }))
	blocking(t, c)
	publish(t, c)
}

// transaction runs MULTI.
func transaction(ctx context.Context, d valkey.DedicatedClient) error {
	incr := func() valkey.Completed { return d.B().Incr().Key("n").Build() }
	for _, resp := range d.DoMulti(ctx, d.B().Multi().Build(), incr(), incr()) {
		if err := resp.Error(); err != nil {
			return err
		}
	}
	if got, err := d.Do(ctx, d.B().Exec().Build()).AsIntSlice(); err != nil || fmt.Sprint(got) != "[1 2]" {
		return fmt.Errorf("EXEC: %v, %w", got, err)
	}
	return nil
}

// blocking checks a command that waits in the server for another connection.
func blocking(t *testing.T, c valkey.Client) {
	t.Helper()
	ctx := limit(t)
	popped := make(chan error, 1)
	go func() {
		got, err := c.Do(ctx, c.B().Blpop().Key("list").Timeout(30).Build()).AsStrSlice()
		if err == nil && fmt.Sprint(got) != "[list x]" {
			err = fmt.Errorf("BLPOP: %q", got)
		}
		popped <- err
	}()
	check(t, c.Do(ctx, c.B().Rpush().Key("list").Element("x").Build()).Error())
	check(t, <-popped)
	if _, err := c.Do(ctx, c.B().Blpop().Key("list").Timeout(0.05).Build()).AsStrSlice(); !valkey.IsValkeyNil(err) {
		t.Errorf("BLPOP of an empty list: %v", err)
	}
}

// publish checks that a subscriber gets messages in order.
func publish(t *testing.T, c valkey.Client) {
	t.Helper()
	const messages = 2000
	ctx, cancel := context.WithCancel(limit(t))
	defer cancel()
	subscribed, got := make(chan struct{}), 0
	done := make(chan error, 1)
	go func() {
		ctx := valkey.WithOnSubscriptionHook(ctx, func(valkey.PubSubSubscription) { close(subscribed) })
		done <- c.Receive(ctx, c.B().Subscribe().Channel("ch").Build(), func(m valkey.PubSubMessage) {
			if m.Message != strconv.Itoa(got) {
				t.Errorf("message %q, want %d", m.Message, got)
			}
			if got++; got == messages {
				cancel()
			}
		})
	}()
	<-subscribed
	var cmds valkey.Commands
	for i := range messages {
		cmds = append(cmds, c.B().Publish().Channel("ch").Message(strconv.Itoa(i)).Build())
	}
	for _, resp := range c.DoMulti(ctx, cmds...) {
		check(t, resp.Error())
	}
	if err := <-done; got != messages {
		t.Errorf("%d messages: %v", got, err)
	}
}

// Several goroutines of one client echo every length up to 512 bytes: the case of valkey-go's own tests of RDMA.
func TestEchoes(t *testing.T) {
	c, ctx := start(t).dial(), limit(t)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := 1; n <= 512; n++ {
				want := strings.Repeat(string(rune('a'+(i+n)%26)), n)
				if got, err := c.Do(ctx, c.B().Echo().Message(want).Build()).ToString(); err != nil || got != want {
					t.Errorf("%d bytes: %q, %v", n, got, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// Values come back as they were, from those that are sent inline to those that fill the buffers many times.
func TestValues(t *testing.T) {
	sizes := []int{0, 1, 63, 64, 65, 4096, 1<<16 - 1, 1<<20 - 40, 1 << 20, 1<<20 + 1, 5<<20 + 123, 64 << 20}
	if testing.Short() {
		sizes = sizes[:len(sizes)-1]
	}
	values(t, start(t).dial(), sizes...)
}

func values(t *testing.T, c valkey.Client, sizes ...int) {
	t.Helper()
	ctx := limit(t)
	for _, size := range sizes {
		want := make([]byte, size)
		for i := 0; i+8 <= size; i += 8 {
			want[i] = byte(i >> 3 * 31)
		}
		start := time.Now()
		check(t, c.Do(ctx, c.B().Set().Key("v").Value(valkey.BinaryString(want)).Build()).Error())
		got, err := c.Do(ctx, c.B().Get().Key("v").Build()).AsBytes()
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes: %d came back, %v", size, len(got), err)
		}
		t.Logf("%d bytes in %v", size, time.Since(start))
	}
}

// Many connections with many commands in flight.
func TestManyInFlight(t *testing.T) {
	const inFlight, each = 64, 1
	conns := 64
	if testing.Short() {
		conns = 8
	}
	r := start(t)
	ctx := limit(t)
	var all sync.WaitGroup
	for i := range conns {
		c := r.dial(func(o *valkey.ClientOption) { o.PipelineMultiplex = -1; o.AlwaysPipelining = true })
		for j := range inFlight {
			all.Go(func() {
				key := fmt.Sprintf("%d-%d", i, j)
				for n := range each {
					want := fmt.Sprintf("%s-%d-%0*d", key, n, rand.IntN(2000), 0)
					err := c.Do(ctx, c.B().Set().Key(key).Value(want).Build()).Error()
					got, err2 := c.Do(ctx, c.B().Get().Key(key).Build()).ToString()
					if err := errors.Join(err, err2); err != nil || got != want {
						t.Errorf("%s: %q, %v", key, got, err)
						return
					}
				}
			})
		}
	}
	all.Wait()
}

// A server that is killed in the middle of traffic ends all calls.
func TestKilledServer(t *testing.T) {
	r := start(t)
	c, ctx := r.dial(func(o *valkey.ClientOption) { o.DisableRetry = true }), limit(t)
	value := valkey.BinaryString(make([]byte, 1<<20))
	ended := make(chan error)
	for i := range 8 {
		go func() {
			for {
				if err := c.Do(ctx, c.B().Set().Key(strconv.Itoa(i)).Value(value).Build()).Error(); err != nil {
					ended <- err
					return
				}
			}
		}()
	}
	for n := int64(0); n < 8; { // all keys exist
		var err error
		n, err = c.Do(ctx, c.B().Dbsize().Build()).AsInt64()
		check(t, err)
	}
	r.kill()
	for range 8 {
		if err := <-ended; ctx.Err() != nil || errors.As(err, new(*valkey.ValkeyError)) {
			t.Errorf("a call to a killed server: %v", err)
		}
	}
}

// A server that is busy gets no more messages than it has receives: one more would end the connection.
func TestBusyServer(t *testing.T) {
	const pings = 5000
	loops := "2e7"
	if testing.Short() {
		loops = "4e6"
	}
	r := start(t)
	var c net.Conn
	r.onClient(func() {
		var err error
		c, err = valkeyrdma.DialContext(limit(t), r.addr)
		check(t, err)
	})
	check(t, c.SetDeadline(time.Now().Add(time.Minute)))
	read := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.Discard, c, int64(len(":1\r\n")+pings*len("+PONG\r\n")))
		read <- err
	}()
	busy := `EVAL "local n = 0 for i = 1, ` + loops + ` do n = n + i end return 1" 0`
	for i := range 1 + pings {
		command := "PING\r\n"
		if i == 0 {
			command = busy + "\r\n"
		}
		_, err := io.WriteString(c, command)
		check(t, err)
	}
	check(t, <-read)
	check(t, c.Close())
}
