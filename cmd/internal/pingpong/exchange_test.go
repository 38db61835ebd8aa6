package pingpong

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/goverbs/goverbs/uverbs"
)

var (
	one = Address{LID: 0x1a, QPN: 0x11, PSN: 0xfa6d3d, GID: uverbs.GID{10: 0xff, 11: 0xff, 12: 10, 13: 9, 14: 0, 15: 1}}
	two = Address{QPN: 0xffffff}
)

// These are the texts that ibv_rc_pingpong of rdma-core 56.1 sends.
const (
	oneText = "001a:000011:fa6d3d:00000000000000000000ffff0a090001\x00"
	twoText = "0000:ffffff:000000:00000000000000000000000000000000\x00"
	// ibv_srq_pingpong sends this when it has no more queue pairs.
	noneText = "0000:000000:000000:00000000000000000000000000000000\x00"
)

func TestRecord(t *testing.T) {
	for _, c := range []struct {
		a    Address
		text string
	}{{one, oneText}, {two, twoText}, {Address{}, noneText}} {
		if len(c.text) != 52 || recordSize != 52 {
			t.Fatalf("a record has 52 bytes, not %d or %d", len(c.text), recordSize)
		}
		if got := string(c.a.record()); got != c.text {
			t.Errorf("record %q, want %q", got, c.text)
		}
		got, err := parseRecord([]byte(c.text))
		if err != nil || got != c.a {
			t.Errorf("parsed %q as %v, %v", c.text, got, err)
		}
	}
	const want = "LID 0x001a, QPN 0x000011, PSN 0xfa6d3d, GID ::ffff:10.9.0.1"
	if got := one.String(); got != want {
		t.Errorf("printed as %s, want %s", got, want)
	}
}

func TestParseRecordErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "closing NUL"},
		{oneText[:51], "closing NUL"},
		{oneText[:51] + "0", "closing NUL"},
		{oneText + "\x00", "closing NUL"},
		{strings.Replace(oneText, ":", ";", 1), "form"},
		{"00:1a000011:fa6d3d:00000000000000000000ffff0a090001\x00", "form"},
		{"-01a" + oneText[4:], "LID"},
		{"001a:0x0011" + oneText[11:], "queue pair number"},
		{"001a:000011:fa 6d3" + oneText[18:], "PSN"},
		{oneText[:50] + "g\x00", "GID"},
	} {
		_, err := parseRecord([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), "has no "+c.want) {
			t.Errorf("%q: error %v, want one about the %s", c.text, err, c.want)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(oneText))
	f.Add([]byte(twoText))
	f.Add([]byte(strings.ToUpper(oneText)))
	f.Add([]byte(oneText[:20]))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := parseRecord(b)
		if err != nil {
			if a != (Address{}) {
				t.Errorf("%q: an error and %v", b, a)
			}
			return
		}
		if got := string(a.record()); got != strings.ToLower(string(b)) {
			t.Errorf("%q was parsed and written as %q", b, got)
		}
	})
}

// writes is a connection that records each write separately.
type writes struct {
	io.Reader
	all []string
}

func (w *writes) Write(b []byte) (int, error) {
	w.all = append(w.all, string(b))
	return len(b), nil
}

func TestAskWritesAtOnce(t *testing.T) {
	for _, c := range []struct {
		local, remote []Address
		sent, reply   string
	}{
		{[]Address{one}, []Address{two}, oneText, twoText},
		{[]Address{one, two, {}}, []Address{two, one, {}}, oneText + twoText + noneText, twoText + oneText + noneText},
	} {
		conn := &writes{Reader: strings.NewReader(c.reply)}
		remote, err := exchangeClient(conn, c.local)
		if err != nil || !slices.Equal(remote, c.remote) {
			t.Errorf("got %v, %v", remote, err)
		}
		if len(conn.all) != 2 || conn.all[0] != c.sent || conn.all[1] != "done\x00" {
			t.Errorf("wrote %q", conn.all)
		}
	}
}

