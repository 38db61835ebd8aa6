package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
)

// TestReplyMetadata sends metadata with replies and errors of all lengths.
func TestReplyMetadata(t *testing.T) {
	sets := map[string]map[string]string{
		"none": nil, "one": {"version": "9"}, "two": {"version": "9", "empty": ""}, "most": {}}
	for i := range 16 {
		sets["most"][fmt.Sprintf("%02d", i)] = strings.Repeat("v", 62)
	}
	p, served := handled(t, nil, func(ctx context.Context, r *rdma.Request) ([]byte, error) {
		for key, value := range sets[r.Metadata()["set"]] {
			if err := errors.Join(r.SetReplyMetadata(key, "before"), r.SetReplyMetadata(key, value)); err != nil {
				return nil, err
			}
		}
		switch r.Metadata()["how"] {
		case "error":
			return nil, &rdma.CallError{Code: 105, Text: strings.Repeat("é", r.Len())}
		case "buffer":
			b, err := r.Conn().Alloc(r.Len())
			if err != nil {
				return nil, err
			}
			copy(b.Bytes(), r.Bytes())
			return nil, r.ReplyBuffer(ctx, b)
		}
		return r.Bytes(), nil
	}, nil)
	for _, n := range []int{0, 1, 64, 128, 1000, 2900, 3000, 4080, 4096, 4097, 100000} {
		for set, want := range sets {
			ctx := rdma.WithMetadata(limit(t), "set", set)
			body := bytes.Repeat([]byte("b"), n)
			for _, how := range []string{"bytes", "buffer"} {
				m := must(p.client.Call(rdma.WithMetadata(ctx, "how", how), body))(t)
				if !bytes.Equal(m.Bytes(), body) {
					t.Errorf("%d bytes by %s with %s: another reply", n, how, set)
				}
				m.Release()
				if got := m.Metadata(); !maps.Equal(got, want) {
					t.Errorf("%d bytes by %s with %s: %v", n, how, set, got)
				}
			}
			_, err := p.client.Call(rdma.WithMetadata(ctx, "how", "error"), body)
			var e *rdma.CallError
			if !errors.As(err, &e) || e.Code != 105 || e.Text != strings.Repeat("é", min(n, 512)) ||
				!maps.Equal(e.Metadata(), want) {
				t.Errorf("%d bytes with %s: the error is %v", n, set, err)
			}
		}
	}
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
}

// TestReplyMetadataLimits checks that what is beyond the limits is refused when it is set, and that the reply has what
// was set before.
func TestReplyMetadataLimits(t *testing.T) {
	p := connect(t, &rdma.Options{EagerSize: 256, Offers: -1}, nil)
	ctx := limit(t)
	called := make(chan rdma.Message, 1)
	ended := background(func() error {
		m, err := p.client.Call(ctx, []byte("a request"))
		called <- m
		return err
	})
	m := must(p.server.Recv(ctx))(t)
	defer m.Release()
	check(t, m.SetReplyMetadata("k", strings.Repeat("v", 200)))
	for _, c := range []struct {
		key, value string
		want       error
		text       string
	}{
		{"more", strings.Repeat("v", 20), rdma.ErrTooLong, "Options.EagerSize is 256"},
		{"k", strings.Repeat("v", 1024), rdma.ErrTooLong, "metadata of 1025 bytes: a call or reply has at most 1024"},
		{"", "v", uverbs.ErrInvalid, "a key of metadata with 0 bytes"},
	} {
		err := m.SetReplyMetadata(c.key, c.value)
		if isError(t, err, c.want); !strings.Contains(err.Error(), c.text) {
			t.Errorf("the error is %v, want %q", err, c.text)
		}
	}
	isError(t, m.Reply(ctx, make([]byte, 100)), rdma.ErrTooLong)
	check(t, m.Reply(ctx, []byte("yes")))
	isError(t, m.SetReplyMetadata("k", "v"), rdma.ErrNotCall)
	isError(t, rdma.Message{}.SetReplyMetadata("k", "v"), rdma.ErrNotCall)
	reply := <-called
	check(t, within(t, ended, "Call"))
	if got := reply.Metadata(); len(got) != 1 || len(got["k"]) != 200 {
		t.Errorf("the metadata is %v", got)
	}
	isError(t, reply.SetReplyMetadata("k", "v"), rdma.ErrNotCall)
	reply.Release()
}

// TestReplyMetadataOfOthers checks that the error of another server is passed on without its metadata.
func TestReplyMetadataOfOthers(t *testing.T) {
	p, served := handled(t, nil, func(_ context.Context, r *rdma.Request) ([]byte, error) {
		return nil, errors.Join(r.SetReplyMetadata("key", "value"), &rdma.CallError{Code: 105, Text: "no"})
	}, nil)
	_, err := p.client.Call(limit(t), nil)
	var e *rdma.CallError
	if !errors.As(err, &e) || len(e.Metadata()) != 1 {
		t.Fatal(err)
	}
	front, frontServed := handled(t, nil, func(context.Context, *rdma.Request) ([]byte, error) { return nil, e }, nil)
	_, err = front.client.Call(limit(t), nil)
	isCallError(t, err, 105, e.Text)
	if errors.As(err, &e) && e.Metadata() != nil {
		t.Errorf("the metadata is %v", e.Metadata())
	}
	check(t, front.client.Close())
	check(t, within(t, frontServed, "Handle"))
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
}
