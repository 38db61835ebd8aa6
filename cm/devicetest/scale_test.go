package devicetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// connections returns the number of connections that TestDeviceScale opens in one process, with both ends of each: a
// thousand in soak.
func connections() int {
	if os.Getenv("GOVERBS_SOAK_ROUNDS") != "" {
		return 1000
	}
	return 300
}

// An echo sends back each message of its connection.
type echo struct {
	c   *cm.Conn
	mr  *uverbs.MR
	off int
}

// tiny is a QP for one message in each direction.
func tiny() uverbs.QPConfig { return uverbs.QPConfig{MaxSendWR: 2, MaxRecvWR: 2} }

const echoSize = 16

// post posts the receive.
func (e *echo) post() error { return e.c.PostRecv(1, e.mr.SGE(e.off, echoSize)) }

// serve sends messages back until the connection ends.
func (e *echo) serve(ctx context.Context) error {
	for {
		if err := e.reply(ctx); errors.Is(err, cm.ErrDisconnected) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func (e *echo) reply(ctx context.Context) error {
	wc, err := e.c.RecvComp(ctx)
	if err != nil {
		return err
	}
	out := e.mr.SGE(e.off+echoSize, copy(e.mr.Bytes()[e.off+echoSize:][:echoSize], e.mr.Bytes()[e.off:][:wc.ByteLen]))
	return errors.Join(e.post(), e.c.PostSend(2, uverbs.Signaled, out), second(e.c.SendComp(ctx)))
}

// ask sends a message and waits for its echo.
func (e *echo) ask(ctx context.Context, text string) error {
	if err := e.post(); err != nil {
		return err
	}
	out := e.mr.SGE(e.off+echoSize, copy(e.mr.Bytes()[e.off+echoSize:][:echoSize], text))
	if err := errors.Join(e.c.PostSend(2, uverbs.Signaled, out), second(e.c.SendComp(ctx))); err != nil {
		return err
	}
	wc, err := e.c.RecvComp(ctx)
	if got := string(e.mr.Bytes()[e.off:][:wc.ByteLen]); err == nil && got != text {
		err = fmt.Errorf("the echo of %q is %q", text, got)
	}
	return err
}

// channels returns how many completion channels a process creates at most.
func channels(t *testing.T) int {
	t.Helper()
	var l unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &l))
	return max(64, int(l.Cur/4))
}

// TestDeviceScale opens many connections in one process, uses all of them, and then lets all wait. It checks that
// they need only few threads and descriptors.
func TestDeviceScale(t *testing.T) {
	begin(t)
	connections := connections()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	now := leavesNothing(t)
	anchor := must(cm.NewID(cm.PSTCP))(t) // keeps the device open for the memory
	check(t, anchor.Bind(at(deviceIP, 0)))
	memory := must(anchor.AllocMsgs(4 * echoSize * connections))(t)
	fds, tasks := count(t, "fd"), count(t, "task")

	start := time.Now()
	servers, clients := open(t, ctx, connections, memory)
	t.Logf("%d connections in %v", connections, time.Since(start))
	var serving sync.WaitGroup
	ended := make(chan error, connections)
	for _, e := range servers {
		serving.Go(func() { ended <- e.serve(ctx) })
	}
	start = time.Now()
	asking := make(chan error, connections)
	for n, e := range clients {
		go func() { asking <- e.ask(ctx, fmt.Sprintf("message %d", n)) }()
	}
	for range clients {
		check(t, <-asking)
	}
	t.Logf("an echo on each in %v", time.Since(start))

	parked(t, connections)
	opened, started := count(t, "fd")-fds, count(t, "task")-tasks
	t.Logf("%d descriptors and %d threads more than before", opened, started)
	const queues = 4 // of a connection, each with a channel or none
	if opened > min(queues*connections, channels(t))+8 {
		t.Errorf("%d connections take %d descriptors", connections, opened)
	}
	if started > 16 {
		t.Errorf("%d connections take %d threads", connections, started)
	}
	idle(t)

	start = time.Now()
	for _, e := range clients {
		check(t, e.c.Close())
	}
	for range servers {
		check(t, <-ended)
	}
	serving.Wait()
	for _, e := range servers {
		check(t, e.c.Close())
	}
	t.Logf("closed in %v", time.Since(start))
	check(t, memory.Close())
	check(t, anchor.Close())
	now()
}

// open establishes the connections, several at a time.
func open(t *testing.T, ctx context.Context, connections int, memory *uverbs.MR) (servers, clients []*echo) {
	t.Helper()
	l := must(cm.Listen(deviceIP+":0", &cm.ListenOptions{Options: cm.Options{QP: tiny()}, ManualAccept: true}))(t)
	defer func() { check(t, l.Close()) }()
	accepted := make(chan *echo, connections)
	dialed := make(chan *echo, connections)
	errs := make(chan error, 2*connections)
	const atOnce = 8
	for part := range atOnce {
		go func() {
			for n := part; n < connections; n += atOnce {
				r, err := l.Request(ctx)
				if err != nil {
					errs <- err
					continue
				}
				e := &echo{mr: memory, off: 4 * echoSize * n}
				e.c, err = r.Accept(ctx, &cm.Options{QP: tiny(), Setup: func(c *cm.Conn) error {
					e.c = c
					return e.post()
				}})
				errs <- err
				accepted <- e
			}
		}()
		go func() {
			for n := part; n < connections; n += atOnce {
				c, err := cm.Dial(ctx, l.Addr().String(), &cm.Options{QP: tiny()})
				errs <- err
				dialed <- &echo{c, memory, 4*echoSize*n + 2*echoSize}
			}
		}()
	}
	for range 2 * connections {
		check(t, <-errs)
	}
	for range connections {
		servers, clients = append(servers, <-accepted), append(clients, <-dialed)
	}
	return servers, clients
}

// idle checks that a process whose goroutines all wait uses no CPU time.
func idle(t *testing.T) {
	t.Helper()
	const watched = 500 * time.Millisecond
	var before, after unix.Rusage
	check(t, unix.Getrusage(unix.RUSAGE_SELF, &before))
	<-time.After(watched)
	check(t, unix.Getrusage(unix.RUSAGE_SELF, &after))
	used := time.Duration(after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano())
	t.Logf("%v of processor in %v of waiting", used, watched)
	if used > watched/2 {
		t.Errorf("waiting takes %v of processor in %v", used, watched)
	}
}
