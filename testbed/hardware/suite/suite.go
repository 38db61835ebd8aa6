// Package suite says which device tests fit a device that is not the test bed's
// own: their names, as go test's -run and -skip take them.
package suite

// Scale takes long, and what it counts is not the kernel's.
const Scale = "^TestDeviceScale$"

// Ethernet has what is not there on InfiniBand: network devices, addresses of IP,
// raw packets.
const Ethernet = "^TestDevice(EveryGID|GIDs|Mcast|RawPacket.*|StressUD|UDSend|UDReply|AHExplained|UDMTU|PortEvents)$" +
	"|^TestDeviceEvents$/^(port_|GID_|device_speed)"

// Disturbing has what takes the network down for a moment, or gives its interface
// another address.
const Disturbing = "^TestDevicePortEvents$|^TestDeviceEvents$/^(port_|GID_|device_speed)"

// Connections are the tests of cm that need the device's own IPv4 address, and
// nothing of the network else.
const Connections = "^TestDevice(Echo|RDMACM|PostRecvEarly|SRQ|SharedSRQ|ReadWrite|XRC|XRCEnds|ExternalQP|ExternalQPSync|PortSpaceIB|FiveFunctions)$"

// ByGID are the tests of cm on InfiniBand, where a port may have no address of IP.
const ByGID = "^TestDeviceIBAddresses$"
