package mistakes

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestLateReceive checks that a message may wait for its receive, unless it is lost in the end.
func TestLateReceive(t *testing.T) {
	for _, c := range []struct {
		name  string
		retry uint8
		post  bool // the receive, when the message waits
		want  string
	}{
		{"received", 7, true, ""},
		{"closed", 7, false, "receive-late: posted at connectprograms_test.go:"},
		{"no retries", 0, false, "receive-late: posted at connectprograms_test.go:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &recorder{TB: t}
			m := verbstest.NewNetwork(r).Machine()
			m.Run(func() { sendLate(m.Device(), c.retry, c.post) })
			r.end()
			switch {
			case c.want == "" && len(r.errors) > 0, c.want != "" && len(r.errors) != 1:
				t.Errorf("reported: %q", r.errors)
			case c.want != "" && !strings.Contains(r.errors[0], c.want):
				t.Errorf("reported: %s", r.errors[0])
			}
		})
	}
}

// sendLate sends a message before its receive is posted.
func sendLate(device string, retry uint8, post bool) {
	wired(device, func(p *pair, a, b attributes) string {
		a.rts.RNRRetryCount = retry
		p.a.modify(a)
		p.b.modify(b)
		p.send(64) // for the receive that is posted
		p.post(64)
		if post {
			must(p.b.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{p.b.mr.SGE(0, 64)}}))
		}
		if post || retry == 0 {
			return completion(p.a, patience)
		}
		return ""
	})
}

// TestMTUOfPort checks that the path MTU of a QP cannot exceed the MTU of its port.
func TestMTUOfPort(t *testing.T) {
	m := verbstest.New(t)
	m.SetMTU(uverbs.MTU512)
	wired(m.Device(), func(p *pair, a, _ attributes) string {
		a.rtr.PathMTU = uverbs.MTU1024
		if err := p.a.qp.Modify(a.rtr, rtrMask); !errors.Is(err, unix.EINVAL) {
			t.Errorf("a path MTU above that of the port: %v", err)
		}
		a.rtr.PathMTU = uverbs.MTU512
		p.a.modify(a)
		return ""
	})
}
