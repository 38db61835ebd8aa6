package rdma

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestReadOnlyCopied checks that a long message of a read-only region is offered from the region only if the device
// binds windows to such memory, and is copied otherwise.
func TestReadOnlyCopied(t *testing.T) {
	for _, binds := range []bool{true, false} {
		c, h := hostilePair(t, &Options{Linger: -1}, honestHello())
		c.binds = binds
		r := ReadOnlyRegion(make([]byte, 1<<16))
		for _, n := range []int{100, 4096, 5000} {
			b, err := c.BufferOf(r, 8, n)
			good(t, b, err)
			first := b.m.mr.Addr()
			var trailer []byte
			if n == 4096 { // too long with a trailer only
				trailer = trailed("", field(fieldMetadata, 3, 'k', 'e', 'y', 'v'))
			}
			if err := c.sendBuffer(h.ctx, kindMessage, 0, b, trailer); err != nil {
				t.Fatal(err)
			}
			k, _, body := h.recv()
			if n == 100 {
				if k != kindMessage || len(body) != n {
					t.Errorf("kind %d with %d bytes", k, len(body))
				}
				continue
			}
			o, err := parseOffer(body[:len(body)-len(trailer)], maxMessage)
			if within := o.addr >= first && o.addr < first+1<<16; k != kindOffer || err != nil || within != binds {
				t.Errorf("kind %d, %v; binds %v: %#x is offered, and the region is at %#x", k, err, binds, o.addr, first)
			}
		}
		s, err := c.Share(h.ctx, r, CanRead)
		if binds {
			if err := good(t, s, err).Revoke(); err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, uverbs.ErrNotSupported) {
			t.Errorf("Share returns %v", err)
		}
		mayLose(t, c.Close())
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
