//go:build device

package limits

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// A creation creates one kind of object.
type creation struct {
	name string
	make func(context.Context, *base) (io.Closer, error)
	fds  bool // whether it takes descriptors
}

// A base has the objects that creations need.
type base struct {
	dev  *uverbs.Context
	pd   *uverbs.PD
	cq   *uverbs.CQ
	mr   *uverbs.MR
	gid  *uverbs.GIDEntry
	self netip.Addr
	peer string // address of a listener in another process
}

func newBase(t *testing.T) *base {
	t.Helper()
	b := &base{self: address(t), peer: startListener(t), dev: open(t)}
	b.pd = must(b.dev.AllocPD())(t)
	// A CQ without a channel: the Context's channel is created with the first CQ that needs it.
	b.cq = must(b.dev.CreateCQ(uverbs.CQConfig{Entries: 16, NoEvents: true}))(t)
	b.mr = must(b.pd.Alloc(4096, uverbs.LocalWrite))(t)
	b.gid = must(b.dev.SelectGID(0, b.self))(t)
	return b
}

// made returns a nil interface for a nil pointer.
func made[T io.Closer](v T, err error) (io.Closer, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

func rc(b *base) uverbs.QPConfig {
	return uverbs.QPConfig{Type: uverbs.RC, SendCQ: b.cq, MaxSendWR: 4, MaxRecvWR: 4}
}

var creations = []creation{
	{"open", func(_ context.Context, b *base) (io.Closer, error) { return made(uverbs.Open(b.dev.Name())) }, true},
	{"PD", func(_ context.Context, b *base) (io.Closer, error) { return made(b.dev.AllocPD()) }, false},
	{"channel", func(_ context.Context, b *base) (io.Closer, error) { return made(b.dev.CreateCompChannel()) }, true},
	{"CQ", func(_ context.Context, b *base) (io.Closer, error) {
		return made(b.dev.CreateCQ(uverbs.CQConfig{Entries: 4}))
	}, true},
	{"CQ without events", func(_ context.Context, b *base) (io.Closer, error) {
		return made(b.dev.CreateCQ(uverbs.CQConfig{Entries: 4, NoEvents: true}))
	}, false},
	{"allocated MR", func(_ context.Context, b *base) (io.Closer,
		error) {
		return made(b.pd.Alloc(8192, uverbs.LocalWrite))
	}, false},
	{"registered MR", func(_ context.Context, b *base) (io.Closer, error) {
		return made(b.pd.RegMR(make([]byte, 8192), uverbs.LocalWrite))
	}, false},
	{"QP", func(_ context.Context, b *base) (io.Closer, error) { return made(b.pd.CreateQP(rc(b))) }, false},
	{"SRQ", func(_ context.Context, b *base) (io.Closer, error) {
		return made(b.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 4}))
	}, false},
	{"AH", func(_ context.Context, b *base) (io.Closer, error) {
		return made(b.pd.CreateAH(uverbs.AHAttr{IsGlobal: true, DGID: b.gid.GID, HopLimit: 1, Port: uint8(b.gid.Port),
			SGIDIndex: uint8(b.gid.Index)}))
	}, false},
	{"event channel", func(context.Context, *base) (io.Closer, error) { return made(cm.NewEventChannel()) }, true},
	{"id", func(context.Context, *base) (io.Closer, error) { return made(cm.NewID(cm.PSTCP)) }, true},
	{"listener", func(_ context.Context, b *base) (io.Closer, error) {
		return made(cm.Listen(netip.AddrPortFrom(b.self, 0).String(), nil))
	}, true},
	{"dial", func(ctx context.Context, b *base) (io.Closer, error) { return made(cm.Dial(ctx, b.peer, nil)) }, true},
	{"group", func(ctx context.Context, b *base) (io.Closer, error) {
		return made(cm.JoinMulticast(ctx, "239.1.2.3", &cm.Options{LocalAddr: netip.AddrPortFrom(b.self, 0)}))
	}, true},
}

// typed returns the advice of the first of the library's errors in err's chain that has one.
func typed(err error) (detail string, ok bool) {
	for ; err != nil; err = errors.Unwrap(err) {
		switch e := err.(type) {
		case *uverbs.Error:
			detail, ok = e.Detail, true
		case *cm.Error:
			detail, ok = e.Detail, true
		case interface{ Unwrap() []error }:
			for _, one := range e.Unwrap() {
				if detail, ok = typed(one); detail != "" {
					break
				}
			}
			return detail, ok
		}
		if detail != "" {
			break
		}
	}
	return detail, ok
}

