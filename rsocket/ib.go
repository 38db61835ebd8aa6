package rsocket

import (
	"context"
	"fmt"
	"net"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// An IBAddr is the address of an end of a connection between addresses of the InfiniBand family: a [net.Addr].
type IBAddr struct {
	GID  uverbs.GID
	Port uint16 // 0 if it is not known
}

// Network returns "ib".
func (IBAddr) Network() string { return "ib" }

func (a IBAddr) String() string { return net.JoinHostPort(a.GID.String(), fmt.Sprint(a.Port)) }

// ServiceID returns the ServiceID of a [cm.IBAddr] for a port.
func ServiceID(port uint16) uint64 { return uint64(cm.PSTCP)<<16 | uint64(port) }

// ibHeaderLen is the length of what precedes the private data of a request between addresses of the InfiniBand
// family, where requests between IP addresses have these.
const ibHeaderLen = 36

// DialIB is [Dialer.DialContext] to an address of the InfiniBand family, from Dialer.LocalIB or an address that the
// kernel chooses. Without a subnet manager, the program sets Dialer.Paths. The addresses of the Conn are of type
// [IBAddr]. The errors are those of DialContext and [cm.DialIB].
func (d *Dialer) DialIB(ctx context.Context, to cm.IBAddr) (*Conn, error) {
	c, err := d.connect(func(o *cm.Options) (*cm.Conn, error) {
		o.LocalIB = d.LocalIB
		return cm.DialIB(ctx, to, o)
	})
	addr := IBAddr{to.GID, uint16(to.ServiceID)}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: addr.Network(), Addr: addr, Err: dialError(err)}
	}
	c.remote = addr
	return c, nil
}

// ListenIB is [ListenConfig.Listen] at an address of the InfiniBand family. Its ServiceID is that of a port: see
// [ServiceID]. The errors are those of Listen and [cm.ListenIB].
func (lc *ListenConfig) ListenIB(at cm.IBAddr) (*Listener, error) {
	addr := IBAddr{at.GID, uint16(at.ServiceID)}
	l, err := lc.open(func(o *cm.ListenOptions) (*cm.Listener, error) { return cm.ListenIB(at, o) })
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: addr.Network(), Addr: addr, Err: dialError(err)}
	}
	l.addr = addr
	return l, nil
}

// isIB reports whether a connection is between addresses of the InfiniBand family.
func isIB(m *cm.Conn) bool { return !m.LocalAddr().IsValid() }

// setAddrs sets the addresses of a connection.
func (c *Conn) setAddrs() {
	if !isIB(c.cm) {
		c.local = net.TCPAddrFromAddrPort(c.cm.LocalAddr())
		c.remote = net.TCPAddrFromAddrPort(c.cm.RemoteAddr())
		return
	}
	id := c.cm.ID()
	c.local, c.remote = IBAddr{GID: id.LocalGID()}, IBAddr{GID: id.RemoteGID()}
}
