package rdma_test

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// isIdle checks the error of a call on a connection that was closed because it was idle.
func isIdle(t *testing.T, err error, remote bool) {
	t.Helper()
	var why *rdma.CloseError
	if !errors.As(err, &why) || why.Code != rdma.CodeIdle || why.Remote != remote ||
		!strings.Contains(why.Text, "Options.IdleTimeout") {
		t.Errorf("the error is %v", err)
	}
}

// TestIdleTimeout checks that a connection on which nothing is received is closed with a reason, whether a call waits
// or not.
func TestIdleTimeout(t *testing.T) {
	for _, waits := range []bool{true, false} {
		p := connect(t, nil, &rdma.Options{IdleTimeout: time.Millisecond})
		ctx := limit(t)
		var received <-chan error
		if waits {
			received = background(func() error { _, err := p.server.Recv(ctx); return err })
		}
		_, err := p.client.Recv(ctx)
		isIdle(t, err, true)
		isError(t, err, rdma.ErrDisconnected)
		if waits {
			err := within(t, received, "Recv")
			isIdle(t, err, false)
			isError(t, err, net.ErrClosed)
		}
		check(t, p.server.Close())
	}
}
