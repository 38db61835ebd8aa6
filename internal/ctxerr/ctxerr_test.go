package ctxerr_test

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/ctxerr"
)

func TestOf(t *testing.T) {
	why := errors.New("the operator said so")
	past := time.Unix(1, 0)
	for _, test := range []struct {
		name    string
		begin   func() (context.Context, context.CancelFunc)
		text    string
		matches []error
	}{
		{"canceled", func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			return ctx, cancel
		}, "context canceled", []error{context.Canceled}},
		{"canceled with a cause", func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cancel(why)
			return ctx, func() {}
		}, why.Error(), []error{context.Canceled, why}},
		{"deadline", func() (context.Context, context.CancelFunc) { return context.WithDeadline(t.Context(), past) },
			"context deadline exceeded", []error{context.DeadlineExceeded, os.ErrDeadlineExceeded}},
		{"deadline with a cause", func() (context.Context, context.CancelFunc) {
			return context.WithDeadlineCause(t.Context(), past, why)
		}, why.Error(), []error{context.DeadlineExceeded, os.ErrDeadlineExceeded, why}},
	} {
		ctx, cancel := test.begin()
		defer cancel()
		err := ctxerr.Of(ctx)
		if err.Error() != test.text {
			t.Errorf("%s: the text is %q, want %q", test.name, err, test.text)
		}
		want := map[error]bool{}
		for _, e := range test.matches {
			want[e] = true
		}
		for _, e := range []error{context.Canceled, context.DeadlineExceeded, os.ErrDeadlineExceeded, why} {
			if errors.Is(err, e) != want[e] {
				t.Errorf("%s: matches %v: %v, want %v", test.name, e, !want[e], want[e])
			}
		}
		var n net.Error
		if timeout := errors.As(err, &n) && n.Timeout(); timeout != want[os.ErrDeadlineExceeded] {
			t.Errorf("%s: Timeout returns %v", test.name, timeout)
		}
	}
}
