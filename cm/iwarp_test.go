package cm

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestIWARPConnect checks the errors of Connect on iWARP, where the command connects by TCP.
func TestIWARPConnect(t *testing.T) {
	r := newRig(t)
	r.rnic = true
	for errno, reason := range map[unix.Errno]RejectReason{unix.ECONNREFUSED: RejectInvalidServiceID,
		unix.ECONNRESET: RejectConsumer, unix.EPIPE: RejectConsumer} {
		r.Set(func() { r.Refuse["CONNECT"] = errno })
		_, err := Dial(limit(t), "192.0.2.1:7471", nil)
		var own *Error
		if !errors.Is(err, ErrRejected) || !errors.As(err, &own) || own.Reason != reason {
			t.Errorf("%v: %v", errno, err)
		}
	}
	r.Set(func() { r.Refuse["CONNECT"] = unix.ENETUNREACH })
	if _, err := Dial(limit(t), "192.0.2.1:7471", nil); errors.Is(err, ErrRejected) || !errors.Is(err, unix.ENETUNREACH) {
		t.Errorf("no route: %v", err)
	}
	r.Set(func() { clear(r.Refuse) })
}

// TestIWARPConnectEnds ends Connect while its command waits for the peer, by its context and by Close.
func TestIWARPConnectEnds(t *testing.T) {
	r := newRig(t)
	r.rnic = true
	l := closing(t, good(Listen("192.0.2.1:0", nil))(t))
	errCut := errors.New("cut")
	for _, byClose := range []bool{false, true} {
		s := good(NewID(PSTCP))(t)
		check(t, s.ResolveAddr(limit(t), netip.AddrPort{}, l.Addr(), 0))
		check(t, s.ResolveRoute(limit(t), 0))
		check(t, s.CreateQP(nil, uverbs.QPConfig{MaxSendWR: 1, MaxRecvWR: 1}))
		waits := make(chan struct{})
		r.Set(func() {
			r.Before = func(name string) {
				if name == "CONNECT" {
					close(waits)
					until(t, "the end of the command", s.connecting.Ended)
				}
			}
		})
		ctx, cut := context.WithCancelCause(limit(t))
		result := make(chan error, 1)
		go func() { result <- s.Connect(ctx, nil) }()
		<-waits
		if byClose {
			check(t, s.Close())
			is(t, "Connect", <-result, uverbs.ErrClosed)
		} else {
			cut(errCut)
			is(t, "Connect", <-result, errCut)
			is(t, "Connect after its context", s.Connect(limit(t), nil), uverbs.ErrInvalid)
			check(t, s.Close())
		}
		r.Set(func() { r.Before = nil })
		cut(nil)
	}
}

// TestIWARPExternalQP checks that the id must have a QP, and that private data has its own limit.
func TestIWARPExternalQP(t *testing.T) {
	newRig(t).rnic = true
	ctx := limit(t)
	l := closing(t, good(Listen("192.0.2.1:0", nil))(t))
	s := closing(t, good(NewID(PSTCP))(t))
	check(t, s.ResolveAddr(ctx, netip.AddrPort{}, l.Addr(), 0))
	check(t, s.ResolveRoute(ctx, 0))
	is(t, "Connect", s.ID.Connect(&ConnParam{QPN: 7}), uverbs.ErrNotSupported)
	check(t, s.CreateQP(nil, uverbs.QPConfig{MaxSendWR: 1, MaxRecvWR: 1}))
	err := s.ID.Connect(&ConnParam{PrivateData: make([]byte, maxRNICData+1)})
	is(t, "Connect", err, ErrPrivateData)
	if !strings.Contains(err.Error(), "room for 251") {
		t.Errorf("the error does not say the limit of iWARP: %v", err)
	}
}

// TestIWARPServerFirst checks the error of a client whose kernel got data after the reply of the server's.
func TestIWARPServerFirst(t *testing.T) {
	for rnic, want := range map[bool]string{true: "before the client", false: "invalid argument"} {
		e := &Event{Type: EventConnectError, Status: -int(unix.EINVAL), subject: subject{name: "192.0.2.1:7471", rnic: rnic}}
		if err := e.Err(); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), want) {
			t.Errorf("rnic %v: %v", rnic, err)
		}
	}
}
