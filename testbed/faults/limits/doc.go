// Package limits contains tests of failures on one machine: queues that overrun, exhausted
// retries, limits on descriptors and on locked memory, and the removal of a device in use.
// Package faults runs them in a guest.
package limits
