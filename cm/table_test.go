package cm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A table collects errors by name, and compares their texts and the errors that they match with a golden file.
type table struct {
	t    testing.TB
	rows map[string]error
}

func newTable(t testing.TB) *table { return &table{t, map[string]error{}} }

func (b *table) add(name string, err error) {
	b.t.Helper()
	if _, there := b.rows[name]; there {
		b.t.Errorf("two rows are named %q", name)
	}
	b.rows[name] = err
}

// sentinels are the errors that callers compare with.
var sentinels = []struct {
	name string
	err  error
}{
	{"ErrRejected", ErrRejected}, {"ErrUnreachable", ErrUnreachable}, {"ErrTimeout", ErrTimeout},
	{"ErrDisconnected", ErrDisconnected}, {"ErrServerBusy", ErrServerBusy}, {"ErrServerLimit", ErrServerLimit},
	{"ErrPrivateData", ErrPrivateData}, {"ErrNoQP", ErrNoQP}, {"ErrSharedCQ", ErrSharedCQ},
	{"ErrCredentials", ErrCredentials},
	{"uverbs.ErrClosed", uverbs.ErrClosed}, {"uverbs.ErrBusy", uverbs.ErrBusy}, {"uverbs.ErrInvalid", uverbs.ErrInvalid},
	{"uverbs.ErrNotSupported", uverbs.ErrNotSupported}, {"uverbs.ErrNoDevice", uverbs.ErrNoDevice},
	{"uverbs.ErrDeviceGone", uverbs.ErrDeviceGone},
	{"uverbs.ErrState", uverbs.ErrState}, {"uverbs.ErrABI", uverbs.ErrABI}, {"uverbs.ErrNoNode", uverbs.ErrNoNode},
	{"os.ErrPermission", os.ErrPermission}, {"os.ErrClosed", os.ErrClosed},
	{"net.ErrClosed", net.ErrClosed}, {"os.ErrDeadlineExceeded", os.ErrDeadlineExceeded},
	{"os.ErrNotExist", fs.ErrNotExist},
	{"context.Canceled", context.Canceled}, {"context.DeadlineExceeded", context.DeadlineExceeded},
}

// matchedNames returns the names of the errors that err matches.
func matchedNames(err error) string {
	var all []string
	for _, s := range sentinels {
		if errors.Is(err, s.err) {
			all = append(all, s.name)
		}
	}
	for n := unix.Errno(1); n < 134; n++ {
		if name := unix.ErrnoName(n); name != "" && errors.Is(err, n) {
			all = append(all, name)
		}
	}
	return strings.Join(all, ", ")
}

// checkFields reports an *Error that does not match its own fields.
func checkFields(t testing.TB, name string, err error) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		return
	}
	if e.Kind != nil && !errors.Is(err, e.Kind) || e.Errno != 0 && !errors.Is(err, e.Errno) {
		t.Errorf("%s: %+v does not match its kind or its errno", name, e)
	}
	if e.Errno != 0 && e.Timeout() != errors.Is(err, unix.ETIMEDOUT) {
		t.Errorf("%s: timeout %v, but %v", name, e.Timeout(), err)
	}
}

func (b *table) golden(name string) {
	b.t.Helper()
	var out strings.Builder
	names := make([]string, 0, len(b.rows))
	for n := range b.rows {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		err := b.rows[n]
		if err == nil {
			fmt.Fprintf(&out, "%s\n\t(no error)\n", n)
			continue
		}
		checkFields(b.t, n, err)
		fmt.Fprintf(&out, "%s\n\t%s\n\tis %s\n", n, strings.ReplaceAll(err.Error(), "\n", "\n\t"), matchedNames(err))
	}
	ioctltest.Golden(b.t, name, out.String())
}

// statusesOf returns the statuses of a type of event, and a few more.
func statusesOf(typ EventType) []int {
	switch {
	case typ == EventRejected:
		return []int{0, 1, 4, 8, 10, 28, 35, 99}
	case typ == EventUnreachable:
		return []int{0, 1, 2, 3, 4, -int(unix.ETIMEDOUT), -int(unix.EHOSTUNREACH), -int(unix.EINVAL)}
	case eventOps[typ] != "":
		return []int{0, 4095, -int(unix.ETIMEDOUT), -int(unix.ENETUNREACH), -int(unix.EHOSTUNREACH), -int(unix.ENODEV),
			-int(unix.EINVAL)}
	}
	return []int{0, 1, -int(unix.ETIMEDOUT)}
}

// TestGoldenEvents checks Event.Err for every type and every status with a meaning.
func TestGoldenEvents(t *testing.T) {
	b := newTable(t)
	for typ := range EventType(21) {
		for _, status := range statusesOf(typ) {
			e := &Event{Type: typ, Status: status, subject: subject{name: "192.0.2.1:7471"}, PrivateData: []byte("why")}
			err := e.Err()
			b.add(fmt.Sprintf("%02d %s %4d", typ, strings.TrimPrefix(typ.String(), "RDMA_CM_EVENT_"), status), err)
			var own *Error
			if errors.As(err, &own) && errors.Is(err, ErrRejected) && string(own.PrivateData) != "why" {
				t.Errorf("%v is without its private data", err)
			}
		}
	}
	b.golden("events")
}

// TestGoldenSentinels checks the sentinels themselves, and the names of ids.
func TestGoldenSentinels(t *testing.T) {
	b := newTable(t)
	for _, s := range sentinels[:10] {
		b.add(s.name, s.err)
	}
	b.add("Kind alone", &Error{Op: "connect", Kind: ErrTimeout})
	b.add("errno without a name", &Error{Op: "connect", Object: "id", Errno: 4095})
	b.add("errno without a kind", wrap("connect", "id", unix.ENXIO, ""))
	b.add("no errno", wrap("connect", "id", errors.New("something else"), ""))
	b.golden("sentinels")
	if wrap("x", "", nil, "") != nil {
		t.Error("no error is one")
	}
	own := invalid("a", "b", "c")
	if err := wrap("x", "", own, ""); err != own {
		t.Errorf("%v is wrapped twice: %v", own, err)
	}
	for want, got := range map[string]string{"IPoIB": PSIPoIB.String(), "TCP": PSTCP.String(), "UDP": PSUDP.String(),
		"IB": PSIB.String(), "port space 7": PortSpace(7).String(), "reason 99": RejectReason(99).String(),
		"TCP 192.0.2.1:5":     AddrInfo{PortSpace: PSTCP, Dst: at(here, 5)}.String(),
		"UDP [2001:db8::1]:5": AddrInfo{Flags: Passive, PortSpace: PSUDP, Src: at(here6, 5)}.String()} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestKinds checks that kindOf returns the ErrX that matches the errno, for each errno that has one.
func TestKinds(t *testing.T) {
	for n := unix.Errno(1); n < 134; n++ {
		kind := kindOf(n)
		err := &Error{Op: "x", Errno: n, Kind: ErrUnreachable}
		if kind != nil && !errors.Is(err, kind) {
			t.Errorf("%v does not match %v", n, kind)
		}
	}
}
