// Package engine implements the queues and the memory of a software ConnectX:
// memory keys and their translation, completion queues, queue pairs with their
// send and receive queues, shared receive queues, and work queue elements.
//
// An HCA accesses the host's memory through a Memory, reports completion events
// and asynchronous events to an Events, and sends packets to a Link. PCI and
// commands are implemented by the device that uses the HCA: it decodes commands
// to the attributes of this package. A program in the same process, such as a
// provider's test, can use an HCA without a device.
//
// Mistakes of a driver that hardware would silently execute wrongly are
// reported as a Violation, with the rule, the queue and the bytes: see Rule.
//
// An HCA runs in a loop.Loop. All methods must be called inside of it.
package engine
