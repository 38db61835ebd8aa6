package cm

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestRefusalBytes checks the private data of a rejection with a reason, which programs of other versions read.
func TestRefusalBytes(t *testing.T) {
	long := strings.Repeat("x", 3*maxRefusalText)
	for _, c := range []struct {
		err  error
		want string
	}{
		{ErrServerBusy, "gvRJ\x01\x01\x00\x00"},
		{ErrServerLimit, "gvRJ\x01\x02\x00\x00"},
		{ErrVersion, "gvRJ\x01\x03\x00\x00"},
		{ErrUnauthenticated, "gvRJ\x01\x04\x00\x00"},
		{ErrProtocol, "gvRJ\x01\x05\x00\x00"},
		{fmt.Errorf("%w: 3 of 3 connections", ErrServerLimit), "gvRJ\x01\x02\x12\x003 of 3 connections"},
		{withStep("set up", fmt.Errorf("%w: 7", ErrServerBusy)), "gvRJ\x01\x01\x01\x007"},
		{&Error{Op: "set up", Kind: ErrServerBusy, Detail: "ü\n"}, "gvRJ\x01\x01\x0b\x00set up: ???"},
		{fmt.Errorf("%w: %s", ErrServerBusy, long), "gvRJ\x01\x01\x64\x00" + long[:maxRefusalText]},
		{errors.New("another error"), ""},
		{ErrRejected, ""},
	} {
		got := refusalOf(c.err)
		if string(got) != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
		if len(got) > rejectLimits.ud {
			t.Errorf("%v: %d bytes: there is room for %d", c.err, len(got), rejectLimits.ud)
		}
	}
}

// TestRefusalOfOthers checks private data of peers that have sent no reason, one of a later version, or nonsense.
func TestRefusalOfOthers(t *testing.T) {
	for _, c := range []struct {
		data   string
		reason error
		text   string
	}{
		{"", nil, ""},
		{"gvRJ", nil, ""},
		{"gvRJ\x01\x01\x00", nil, ""},
		{"gvRX\x01\x01\x00\x00", nil, ""},
		{"gvRJ\x00\x01\x00\x00", nil, ""},
		{"gvRJ\x01\x00\x00\x00", nil, ""},
		{"gvRJ\x01\x06\x00\x00", nil, ""},
		{"gvRJ\x01\xff\x02\x00no", nil, ""},
		{"gvRJ\x01\x01\x00\x00", ErrServerBusy, ""},
		{"gvRJ\x02\x02\x01\x00abc", ErrServerLimit, "a"}, // b and c are what a later version adds
		{"gvRJ\x01\x02\xff\xffabc", ErrServerLimit, "abc"},
		{"gvRJ\x01\x02\x04\x00\x1b[1m", ErrServerLimit, "?[1m"},
		{"gvRJ\x01\x01\xff\x00" + strings.Repeat("y", 140), ErrServerBusy, strings.Repeat("y", maxRefusalText)},
	} {
		if reason, text := parseRefusal([]byte(c.data)); reason != c.reason || text != c.text {
			t.Errorf("%q: %v and %q, want %v and %q", c.data, reason, text, c.reason, c.text)
		}
	}
}

func FuzzRefusal(f *testing.F) {
	f.Add([]byte("gvRJ\x01\x01\x05\x00hello"))
	f.Add([]byte("gvRJ\x02\x02\xff\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		reason, text := parseRefusal(data)
		if len(text) > maxRefusalText || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("the text is %q", text)
		}
		if reason == nil {
			return
		}
		again := refusalOf(fmt.Errorf("%w: %s", reason, text))
		if back, same := parseRefusal(again); back != reason || same != text {
			t.Errorf("%v and %q come back as %v and %q", reason, text, back, same)
		}
	})
}

// TestRefusedWithReason checks that the error of a client matches the reason that Prepare or Setup of a listener
// returns, and has its numbers.
func TestRefusedWithReason(t *testing.T) {
	newRig(t)
	for name, reason := range map[string]error{"busy": ErrServerBusy, "limit": ErrServerLimit, "version": ErrVersion,
		"no proof": ErrUnauthenticated, "protocol": ErrProtocol} {
		fails := fmt.Errorf("the program refuses: %w: 64 of 64 MiB", reason)
		for step, o := range map[string]*Options{
			"Setup":   {Setup: func(*Conn) error { return fails }},
			"Prepare": {Prepare: func(*Conn, *uverbs.QPConfig) error { return fails }},
		} {
			t.Run(name+" in "+step, func(t *testing.T) {
				l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{Options: *o}))(t))
				done := dialing(t, l)
				is(t, "Accept", second(l.Accept(limit(t))), fails)
				err := (<-done).err
				is(t, "Dial", err, ErrRejected, reason, unix.ECONNREFUSED)
				var e *Error
				if !errors.As(err, &e) || e.Reason != RejectConsumer ||
					!bytes.HasPrefix(e.PrivateData, refusalOf(fails)) {
					t.Errorf("%#v", e)
				}
				for _, part := range []string{kindText(reason), "64 of 64 MiB"} {
					if strings.Count(err.Error(), part) != 1 {
						t.Errorf("%q: %q is to be in it once", err, part)
					}
				}
			})
		}
	}
}

// TestRefusedByRequest checks that a program that inspects requests refuses with a reason too, and that a peer that has
// gone does not make this an error.
func TestRefusedByRequest(t *testing.T) {
	r := newRig(t)
	l := closing(t, good(Listen("192.0.2.1:0", manual))(t))
	full := &Options{Setup: func(*Conn) error { return ErrServerLimit }}
	done := dialing(t, l)
	is(t, "Accept", second(good(l.Request(limit(t)))(t).Accept(limit(t), full)), ErrServerLimit)
	is(t, "Dial", (<-done).err, ErrRejected, ErrServerLimit)
	done = dialing(t, l)
	q := good(l.Request(limit(t)))(t)
	r.Set(func() { r.Refuse["REJECT"] = unix.EINVAL })
	err := second(q.Accept(limit(t), full))
	is(t, "Accept without a peer", err, ErrServerLimit)
	if errors.Is(err, unix.EINVAL) {
		t.Errorf("the error has that of the rejection: %v", err)
	}
	r.Set(func() { r.Refuse["REJECT"] = unix.ENOMEM })
	<-done
	done = dialing(t, l)
	is(t, "Accept that cannot reject", second(good(l.Request(limit(t)))(t).Accept(limit(t), full)), ErrServerLimit,
		unix.ENOMEM)
	r.Set(func() { clear(r.Refuse) })
	<-done
}
