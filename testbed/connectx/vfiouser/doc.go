// Package vfiouser presents a PCI device that is a Go program to a virtual
// machine, by the vfio-user protocol (QEMU: docs/interop/vfio-user.rst, and the
// device vfio-user-pci of QEMU 10.1 and later).
//
// # A device
//
// A Device says which regions (BARs and configuration space) and interrupts it
// has, and reads and writes its regions. When a machine has connected it gets a
// Host: the machine's memory, by DMA address, and its interrupts. Package pci,
// beside this one, makes configuration spaces.
//
//	l, err := vfiouser.Listen("device.sock")
//	...
//	s := &vfiouser.Server{Device: d, Run: run, Report: report}
//	err = s.Serve(ctx, l)
//
//	qemu-system-x86_64 ... -object memory-backend-memfd,id=m,size=1G,share=on -machine q35,memory-backend=m \
//	    -device '{"driver":"vfio-user-pci","socket":{"type":"unix","path":"device.sock"}}'
//
// A server serves one machine at a time, and the next one when that has gone:
// a device that is unplugged can be plugged in again.
//
// # Concurrency
//
// Each message is one call of Server.Run, so a device, the others that it talks
// to and their timers can share one lock. Nothing else runs the device.
//
// # Trust
//
// Whatever arrives on the socket is checked: a message that is not right is
// refused with an errno, and one after which the stream means nothing ends the
// connection. What a client can make the server hold is bounded: the size of a
// message, its descriptors, the number of mappings. A device that panics fails
// the message, not the server. A client is trusted in one thing, not to shrink
// the files that it has given as memory.
//
// # Not here
//
// Regions that the client maps, INTx, migration, and memory that is reached by
// messages in place of a descriptor.
package vfiouser
