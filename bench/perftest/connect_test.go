package perftest

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// freePort returns a port that no socket listens on.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// localOptions returns the options of an end on this machine.
func localOptions(t *testing.T, port int, server string) *Options {
	o := normalized(t, "send_bw", "-p", strconv.Itoa(port))
	o.Server, o.SourceIP, o.mtu = server, "127.0.0.1", uverbs.MTU1024
	o.out = new(strings.Builder)
	return o
}

// connectAndAgree connects and agrees with the peer.
func connectAndAgree(ctx context.Context, o *Options) error {
	w, err := o.connectControl(ctx)
	if err != nil {
		return err
	}
	ctl := &control{wire: w, client: o.client(), withGID: true}
	return errors.Join(ctl.agree(ctx, o), w.close())
}

// A server that waits for the end of a line, as for HTTP, on the server's port; and
// clients of other protocols.
func TestAnotherProtocol(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, giveUp := context.WithCancelCause(t.Context())
	defer giveUp(nil)
	served := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, err = conn.Read(make([]byte, 16))
			giveUp(errSilentPeer)
			_, _ = io.Copy(io.Discard, conn) // until the client disconnects
			err = errors.Join(err, conn.Close())
		}
		served <- err
	}()
	if err := connectAndAgree(ctx, localOptions(t, l.Addr().(*net.TCPAddr).Port, "127.0.0.1")); err == nil ||
		!strings.Contains(err.Error(), "-p at the peer: the program there has sent nothing") {
		t.Errorf("of a service that says nothing: %v", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	for says, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n": `does not use perftest's protocol: ` +
			`it sent "GET / HTTP/1.1\r\n"`,
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\xd8\x9e\x1f\x00\x00": "does not use perftest's protocol",
		"\xff": `has ended the connection: its output says why, or it runs another test or has other options; ` +
			`it sent: "\xff"`,
		"": "the peer has ended the connection",
	} {
		o := localOptions(t, freePort(t), "")
		ended := make(chan error, 1)
		go func() { ended <- connectAndAgree(t.Context(), o) }()
		conn, err := retryRefused(t.Context(), func() (net.Conn, error) {
			return net.Dial("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(o.Port)))
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(says)); err != nil {
			t.Error(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %s", says, err, want)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}

// The data that a peer can send unasked is limited.
func TestMaxPending(t *testing.T) {
	cw, sw := wires(t)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for err := error(nil); err == nil; { // until the other end closes the connection
			err = sw.send(context.Background(), make([]byte, 4096))
		}
	}()
	err := cw.receive(limited(t), make([]byte, 4*maxPending))
	if err == nil || !strings.Contains(err.Error(), "sends more than perftest does") || len(err.Error()) > 1000 {
		t.Errorf("%.200v", err)
	}
	cw.close()
	<-sent
}

// The zone of a source address is used.
func TestSourceZone(t *testing.T) {
	o := localOptions(t, 1, "::1")
	o.IPv6Addr, o.SourceIP = true, "fe80::1%lo"
	if _, err := dialTCP(t.Context(), o); err == nil || !strings.Contains(err.Error(), "fe80") {
		t.Error(err)
	}
}

// The end of the context ends each wait before the test immediately: for a client, for
// a server that does not listen yet, and for a message of a peer that sends none.
func TestInterruptedBefore(t *testing.T) {
	mute, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close()
	for name, o := range map[string]*Options{
		"accept": localOptions(t, freePort(t), ""),
		"dial":   localOptions(t, freePort(t), "127.0.0.1"),
		"agree":  localOptions(t, mute.Addr().(*net.TCPAddr).Port, "127.0.0.1"),
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Millisecond, func() { cancel(errors.New("interrupt signal received")) })
		ended := make(chan error, 1)
		go func() { ended <- connectAndAgree(ctx, o) }()
		select {
		case err := <-ended:
			if err == nil {
				t.Errorf("%s: no error", name)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("%s: it goes on", name)
		}
		cancel(nil)
	}
}
