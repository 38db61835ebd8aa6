// Package limits has tests of what fails on one machine: queues that overrun,
// retries that run out, limits on descriptors and on locked memory, a device
// that is removed under its users. They run in a guest, see package faults.
package limits
