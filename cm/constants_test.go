package cm

import (
	"testing"

	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// TestConstants compares constants with those of the kernel.
func TestConstants(t *testing.T) {
	for name, c := range map[string][2]uint32{
		"PathGMP":            {uint32(PathGMP), uapi.IB_PATH_GMP},
		"PathPrimary":        {uint32(PathPrimary), uapi.IB_PATH_PRIMARY},
		"PathAlternate":      {uint32(PathAlternate), uapi.IB_PATH_ALTERNATE},
		"PathOutbound":       {uint32(PathOutbound), uapi.IB_PATH_OUTBOUND},
		"PathInbound":        {uint32(PathInbound), uapi.IB_PATH_INBOUND},
		"PathInboundReverse": {uint32(PathInboundReverse), uapi.IB_PATH_INBOUND_REVERSE},
		"PathBidirectional":  {uint32(PathBidirectional), uapi.IB_PATH_BIDIRECTIONAL},
		"IPv4":               {uint32(IPv4), unix.AF_INET},
		"IPv6":               {uint32(IPv6), unix.AF_INET6},
		"IB":                 {uint32(IB), afIB},
	} {
		if c[0] != c[1] {
			t.Errorf("%s is %#x, want %#x", name, c[0], c[1])
		}
	}
}
