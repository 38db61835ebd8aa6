// Package roce is the packets of InfiniBand's transport and their form on
// Ethernet: RoCE version 1 (EtherType 0x8915) and version 2 (UDP port 4791 over
// IPv4 or IPv6).
//
// A Packet is one packet with its headers decoded. An InfiniBand subnet hands
// packets on as they are; for Ethernet, Marshal makes a frame of one and Parse a
// packet of a frame. Parse refuses every frame that the standard forbids, with
// an error that says why.
//
// Sources: InfiniBand Architecture Specification volume 1, chapters 7 to 9, with
// annexes A14 (XRC), A16 (RoCE) and A17 (RoCE v2).
package roce
