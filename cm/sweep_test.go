package cm

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/rdmacmtest"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A flow runs the steps of a program from start to end. It must close all objects that it has created.
type flow func(context.Context, testing.TB) error

// flows are the functions of the highest level.
var flows = map[string]flow{
	"connection": func(ctx context.Context, t testing.TB) error {
		l, err := Listen("192.0.2.1:0", nil)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		accepted := make(chan error, 1)
		go func() {
			c, err := l.Accept(ctx)
			if err == nil {
				err = closeTwice(c)
			}
			accepted <- err
		}()
		c, err := Dial(ctx, l.Addr().String(), &Options{TOS: 8, LocalAddr: at(here, 0)})
		if err != nil {
			cancel()
			return errors.Join(err, otherSideError(<-accepted), closeTwice(l))
		}
		if err = <-accepted; err == nil { // the other side has closed its end
			<-c.Disconnected()
			err = c.Shutdown(ctx)
		}
		return errors.Join(otherSideError(err), closeTwice(c), closeTwice(l))
	},
	"group": func(ctx context.Context, t testing.TB) error {
		g, err := JoinMulticast(ctx, "239.1.1.1", &Options{LocalAddr: at(here, 0)})
		if err != nil {
			return err
		}
		return errors.Join(g.PostSend(1, 0, uverbs.SGE{}), closeTwice(g))
	},
	"endpoints": func(ctx context.Context, t testing.TB) error {
		l, err := CreateEP(ctx, &AddrInfo{Flags: Passive, Src: at(here, 5)}, nil, &small)
		if err != nil {
			return err
		}
		if err := l.Listen(0); err != nil {
			return errors.Join(err, closeTwice(l))
		}
		a, err := CreateEP(ctx, &AddrInfo{Dst: at(here, 5), Connect: []byte("first ")}, nil, &small)
		if err != nil {
			return errors.Join(err, closeTwice(l))
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		accepted := make(chan error, 1)
		go func() {
			p, err := l.GetRequest(ctx)
			if err == nil {
				err = errors.Join(p.Accept(ctx, nil), closeTwice(p))
			}
			accepted <- err
		}()
		err = a.Connect(ctx, nil)
		cancel()
		return errors.Join(err, otherSideError(<-accepted), closeTwice(a), closeTwice(l))
	},
	"moves": func(ctx context.Context, t testing.TB) error {
		ch, err := NewEventChannel()
		if err != nil {
			return err
		}
		s, err := NewID(PSTCP)
		if err != nil {
			return errors.Join(err, closeTwice(ch))
		}
		err = s.Migrate(ch)
		if err == nil {
			err = s.ID.ResolveAddr(netip.AddrPort{}, at(here, 5), 0)
		}
		if err == nil {
			var e *Event
			if e, err = ch.Next(ctx); err == nil {
				err = e.Err()
			}
		}
		if err == nil {
			_, err = s.ID.Sync()
		}
		return errors.Join(err, closeTwice(s), closeTwice(ch))
	},
}

// closeTwice closes c, and again if that fails: objects that cannot be closed stay open.
func closeTwice(c interface{ Close() error }) error {
	err := c.Close()
	if err != nil {
		err = errors.Join(err, c.Close())
	}
	return err
}

// otherSideError returns the error of the other side, which ends with this side.
func otherSideError(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, ErrDisconnected) {
		return nil
	}
	return err
}

// checkTyped reports an error that a program cannot identify.
func checkTyped(t testing.TB, what string, err error, also ...error) {
	t.Helper()
	var own *Error
	var verbs *uverbs.Error
	if err == nil || errors.As(err, &own) || errors.As(err, &verbs) ||
		slices.ContainsFunc(also, func(e error) bool { return errors.Is(err, e) }) {
		checkFields(t, what, err)
		return
	}
	t.Errorf("%s: %v is of no type that cm has", what, err)
}

// A lenient test ignores objects that remain after an injected failure to destroy them:
// the kernel destroys them with the file.
type lenient struct{ testing.TB }

func (l lenient) Errorf(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !strings.HasPrefix(text, "left in the kernel") {
		l.TB.Error(text)
	}
}

func (l lenient) Error(args ...any) {
	for _, line := range strings.Split(fmt.Sprint(args...), "\n") {
		if !strings.Contains(line, "file closed with id") {
			l.TB.Error(line)
		}
	}
}

// countCommands returns how many commands of each kernel a flow issues.
func countCommands(t *testing.T, run flow) (cm, verbs int) {
	t.Run("steps", func(t *testing.T) {
		r := newRig(t)
		check(t, run(limit(t), t))
		cm = len(r.Log())
		for _, l := range r.loops {
			verbs = max(verbs, len(l.k.Log()))
		}
	})
	if cm < 5 || cm > 200 {
		t.Fatalf("%d commands", cm)
	}
	return cm, verbs
}

// TestCommandsFail makes each command of the connection manager fail once, and checks that the flow returns an error of
// this package or succeeds anyway, and leaves no objects.
func TestCommandsFail(t *testing.T) {
	shorten(t, &reasonTime, time.Millisecond) // no event follows an injected failure
	for name, run := range flows {
		n, _ := countCommands(t, run)
		for _, errno := range []unix.Errno{unix.ENOMEM, unix.EINVAL, unix.EIO} {
			for at := 1; at <= n+1; at++ {
				t.Run(fmt.Sprintf("%s/%v/%d", name, unix.ErrnoName(errno), at), func(t *testing.T) {
					k := rdmacmtest.New(lenient{t})
					rigOn(t, k)
					k.FailAt, k.FailWith = at, errno
					err := run(limit(t), t)
					checkTyped(t, name, err)
					if err == nil && at <= n && !canIgnore(k.Log(), at) {
						t.Errorf("%v of %s at %d is not told", errno, k.Log()[at-1], at)
					}
				})
			}
		}
	}
}

// canIgnore reports whether a failure may be ignored because it only affects an object
// that is being closed.
func canIgnore(log []string, at int) bool {
	return at > len(log) || log[at-1] == "DESTROY_ID" || log[at-1] == "DISCONNECT" || log[at-1] == "ACCEPT"
}

// TestVerbsFail makes each command of the verbs fail once.
func TestVerbsFail(t *testing.T) {
	for name, run := range flows {
		_, n := countCommands(t, run)
		for at := 1; at <= n; at++ {
			t.Run(fmt.Sprintf("%s/%d", name, at), func(t *testing.T) {
				r := newRig(t)
				r.prepare = func(l *loop) { l.k.FailAt, l.k.FailWith = at, unix.ENOMEM }
				r.lenient = true
				checkTyped(t, name, run(limit(t), t))
			})
		}
	}
}

// TestContextEnds ends the context before each command.
func TestContextEnds(t *testing.T) {
	for name, run := range flows {
		n, _ := countCommands(t, run)
		for at := range n {
			t.Run(fmt.Sprintf("%s/%d", name, at), func(t *testing.T) {
				r := newRig(t)
				ctx, cancel := context.WithCancel(limit(t))
				defer cancel()
				count := 0
				r.Before = func(string) {
					r.Set(func() {
						if count++; count == at+1 {
							cancel()
						}
					})
				}
				checkTyped(t, name, run(ctx, t), context.Canceled)
			})
		}
	}
}
