package rdma

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// Err returns nil while the connection can be used, and why it has ended afterwards: an error that matches
// [ErrDisconnected], and io.EOF too if the peer has closed it and everything that it has sent has arrived,
// io.ErrUnexpectedEOF if something may be missing, or a [*CloseError]; or net.ErrClosed after Close. A
// connection on which no call waits does not notice its end.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.unlock()
	switch {
	case c.err != nil:
		return c.err
	case c.eof:
		return c.peerEnd()
	}
	if end := c.cm.Err(); end != nil {
		return c.refused(end)
	}
	return nil
}

// usable returns why nothing can be posted. The caller holds c.mu.
func (c *Conn) usable() error {
	switch {
	case c.closing:
		return c.closeError()
	case c.err != nil:
		return c.err
	case c.eof:
		return c.peerEnd()
	}
	return nil
}

// LocalAddr returns the local address.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// RemoteAddr returns the address of the peer.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.peer }

// PrivateData returns what the peer has set in its Options.PrivateData.
func (c *Conn) PrivateData() []byte { return c.remote.data }

// CM returns the connection of package cm, for queries of its id, its QP and its device. Posting requests,
// polling and closing it break the Conn.
func (c *Conn) CM() *cm.Conn { return c.cm }

// get returns memory of at least n bytes, which has no owner yet.
func (c *Conn) get(n int) (*memory, error) {
	m, err := c.pool.get(n)
	if err != nil {
		return nil, c.orEnd(err)
	}
	return m, nil
}

// orEnd returns why the connection has ended, or err if it has not.
func (c *Conn) orEnd(err error) error {
	c.mu.Lock()
	defer c.unlock()
	return c.orEndLocked(err)
}

// orEndLocked is orEnd for a caller that holds c.mu.
func (c *Conn) orEndLocked(err error) error {
	if end := c.usable(); end != nil {
		return end
	}
	if errors.Is(err, uverbs.ErrDeviceGone) {
		return c.refused(err)
	}
	return err
}

// Alloc returns a buffer of n bytes with undefined contents. It may be sent on any connection through the
// same device. It returns [ErrTooLong] for more than 1 GiB, net.ErrClosed after Close of all of them, and the
// errors of [uverbs.PD.RegMR].
func (c *Conn) Alloc(n int) (Buffer, error) {
	if n < 0 {
		return Buffer{}, c.opError("allocate for", fmt.Errorf("%w: a buffer of %d bytes", ErrBounds, n))
	}
	m, err := c.get(n)
	if err != nil {
		return Buffer{}, c.opError("allocate for", err)
	}
	return c.takeBuffer(m, n), nil
}

// hasTrailers reports whether the peer has featureTrailers.
func (c *Conn) hasTrailers() bool { return c.remote.features&featureTrailers != 0 }

// hasReplyTrailers reports whether the peer has featureReplyTrailers.
func (c *Conn) hasReplyTrailers() bool {
	const both = featureTrailers | featureReplyTrailers
	return c.remote.features&both == both
}

// bindsReadOnly reports whether memory windows can be bound to memory of a ReadOnlyRegion. The kernel does not register
// such memory with MWBindAccess, which ConnectX does not need (see uverbs.PD.RegDMABuf) and rxe does.
func (c *Conn) bindsReadOnly() bool { return c.qp.Context().Device().Driver() == "mlx5" }
