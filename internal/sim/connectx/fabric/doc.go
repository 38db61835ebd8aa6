// Package fabric implements the network between simulated devices: an Ethernet
// switch, whose ports are devices of this process or network cards of QEMU
// guests, and an InfiniBand subnet, which forwards packets by LID.
//
// Both inject faults: a [Fault] drops, duplicates, reorders, delays or corrupts
// packets that a port's device sends or receives, all of them, at random or by
// count, and counts them. Random decisions depend on a seed only: the same
// packets have the same fate each time. Links can be set down and up, and a
// [Capture] of the switch is a pcap file for tcpdump and tshark.
//
// Everything runs inside one loop.Loop. Methods must be called in its steps
// unless documented otherwise. Queues are bounded; packets that do not fit are
// lost and counted, as on a real network. A network without delays has no
// timer.
package fabric
