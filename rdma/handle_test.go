package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// handled returns a connection whose server handles calls with h, and where what Handle returns arrives.
func handled(t testing.TB, server *rdma.Options, h rdma.Handler, o *rdma.HandleOptions) (*pair, <-chan error) {
	t.Helper()
	p := connect(t, nil, server)
	return p, background(func() error { return p.server.Handle(t.Context(), h, o) })
}

// echoes replies with the request.
func echoes(_ context.Context, r *rdma.Request) ([]byte, error) { return r.Bytes(), nil }

// isCallError checks that err has the code and text of a handler's error.
func isCallError(t testing.TB, err error, code rdma.Code, text string) {
	t.Helper()
	var got *rdma.CallError
	if !errors.As(err, &got) || got.Code != code || got.Text != text {
		t.Errorf("the error is %v, want code %d with %q", err, code, text)
	}
}

// TestHandleErrors checks what the caller gets of the errors of a handler, after which the connection can be used
// further.
func TestHandleErrors(t *testing.T) {
	long := strings.Repeat("é", 600) // of 2 bytes each
	errs := map[string]error{
		"own":      &rdma.CallError{Code: 105, Text: "no such key"},
		"wrapped":  fmt.Errorf("get: %w", &rdma.CallError{Code: 5, Text: "no such key"}),
		"general":  io.ErrNoProgress,
		"deadline": context.DeadlineExceeded,
		"canceled": fmt.Errorf("stopped: %w", context.Canceled),
		"long":     &rdma.CallError{Code: 3, Text: "x" + long},
		"bytes":    errors.New("\xff"),
		"no code":  &rdma.CallError{Text: "none"},
		"empty":    errors.New(""),
	}
	p, served := handled(t, nil, func(_ context.Context, r *rdma.Request) ([]byte, error) {
		return []byte("ignored"), errs[string(r.Bytes())]
	}, nil)
	for name, want := range map[string]rdma.CallError{
		"own":      {Code: 105, Text: "no such key"},
		"wrapped":  {Code: 5, Text: "get: rdma: the server has returned code 5: no such key"},
		"general":  {Code: rdma.CodeUnknown, Text: io.ErrNoProgress.Error()},
		"deadline": {Code: rdma.CodeDeadlineExceeded, Text: "context deadline exceeded"},
		"canceled": {Code: rdma.CodeCanceled, Text: "stopped: context canceled"},
		"long":     {Code: 3, Text: "x" + long[:1022]},
		"bytes":    {Code: rdma.CodeUnknown, Text: "\uFFFD"},
		"no code":  {Code: rdma.CodeUnknown, Text: "none"},
		"empty":    {Code: rdma.CodeUnknown},
	} {
		_, err := p.client.Call(limit(t), []byte(name))
		isCallError(t, err, want.Code, want.Text)
		if errors.Is(err, context.DeadlineExceeded) != (name == "deadline") ||
			errors.Is(err, context.Canceled) != (name == "canceled") || errors.Is(err, rdma.ErrDisconnected) {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	m := must(p.client.Call(limit(t), []byte("good")))(t)
	if got := string(m.Copy()); got != "ignored" {
		t.Errorf("the reply is %q", got)
	}
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
}

// TestHandleDeadline checks that a handler has the deadline of its caller.
func TestHandleDeadline(t *testing.T) {
	deadlines := make(chan time.Time, 1)
	p, served := handled(t, nil, func(ctx context.Context, _ *rdma.Request) ([]byte, error) {
		deadline, ok := ctx.Deadline()
		if !ok {
			return nil, errors.New("no deadline")
		}
		deadlines <- deadline
		return nil, nil
	}, nil)
	for _, n := range []int{0, 100, 2000, 4083, 100000} {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		want, _ := ctx.Deadline()
		m := must(p.client.Call(ctx, make([]byte, n)))(t)
		m.Release()
		cancel()
		if got := <-deadlines; got.Before(want.Add(-time.Millisecond)) || got.After(want.Add(patience)) {
			t.Errorf("%d bytes: the deadline is %v, want about %v", n, got, want)
		}
	}
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
}

// TestHandleLimit checks that no more handlers run than permitted, and that cancels arrive when as many do.
func TestHandleLimit(t *testing.T) {
	var running, most atomic.Int32
	began := make(chan context.Context, 100)
	release := make(chan struct{})
	p, served := handled(t, nil, func(ctx context.Context, r *rdma.Request) ([]byte, error) {
		n := running.Add(1)
		defer running.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		began <- ctx
		select {
		case <-release:
		case <-ctx.Done():
		}
		return r.Bytes(), nil
	}, &rdma.HandleOptions{MaxHandlers: 3})
	ctx, cancel := context.WithCancel(limit(t))
	var canceled, calls sync.WaitGroup
	for range 3 {
		canceled.Go(func() {
			_, err := p.client.Call(ctx, []byte("x"))
			isError(t, err, context.Canceled)
		})
	}
	var contexts []context.Context
	for range 3 {
		contexts = append(contexts, <-began)
	}
	for i := range 17 {
		calls.Go(func() {
			m, err := p.client.Call(limit(t), fmt.Append(nil, i))
			check(t, err)
			if got := string(m.Copy()); got != fmt.Sprint(i) {
				t.Errorf("the reply to %d is %s", i, got)
			}
		})
	}
	cancel()
	canceled.Wait()
	for _, ctx := range contexts {
		<-ctx.Done()
		isError(t, context.Cause(ctx), context.Canceled)
	}
	for range 3 {
		<-began
	}
	close(release)
	calls.Wait()
	if n := most.Load(); n != 3 {
		t.Errorf("%d handlers have run at the same time, want 3", n)
	}
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
}

// TestHandlePanics checks that a panic ends its call, and neither the connection nor the others.
func TestHandlePanics(t *testing.T) {
	var text bytes.Buffer
	o := &rdma.Options{Logger: slog.New(slog.NewTextHandler(&text, nil))}
	p, served := handled(t, o, func(ctx context.Context, r *rdma.Request) ([]byte, error) {
		switch string(r.Bytes()) {
		case "panic":
			panic("a secret")
		case "exit":
			runtime.Goexit()
		case "error":
			return nil, (*rdma.CallError)(nil)
		case "wait":
			<-ctx.Done()
		}
		return r.Bytes(), nil
	}, nil)
	ctx, cancel := context.WithCancel(limit(t))
	waits := background(func() error { _, err := p.client.Call(ctx, []byte("wait")); return err })
	for range 3 {
		_, err := p.client.Call(limit(t), []byte("panic"))
		isCallError(t, err, rdma.CodeInternal, "the handler has panicked")
		_, err = p.client.Call(limit(t), []byte("exit"))
		isCallError(t, err, rdma.CodeInternal, "the handler has ended its goroutine")
		_, err = p.client.Call(limit(t), []byte("error"))
		isCallError(t, err, rdma.CodeInternal, "the handler has panicked")
		m := must(p.client.Call(limit(t), []byte("good")))(t)
		m.Release()
	}
	cancel()
	isError(t, within(t, waits, "Call"), context.Canceled)
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
	if s := text.String(); strings.Count(s, "a secret") != 3 || !strings.Contains(s, "handle_test.go") {
		t.Errorf("the log is %s", s)
	}
}

// TestMetadata sends metadata with calls of all lengths.
func TestMetadata(t *testing.T) {
	p, served := handled(t, nil, func(ctx context.Context, r *rdma.Request) ([]byte, error) {
		if rdma.RequestOf(context.WithoutCancel(ctx)) != r || r.Conn().RemoteAddr() != r.Conn().CM().RemoteAddr() {
			return nil, errors.New("another request")
		}
		return fmt.Append(nil, r.Len(), r.Metadata(), bytes.Count(r.Bytes(), []byte("b"))), nil
	}, nil)
	none := limit(t)
	one := rdma.WithMetadata(none, "tenant", "red")
	more := rdma.WithMetadata(rdma.WithMetadata(one, "tenant", "blue"), "empty", "")
	most := none
	for i := range 16 {
		most = rdma.WithMetadata(most, fmt.Sprintf("%02d", i), strings.Repeat("v", 62))
	}
	for _, n := range []int{0, 1, 64, 128, 1000, 4096, 4097, 100000} {
		for ctx, want := range map[context.Context]string{
			none: "map[]", one: "map[tenant:red]", more: "map[empty: tenant:blue]", most: ""} {
			body := bytes.Repeat([]byte("b"), n)
			b := must(p.client.Alloc(n))(t)
			copy(b.Bytes(), body)
			for _, m := range []rdma.Message{
				must(p.client.Call(ctx, body))(t), must(p.client.CallBuffer(ctx, b))(t)} {
				got := string(m.Copy())
				if !strings.HasPrefix(got, fmt.Sprintf("%d %s", n, want)) || !strings.HasSuffix(got, fmt.Sprint(n)) {
					t.Errorf("%d bytes with %q: %s", n, want, got)
				}
			}
		}
	}
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
	if rdma.RequestOf(none) != nil {
		t.Error("a request of no handler")
	}
}

// TestMetadataLimits checks that metadata beyond the limits is refused before anything is sent.
func TestMetadataLimits(t *testing.T) {
	p := connect(t, nil, &rdma.Options{EagerSize: 256, Offers: -1})
	many := limit(t)
	for i := range 17 {
		many = rdma.WithMetadata(many, fmt.Sprint(i), "")
	}
	for _, c := range []struct {
		ctx  context.Context
		want error
		text string
	}{
		{many, rdma.ErrTooLong, "metadata of 17 pairs: a call or reply has at most 16"},
		{rdma.WithMetadata(many, "0", ""), rdma.ErrTooLong, "17 pairs"},
		{rdma.WithMetadata(limit(t), "k", strings.Repeat("v", 1024)), rdma.ErrTooLong, "metadata of 1025 bytes"},
		{rdma.WithMetadata(limit(t), "", ""), uverbs.ErrInvalid, "a key of metadata with 0 bytes"},
		{rdma.WithMetadata(limit(t), strings.Repeat("k", 256), ""), uverbs.ErrInvalid, "a key of metadata with 256 bytes"},
		{rdma.WithMetadata(limit(t), "\xff", ""), uverbs.ErrInvalid, "UTF-8"},
		{rdma.WithMetadata(limit(t), "k", strings.Repeat("v", 241)), rdma.ErrTooLong, "Options.EagerSize of 256"},
	} {
		_, err := p.client.Call(c.ctx, []byte("a request"))
		isError(t, err, c.want)
		if !strings.Contains(err.Error(), c.text) {
			t.Errorf("the error is %v, want %q", err, c.text)
		}
	}
	if n := p.client.Stats().Sent; n != 0 {
		t.Errorf("%d calls are sent", n)
	}
}

// TestHandleOptions checks the limits of options, and a second call of Handle.
func TestHandleOptions(t *testing.T) {
	p, served := handled(t, nil, echoes, nil)
	m := must(p.client.Call(limit(t), nil))(t)
	m.Release()
	isError(t, p.server.Handle(limit(t), echoes, nil), uverbs.ErrBusy)
	isError(t, p.client.Handle(limit(t), echoes, &rdma.HandleOptions{MaxHandlers: 2049}), uverbs.ErrInvalid)
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
}

// TestHandleReplies checks handlers that reply themselves, and messages that are not calls.
func TestHandleReplies(t *testing.T) {
	var text bytes.Buffer
	messages := make(chan string, 1)
	o := &rdma.Options{Logger: slog.New(slog.NewTextHandler(&text, nil))}
	p, served := handled(t, o, func(ctx context.Context, r *rdma.Request) ([]byte, error) {
		if !r.IsCall() {
			messages <- string(r.Bytes())
			return nil, errors.New("unheard")
		}
		b, err := r.Conn().Alloc(r.Len())
		if err != nil {
			return nil, err
		}
		copy(b.Bytes(), r.Bytes())
		if r.Bytes()[0] == 7 {
			b.Release()
			b = r.Buffer // which is sent
		}
		return nil, r.ReplyBuffer(ctx, b)
	}, nil)
	for _, n := range []int{100, 5000} {
		m := must(p.client.Call(limit(t), numbered(1, n)))(t)
		if !bytes.Equal(m.Copy(), numbered(1, n)) {
			t.Error("another reply")
		}
		seven := bytes.Repeat([]byte{7}, n)
		if m := must(p.client.Call(limit(t), seven))(t); !bytes.Equal(m.Copy(), seven) {
			t.Error("another reply")
		}
		check(t, p.client.Send(limit(t), numbered(2, n)))
		if <-messages != string(numbered(2, n)) {
			t.Error("another message")
		}
	}
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
	if strings.Count(text.String(), "unheard") != 2 {
		t.Errorf("the log is %s", &text)
	}
}

// TestHandleTooLongReply checks the error of a call whose reply is too long for the caller.
func TestHandleTooLongReply(t *testing.T) {
	p := connect(t, &rdma.Options{MaxMessage: 8192}, nil)
	served := background(func() error {
		return p.server.Handle(limit(t), func(context.Context, *rdma.Request) ([]byte, error) {
			return make([]byte, 8193), nil
		}, nil)
	})
	_, err := p.client.Call(limit(t), nil)
	isCallError(t, err, rdma.CodeResourceExhausted,
		"the reply cannot be sent: rdma: too long: a message of 8193 bytes: the peer's Options.MaxMessage is 8192")
	check(t, p.client.Close())
	check(t, within(t, served, "Handle"))
}

// TestHandleKilled ends the machine of either side while a handler runs.
func TestHandleKilled(t *testing.T) {
	for _, side := range []string{"client", "server"} {
		t.Run(side, func(t *testing.T) {
			p := machines(t)
			p.net.SetTimeouts(verbstest.Timeouts{Ack: 10})
			p.allow(verbstest.Destination)
			o := &rdma.Options{Linger: 50 * time.Millisecond, KeepAlive: 10 * time.Millisecond}
			p.dial(t, o, o)
			began := make(chan context.Context, 1)
			served := background(func() error {
				return p.server.Handle(t.Context(), func(ctx context.Context, _ *rdma.Request) ([]byte, error) {
					began <- ctx
					<-ctx.Done()
					return nil, ctx.Err()
				}, nil)
			})
			called := background(func() error { _, err := p.client.Call(limit(t), nil); return err })
			handler := <-began
			if side == "client" {
				p.here.Kill()
			} else {
				p.there.Kill()
			}
			<-handler.Done()
			isError(t, context.Cause(handler), rdma.ErrDisconnected)
			isError(t, within(t, served, "Handle"), rdma.ErrDisconnected)
			isError(t, within(t, called, "Call"), rdma.ErrDisconnected)
		})
	}
}

// TestDeadlineRoom checks that a deadline neither makes a request longer than a receive, nor one of memory that cannot
// be copied an offer: it is left out then, and metadata is not.
func TestDeadlineRoom(t *testing.T) {
	for _, offers := range []int{0, -1} {
		p := connect(t, nil, &rdma.Options{Offers: offers})
		served := background(func() error {
			return p.server.Handle(t.Context(), func(ctx context.Context, r *rdma.Request) ([]byte, error) {
				_, ok := ctx.Deadline()
				return fmt.Append(nil, r.Len(), ok, len(r.Metadata())), nil
			}, nil)
		})
		region := rdma.NewRegion(1 << 16)
		unmapped := rdma.RegionFunc(1<<16, func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) {
			return pd.RegMR(region.Bytes(), a)
		})
		metadata := rdma.WithMetadata(limit(t), "k", "v")
		for _, c := range []struct {
			n      int
			region bool
			// What the handler has: without and with metadata, and with metadata if nothing can be offered.
			plain, with, unoffered string
		}{
			{4083, false, "4083 true 0", "4083 true 1", "4083 false 1"}, // 11 bytes for a deadline, and 2 for their length
			{4084, false, "4084 false 0", "4084 true 1", "4084 false 1"},
			{4088, false, "4088 false 0", "4088 true 1", "4088 false 1"}, // 6 bytes for metadata
			{4089, false, "4089 false 0", "4089 true 1", ""},
			{4097, false, "4097 true 0", "4097 true 1", ""},
			{100, true, "100 false 0", "100 true 1", ""},
			{5000, true, "5000 true 0", "5000 true 1", ""},
		} {
			for ctx, want := range map[context.Context]string{limit(t): c.plain, metadata: c.with} {
				if offers < 0 && c.n > 4096 {
					continue
				}
				if offers < 0 && ctx == metadata {
					want = c.unoffered
				}
				var b rdma.Buffer
				if c.region {
					b = must(p.client.BufferOf(unmapped, 0, c.n))(t)
				} else {
					b = must(p.client.Alloc(c.n))(t)
				}
				m, err := p.client.CallBuffer(ctx, b)
				if want == "" {
					isError(t, err, rdma.ErrTooLong)
					b.Release()
					continue
				}
				check(t, err)
				if got := string(m.Copy()); got != want {
					t.Errorf("offers %d, a region: %v: %s, want %s", offers, c.region, got, want)
				}
			}
		}
		check(t, p.client.Close())
		check(t, within(t, served, "Handle"))
		check(t, unmapped.Close())
	}
}
