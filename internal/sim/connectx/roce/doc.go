// Package roce implements the packets of the InfiniBand transport and their
// encapsulation in Ethernet: RoCE version 1 (EtherType 0x8915) and version 2
// (UDP port 4791 over IPv4 or IPv6).
//
// A Packet is one packet with its headers decoded. An InfiniBand subnet
// forwards packets in this form; for Ethernet, AppendFrame encodes a packet as
// a frame and Parse decodes it. Parse refuses every frame that the standard
// forbids.
//
// Sources: InfiniBand Architecture Specification volume 1, chapters 7 to 9,
// with annexes A14 (XRC), A16 (RoCE) and A17 (RoCE v2).
package roce
