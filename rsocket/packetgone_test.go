package rsocket

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/verbs"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestSecondDeviceGone checks that a read ends with the device of another QP than the first, on whose completion queue
// it waits.
func TestSecondDeviceGone(t *testing.T) {
	m := verbstest.NewNetwork(t).Machine()
	m.Run(func() {
		p, err := ListenPacket("udp", m.AddrPort(40001).String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}()
		second := p.createQP(netip.AddrPortFrom(m.Addr(), 40002))
		if second.err != nil {
			t.Fatal(second.err)
		}
		read := make(chan error, 1)
		go func() { _, err := p.Read(make([]byte, 1)); read <- err }()
		for waits := false; !waits; <-time.After(time.Millisecond) {
			p.mu.Lock()
			waits = p.reader.waiters.Leader() != nil
			p.mu.Unlock()
		}
		verbs.EndWaits(second.qp.recvCQ, uverbs.ErrDeviceGone) // as removal does
		select {
		case err := <-read:
			if !errors.Is(err, uverbs.ErrDeviceGone) {
				t.Errorf("Read returns %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("Read waits forever")
		}
	})
}
