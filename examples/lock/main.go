// Lock runs a command while no other process in a cluster runs one under the same name, as flock does on one machine.
//
//	lock serve ADDR | lock run ADDR NAME COMMAND [ARG]...
//
// The command finds a number in LOCK_TOKEN that is larger than those of all holders before, so that what it writes to
// can refuse holders that have lost the lock. A lock is released when its holder's connection ends.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rdma"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(ctx, args[1])
	case len(args) >= 4 && args[0] == "run":
		return hold(ctx, args[1], args[2], func(ctx context.Context, token uint64) error {
			cmd := exec.CommandContext(ctx, args[3], args[4:]...)
			cmd.Env = append(os.Environ(), fmt.Sprint("LOCK_TOKEN=", token))
			cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, os.Stderr
			return cmd.Run()
		})
	}
	return errors.New("usage: lock serve ADDR | lock run ADDR NAME COMMAND [ARG]...")
}

// small are the options of connections with one short message at a time.
var small = rdma.Options{Depth: 1, EagerSize: 512}

// hold calls f while it holds a lock. The context of f ends when the lock is lost.
func hold(ctx context.Context, addr, name string, f func(ctx context.Context, token uint64) error) (err error) {
	c, err := rdma.Dial(ctx, addr, &small)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	m, err := c.Call(ctx, []byte(name)) // waits for the lock
	if err != nil {
		return err
	}
	token := binary.LittleEndian.Uint64(m.Copy())
	ctx, lost := context.WithCancelCause(ctx)
	defer lost(nil)
	go func() { // the server sends nothing
		_, err := c.Recv(ctx)
		lost(fmt.Errorf("the lock is lost: %w", err))
	}()
	return errors.Join(f(ctx, token), context.Cause(ctx))
}

// serve lets one client at a time have each lock, until ctx ends.
func serve(ctx context.Context, addr string) error {
	l, err := rdma.Listen(addr, &rdma.ListenOptions{Options: small})
	if err != nil {
		return err
	}
	log.Printf("serving locks at %v", l.Addr())
	t := table{locks: map[string]*lock{}}
	return l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
		held := "" // by this client
		defer func() { t.release(held) }()
		return c.Handle(ctx, func(ctx context.Context, r *rdma.Request) ([]byte, error) {
			name := string(r.Bytes())
			if name == "" || held != "" {
				return nil, &rdma.CallError{Code: rdma.CodeInvalidArgument, Text: "ask for one lock, by its name"}
			}
			token, err := t.acquire(ctx, name)
			if err == nil {
				held = name
			}
			return binary.LittleEndian.AppendUint64(nil, token), err
		}, &rdma.HandleOptions{MaxHandlers: 1})
	})
}

// A table has the locks that clients hold or wait for.
type table struct {
	mu    sync.Mutex
	locks map[string]*lock
	token uint64 // of the last holder
}

type lock struct {
	free  chan struct{} // has room for the holder
	users int           // clients that hold it or wait for it
}

// acquire waits for a lock until ctx ends: when the client cancels its call, or its connection ends.
func (t *table) acquire(ctx context.Context, name string) (token uint64, err error) {
	t.mu.Lock()
	k := t.locks[name]
	if k == nil {
		k = &lock{free: make(chan struct{}, 1)}
		t.locks[name] = k
	}
	k.users++
	t.mu.Unlock()
	select {
	case k.free <- struct{}{}:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.unuse(name, k)
		return 0, err
	}
	t.token++
	return t.token, nil
}

// release releases a lock, if name is not empty.
func (t *table) release(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k := t.locks[name]; k != nil {
		<-k.free
		t.unuse(name, k)
	}
}

func (t *table) unuse(name string, k *lock) {
	if k.users--; k.users == 0 {
		delete(t.locks, name)
	}
}
