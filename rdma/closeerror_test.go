package rdma_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/goverbs/goverbs/rdma"
)

// TestCloseErrorText checks reasons with long texts and with texts that are not UTF-8, and the errors of the side that
// has called CloseWithError.
func TestCloseErrorText(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"over the limit of 16 subscriptions", "over the limit of 16 subscriptions"},
		{strings.Repeat("x", 114), strings.Repeat("x", 114)},
		{strings.Repeat("x", 115), strings.Repeat("x", 114)},
		{strings.Repeat("é", 100), strings.Repeat("é", 57)},
		{"x" + strings.Repeat("é", 100), "x" + strings.Repeat("é", 56)},
		{"two\nlines", "two\nlines"},
		{"not \xff UTF-8", "not \uFFFD UTF-8"},
	} {
		p := connect(t, nil, nil)
		const code = 1<<64 - 1
		check(t, p.server.CloseWithError(code, c.text))
		_, err := p.client.Recv(limit(t))
		isReason(t, err, &rdma.CloseError{Code: code, Text: c.want, Remote: true})
		isError(t, err, rdma.ErrDisconnected)
		if !utf8.ValidString(err.Error()) || strings.Contains(err.Error(), "\n") {
			t.Errorf("the text of the error is %q", err)
		}
		for _, err := range []error{p.server.Send(limit(t), nil), p.server.Err()} {
			isReason(t, err, &rdma.CloseError{Code: code, Text: c.want})
			isError(t, err, net.ErrClosed)
		}
		check(t, p.server.Close())
	}
}

// TestSlowSubscriber drops a peer that does not receive. The peer gets the messages that have arrived, and then the
// reason.
func TestSlowSubscriber(t *testing.T) {
	p := connect(t, nil, &rdma.Options{Linger: time.Minute})
	ctx := limit(t)
	for i := range 3 {
		check(t, p.server.Send(ctx, numbered(i, 100)))
	}
	check(t, p.server.Send(ctx, numbered(3, 100000))) // it is not read
	check(t, within(t, background(func() error { return p.server.CloseWithError(42, "slow") }), "CloseWithError"))
	n, err := receiveRest(t, p.client)
	if n != 3 {
		t.Errorf("%d messages, want 3", n)
	}
	isReason(t, err, &rdma.CloseError{Code: 42, Text: "slow", Remote: true})
}

// TestEndOfSender checks that a side that only sends is told of the orderly end, and receives what came before it.
func TestEndOfSender(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	check(t, p.server.Send(ctx, numbered(0, 100)))
	check(t, p.server.Close())
	<-p.client.CM().Disconnected() // the queue pair of this side has ended, or is about to
	var err error
	for err == nil {
		err = p.client.Send(ctx, []byte("x"))
	}
	if !errors.Is(err, io.EOF) {
		t.Errorf("Send returns %v", err)
	}
	if n, err := receiveRest(t, p.client); n != 1 || err != io.EOF {
		t.Errorf("%d messages, then %v", n, err)
	}
}

// TestUndeliveredCount checks how many messages a side learns that the peer has not received when it has closed the
// connection: not those that its program has released or still holds, and not calls, which return errors.
func TestUndeliveredCount(t *testing.T) {
	for _, size := range []int{20, 1000, 5000} {
		for received := range 4 {
			p := connect(t, &rdma.Options{Linger: -1, Offers: 8}, &rdma.Options{Offers: 8})
			ctx := limit(t)
			const messages = 4
			for i := range messages {
				check(t, p.client.Send(ctx, numbered(i, size)))
			}
			sent := p.client.Stats().Sent
			called := background(func() error { _, err := p.client.Call(ctx, numbered(messages, size)); return err })
			until(t, "the call is sent", func() bool { return p.client.Stats().Sent > sent })
			for i := range received {
				m := must(p.server.Recv(ctx))(t)
				if i != 1 { // that one is held
					m.Release()
				} else {
					defer m.Release()
				}
			}
			check(t, p.server.Close())
			isError(t, within(t, called, "Call"), io.EOF)
			err := p.client.Close()
			isError(t, err, rdma.ErrUndelivered)
			want := fmt.Sprintf(" %d messages may not", messages-received)
			if received == messages-1 {
				want = " 1 message may not"
			}
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%d of %d messages of %d bytes were received: %v", received, messages, size, err)
			}
		}
	}
}