// TestDeviceDescriptors runs out of descriptors at each step of each creation. The
// creation must report it, leak nothing, and succeed when there are enough.
func TestDeviceDescriptors(t *testing.T) {
	for _, c := range creations {
		t.Run(c.name, func(t *testing.T) {
			b := newBase(t)
			before := holds(t)
			refused := 0
			for extra := 0; ; extra++ {
				const most = 32
				if extra == most {
					t.Fatalf("still refused with %d descriptors", most)
				}
				v, err := withDescriptors(t, extra, func() (io.Closer, error) { return c.make(limited(t), b) })
				if err == nil {
					check(t, v.Close())
					break
				}
				refused++
				isTyped(t, fmt.Sprintf("with %d descriptors", extra), err, unix.EMFILE, typed)
				sameAs(t, "a refusal", before)
			}
			if c.fds != (refused > 0) {
				t.Errorf("refused %d times", refused)
			}
			t.Logf("refused %d times", refused)
			// The Context's channel stays after it was created.
			if v, err := c.make(limited(t), b); err != nil {
				t.Errorf("without a limit: %v", err)
			} else {
				check(t, v.Close())
			}
		})
	}
}

// withDescriptors calls f with a limit that leaves extra descriptors.
func withDescriptors(t *testing.T, extra int, f func() (io.Closer, error)) (io.Closer, error) {
	t.Helper()
	var old unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	lowest := must(unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0))(t)
	check(t, unix.Close(lowest))
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(lowest + extra), Max: old.Max}))
	v, err := f()
	check(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
	return v, err
}

// TestDeviceAsUserMemlock exhausts RLIMIT_MEMLOCK. Registering more memory must report
// that, and everything else must still work.
func TestDeviceAsUserMemlock(t *testing.T) {
	var limit unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit))
	if os.Getuid() == 0 || limit.Cur > 1<<20 {
		t.Fatal("needs an ordinary user with a small RLIMIT_MEMLOCK")
	}
	b := newBase(t)
	var all []*uverbs.MR
	for {
		mr, err := b.pd.Alloc(4096, uverbs.LocalWrite)
		if err != nil {
			isTyped(t, "one page more", err, uverbs.ErrMemlock, typed)
			break
		}
		if all = append(all, mr); len(all)*4096 > 1<<20 {
			t.Fatal("the limit is not enforced")
		}
	}
	for _, c := range creations {
		t.Run(c.name, func(t *testing.T) {
			before := holds(t)
			v, err := c.make(limited(t), b)
			if pins := strings.HasSuffix(c.name, "MR"); pins {
				isTyped(t, c.name, err, uverbs.ErrMemlock, typed)
				sameAs(t, "a refusal", before)
				return
			}
			check(t, err)
			check(t, v.Close())
		})
	}
	check(t, all[0].Close())
	again, err := b.pd.Alloc(4096, uverbs.LocalWrite)
	check(t, err)
	check(t, again.Close())
	for _, mr := range all {
		check(t, mr.Close())
	}
	t.Logf("%d pages fitted", len(all))
}

const envListen = "GOVERBS_TEST_LISTEN"

// startListener starts a process that accepts connections, and returns its address.
func startListener(t *testing.T) string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestDeviceListener$")
	cmd.Env = append(os.Environ(), envListen+"=1")
	in := must(cmd.StdinPipe())(t)
	out := must(cmd.StdoutPipe())(t)
	cmd.Stderr = os.Stderr
	check(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	t.Cleanup(func() {
		check(t, in.Close())
		check(t, cmd.Wait())
	})
	check(t, err)
	return strings.TrimSpace(line)
}

// TestDeviceListener runs as a child of startListener. It ends at the end of its input.
func TestDeviceListener(t *testing.T) {
	if os.Getenv(envListen) == "" {
		return
	}
	l := must(cm.Listen(netip.AddrPortFrom(address(t), 0).String(), nil))(t)
	fmt.Println(l.Addr())
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		for ctx.Err() == nil {
			// An error concerns one connection, whose client has ended.
			if c, err := l.Accept(ctx); err == nil {
				<-c.Disconnected()
				check(t, c.Close())
			}
		}
	}()
	_, err := io.Copy(io.Discard, os.Stdin)
	cancel()
	<-served
	check(t, errors.Join(err, l.Close()))
}
