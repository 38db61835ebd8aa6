// Package vfiouser connects a PCI device implemented in Go to a virtual
// machine, by the vfio-user protocol (QEMU: docs/interop/vfio-user.rst, and the
// device vfio-user-pci of QEMU 10.1 and later).
//
// # A device
//
// A Device describes its regions (BARs and configuration space) and interrupts,
// and reads and writes its regions. When a machine has connected the device
// gets a Host: the machine's memory, by DMA address, and its interrupts.
// Package pci implements configuration spaces.
//
//	l, err := vfiouser.Listen("device.sock")
//	...
//	s := &vfiouser.Server{Device: d, Run: run, Report: report}
//	err = s.Serve(ctx, l)
//
//	qemu-system-x86_64 ... -object memory-backend-memfd,id=m,size=1G,share=on -machine q35,memory-backend=m \
//	    -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"device.sock"}}'
//
// A server serves one machine at a time. After that has disconnected it serves
// the next one: a device that is unplugged can be plugged in again.
//
// # Concurrency
//
// Each message is processed in one call of Server.Run, so a device, its peers
// and their timers can share one lock. The device is called in no other place.
//
// # Trust
//
// All input from the socket is checked: an invalid message is refused with an
// errno, and a malformed stream ends the connection. The resources that a
// client can use are bounded: the size of a message, its descriptors, the
// number of mappings. A device that panics fails the message, not the server. A
// client is trusted in one thing: not to shrink the files that it has passed as
// memory.
//
// # Not supported
//
// Regions mapped by the client, INTx, migration, and memory accessed by
// messages instead of a descriptor.
package vfiouser
