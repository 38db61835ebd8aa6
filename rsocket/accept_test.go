package rsocket_test

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rsocket"
)

// TestAcceptEnds ends calls of Accept: by a deadline before and during the call, and by Close before and during it.
func TestAcceptEnds(t *testing.T) {
	p := machines(t)
	l := p.listen(t, rsocket.Config{})
	accept := func() <-chan error {
		ended := make(chan error, 1)
		p.onServer(func() {
			go func() {
				_, err := l.Accept()
				ended <- err
			}()
		})
		return ended
	}
	check(t, l.SetDeadline(time.Now().Add(-time.Second)))
	isError(t, <-accept(), os.ErrDeadlineExceeded)
	check(t, l.SetDeadline(time.Now().Add(time.Millisecond)))
	isError(t, <-accept(), os.ErrDeadlineExceeded)
	check(t, l.SetDeadline(time.Time{}))
	waits := accept()
	check(t, l.SetDeadline(time.Now().Add(-time.Second)))
	isError(t, <-waits, os.ErrDeadlineExceeded)
	check(t, l.SetDeadline(time.Time{}))
	waits = accept()
	check(t, l.Close())
	isError(t, <-waits, net.ErrClosed)
	isError(t, <-accept(), net.ErrClosed)
}
