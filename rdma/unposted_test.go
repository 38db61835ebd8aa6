package rdma

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestUnposted checks that an operation that cannot be posted is an error of its call, and not the end of the
// connection.
func TestUnposted(t *testing.T) {
	c, h := hostilePair(t, nil, honestHello())
	r := NewRegion(4096)
	mr, err := c.cm.PD().RegMR(r.b, access)
	good(t, mr, err)
	mw, err := c.cm.PD().AllocMW(uverbs.MWType2)
	good(t, mw, err)
	s := &Share{c: c, r: r, mw: mw}
	bind := func(n int) error {
		return c.bind(h.ctx, s, uverbs.MWRange{MR: mr, Len: n, Access: uverbs.RemoteRead})
	}
	token := Token{Addr: h.mr.Addr(), Len: uint64(h.mr.Len()), Key: h.mr.RKey(), Rights: allRights}
	outside := &memory{bytes: make([]byte, 8), mr: mr, off: 4096}
	for name, f := range map[string]func() error{
		"bind beyond the region": func() error { return bind(4097) },
		"read":                   func() error { return c.transfer(h.ctx, CanRead, outside, 8, &token, 0) },
		"write":                  func() error { return c.transfer(h.ctx, CanWrite, outside, 8, &token, 0) },
		"write with immediate":   func() error { return c.writeImm(h.ctx, outside, 8, &token, 0, 1) },
		"batch": func() error {
			ops := []batchOp{{buf: Buffer{m: outside}, n: 8, addr: token.Addr, key: token.Key}}
			outside.hold()
			return c.doBatch(h.ctx, ops)
		},
	} {
		c.mu.Lock()
		credits := c.messages.credits
		c.unlock()
		if err := f(); !errors.Is(err, uverbs.ErrRange) {
			t.Errorf("%s: %v", name, err)
		}
		c.mu.Lock()
		if c.err != nil || s.binding || c.messages.credits != credits {
			t.Fatalf("%s: the connection has ended: %v; the share is pending: %v; %d credits instead of %d", name, c.err,
				s.binding, c.messages.credits, credits)
		}
		c.unlock()
		if err := c.Read(h.ctx, make([]byte, 8), token, 0); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
	if err := errors.Join(mw.Close(), bindClosed(bind), mr.Close()); err != nil {
		t.Error(err)
	}
	if err := c.Read(h.ctx, make([]byte, 8), token, 0); err != nil {
		t.Error(err)
	}
}

// bindClosed binds a window that is closed.
func bindClosed(bind func(int) error) error {
	if err := bind(8); !errors.Is(err, uverbs.ErrClosed) {
		return errors.Join(errors.New("a bind of a closed window returns another error"), err)
	}
	return nil
}
