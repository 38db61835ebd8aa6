// Package rdmacmtest is a connection manager in memory for hermetic tests of
// what speaks to /dev/infiniband/rdma_cm. It checks header, size and reply
// address of each command, keeps ids with their states, and lets ids connect
// with one another, whichever file they belong to.
//
// Time is compressed: what the kernel answers later, it answers at once, unless
// the test holds events back ([Kernel.Hold]). What waits for a peer that does
// not answer waits until the test says that time is up ([Kernel.Expire]).
//
// What the library does wrong is an errno to the library and a violation to
// the test: [Kernel.Close] reports violations, ids that were not destroyed and
// files that were not closed.
//
// Sources: drivers/infiniband/core/{ucma,cma,cm}.c of Linux 6.1. The tests of
// package rdmacm run on it and on real kernels, so that it says what they say.
package rdmacmtest
