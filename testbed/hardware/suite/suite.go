// Package suite lists which device tests are suitable for a device outside the test
// bed. The lists are patterns for go test's -run and -skip.
package suite

// Scale takes long and does not depend on the kernel.
const Scale = "^TestDeviceScale$"

// Ethernet matches tests that do not work on InfiniBand: of network devices, IP
// addresses and raw packets.
const Ethernet = "^TestDevice(EveryGID|GIDs|Mcast|RawPacket.*|StressUD|UDSend|UDReply|AHExplained|UDMTU|PortEvents)$" +
	"|^TestDeviceEvents$/^(port_|GID_|device_speed)"

// Disturbing matches tests that take the network down for a moment, or change the
// address of its interface.
const Disturbing = "^TestDevicePortEvents$|^TestDeviceEvents$/^(port_|GID_|device_speed)"

// Connections matches the tests of cm that need only the device's IPv4 address.
const Connections = "^TestDevice(Echo|RDMACM|MLX5RDMACM|PostRecvEarly|SRQ|SharedSRQ|ReadWrite|XRC|XRCEnds" +
	"|ExternalQP|ExternalQPSync|PortSpaceIB)$"

// Examples matches the tests of cm's examples that need only the device's IPv4 address.
const Examples = "^TestDeviceFiveFunctions$"

// ByGID matches the tests of cm on InfiniBand, where a port may have no IP address.
const ByGID = "^TestDeviceIBAddresses$"
