// Package engine is the queues and the memory of a software ConnectX: memory
// keys and their translation, completion queues, queue pairs with their send and
// receive queues, shared receive queues, and what their work queue elements say.
//
// An HCA reads and writes the host's memory through a Memory, tells completions
// and asynchronous events to an Events, and speaks to others through a Link.
// It knows no PCI, no commands and no way into a guest: the device that does
// decodes commands to the attributes here, and a program in the same process, such
// as a provider's test, may do without.
//
// What hardware would execute wrongly without a word is reported as a Violation,
// with the rule, the queue and the bytes: see Rule.
//
// An HCA is run by a loop.Loop: all methods are called inside of it.
package engine
