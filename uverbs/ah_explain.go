package uverbs

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

func (c *Context) explainPort(port int) string {
	if port < 1 || port > c.device.Ports {
		return fmt.Sprintf("Port is %d: the device has ports 1 to %d", port, c.device.Ports)
	}
	return ""
}

// explainAddress looks for an error in an address on a port that exists.
func (c *Context) explainAddress(a *AHAttr) string {
	port := int(a.Port)
	attr, err := c.QueryPort(port)
	if err != nil {
		return ""
	}
	if attr.LinkLayer == LinkEthernet && !a.IsGlobal {
		return "on RoCE the peer's address needs IsGlobal with DGID, SGIDIndex and HopLimit"
	}
	entries, err := c.gidTable(port)
	if err != nil || slices.ContainsFunc(entries, func(e GIDEntry) bool { return e.Index == int(a.SGIDIndex) }) {
		return ""
	}
	return fmt.Sprintf("SGIDIndex is %d, which port %d does not have: see Context.GIDs", a.SGIDIndex, port)
}

// explainRoute returns the cause of an error of address resolution.
func explainRoute(a *AHAttr, err error) string {
	switch errnoOf(err) {
	case unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ENODEV:
		return "no route from GID index " + sitoa(int(a.SGIDIndex)) + " to the peer's GID, " + a.DGID.String() +
			", check addresses and routing table of the network interface"
	case unix.ETIMEDOUT:
		return "the neighbor on the way to " + a.DGID.String() +
			" did not reply: check that it is up and that the address is right"
	}
	return ""
}
