// Package fabric is the network between simulated devices: an Ethernet switch,
// whose ports are devices of this process or network cards of QEMU's guests, and
// an InfiniBand subnet, which hands packets on by their LID.
//
// Both can be told to misbehave: a [Fault] drops, duplicates, reorders, delays or
// corrupts what a port's device sends or receives, all of it, by chance or by
// count, and tells how often it did. The chance is that of a seed: the same
// packets have the same fate each time. A link can be pulled and plugged, and a
// [Capture] of the switch is a pcap file for tcpdump and tshark.
//
// Everything here happens inside one loop.Loop. Methods are for its steps unless
// they say otherwise. What waits is bounded, and what finds no room is lost and
// counted, as on a real network; a network on which nothing is delayed has no
// timer.
package fabric
