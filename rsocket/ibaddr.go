package rsocket

import (
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

// isIB reports whether a connection is between addresses of the InfiniBand family.
func isIB(m *cm.Conn) bool { return !m.LocalAddr().IsValid() }
