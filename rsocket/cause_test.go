package rsocket_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestCauses ends connections in ways that look alike. The error says that the peer has ended the connection only if an
// event says so, and names the network otherwise.
func TestCauses(t *testing.T) {
	for name, test := range map[string]struct {
		keepAlive time.Duration
		end       func(t *testing.T, p *pair)
		says      string
	}{
		"the peer's side ends it": {
			-1,
			func(t *testing.T, p *pair) { check(t, p.server.CM().ID().ID.Disconnect()) },
			"the peer has ended it without closing it",
		},
		"the device fails the queue pair": {
			-1,
			func(t *testing.T, p *pair) {
				check(t, p.client.CM().QP().Modify(uverbs.QPAttr{State: uverbs.StateErr}, uverbs.MaskState))
			},
			"the device has failed its queue pair",
		},
		"the link is down": {
			aliveTime,
			func(t *testing.T, p *pair) { p.there.SetPort(false) },
			"transport retry count exceeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := machines(t)
			p.net.SetTimeouts(verbstest.Timeouts{Ack: 8, Reply: 5 * time.Millisecond, Repeats: 2})
			p.dial(t, rsocket.Config{KeepAlive: test.keepAlive, Linger: -1}, rsocket.Config{KeepAlive: -1, Linger: -1})
			waits := background(func() error { _, err := p.client.Read(make([]byte, 1)); return err })
			test.end(t, p)
			err := within(t, waits, "Read")
			isError(t, err, syscall.ECONNRESET)
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("the error is %v, without %q", err, test.says)
			}
		})
	}
}