func TestAnswerConnectsFirst(t *testing.T) {
	conn := &writes{Reader: strings.NewReader(oneText + noneText + done)}
	remote, err := exchangeServer(conn, []Address{two, {}}, func(a []Address) error {
		if !slices.Equal(a, []Address{one, {}}) || len(conn.all) != 0 {
			t.Errorf("connecting to %v after %q", a, conn.all)
		}
		return nil
	})
	if err != nil || !slices.Equal(remote, []Address{one, {}}) {
		t.Errorf("got %v, %v", remote, err)
	}
	if len(conn.all) != 1 || conn.all[0] != twoText+noneText {
		t.Errorf("wrote %q", conn.all)
	}
}

func TestExchangeErrors(t *testing.T) {
	fine := func([]Address) error { return nil }
	refused := errors.New("no route")
	local := []Address{two}
	for _, c := range []struct {
		name, sent string
		connect    func([]Address) error
		want       error
	}{
		{"nothing", "", fine, io.EOF},
		{"cut short", oneText[:30], fine, io.ErrUnexpectedEOF},
		{"no acknowledgement", oneText, fine, io.EOF},
		{"not connected", oneText, func([]Address) error { return refused }, refused},
	} {
		_, err := exchangeServer(&writes{Reader: strings.NewReader(c.sent)}, local, c.connect)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.want)
		}
	}
	if _, err := exchangeServer(&writes{Reader: strings.NewReader(oneText + "nope\x00")}, local, fine); err == nil {
		t.Error("a wrong acknowledgement was accepted")
	}
	if _, err := exchangeClient(&writes{Reader: strings.NewReader(oneText)},
		[]Address{one, two}); !errors.Is(err, io.EOF) {
		t.Errorf("one address of two: error %v", err)
	}
}

// TestExchangeEnds checks that an exchange with a peer that does not reply ends when the context is canceled or the
// timeout expires.
func TestExchangeEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(context.CancelFunc)
		want error
	}{
		"cancelled": {func(cancel context.CancelFunc) { cancel() }, context.Canceled},
		"silence":   {func(context.CancelFunc) {}, errIdle},
	} {
		for _, server := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/server=%t", name, server), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					ours, theirs := net.Pipe()
					defer theirs.Close()
					done := make(chan error)
					go func() {
						_, err := exchange(ctx, ours, server, []Address{one}, nil)
						done <- err
					}()
					synctest.Wait()
					c.end(cancel)
					if err := <-done; !errors.Is(err, c.want) {
						t.Errorf("error %v", err)
					}
				})
			})
		}
	}
}

// TestConnectCounts checks that both ends must have the same number of queue pairs.
func TestConnectCounts(t *testing.T) {
	s := &session{opt: Defaults("test", 1), game: &game{Queues: &Queues{QPs: make([]*uverbs.QP, 2)}}}
	for _, c := range []struct {
		remote []Address
		want   string
	}{
		{[]Address{one, {}, {}}, "the peer has 1 queue pairs, not 2: use the same -q at both ends"},
		{[]Address{one, two, one, {}}, "the peer has 3 queue pairs, not 2"},
		{[]Address{one, two, two}, "the peer has 3 queue pairs, not 2"},
	} {
		if err := s.connect(c.remote); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

func TestListenAndDial(t *testing.T) {
	opt := Defaults("test", 1)
	opt.TCPPort = 0
	l, err := listen(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		conn net.Conn
		err  error
	}
	accepted := make(chan result)
	go func() {
		conn, err := dialOrAccept(t.Context(), opt, l)
		accepted <- result{conn, err}
	}()
	client := Defaults("test", 1)
	client.Host, client.TCPPort = "127.0.0.1", uint16(l.Addr().(*net.TCPAddr).Port)
	conn, err := dialOrAccept(t.Context(), client, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := <-accepted
	if r.err != nil {
		t.Fatal(r.err)
	}
	defer r.conn.Close()
	if got := peerAddr(r.conn).String(); got != "127.0.0.1" {
		t.Errorf("the peer's address is %s", got)
	}
}

func TestAcceptCancelled(t *testing.T) {
	opt := Defaults("test", 1)
	opt.TCPPort = 0
	ctx, cancel := context.WithCancel(t.Context())
	l, err := listen(ctx, opt)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := dialOrAccept(ctx, opt, l); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
}

func TestMain(m *testing.M) {
	// Keep the program's messages on standard error out of the test's output.
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	os.Stderr = null
	os.Exit(m.Run())
}
