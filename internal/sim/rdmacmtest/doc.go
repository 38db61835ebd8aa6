// Package rdmacmtest is a fake kernel, a connection manager in memory, for
// hermetic tests of users of /dev/infiniband/rdma_cm. It checks header, size
// and reply address of each command, keeps ids with their states, and connects
// ids with one another, also of different files.
//
// Time is compressed: events that the kernel reports later are reported at
// once, unless the test holds them ([Kernel.Hold]). An id that waits for a peer
// that does not reply waits until the test calls [Kernel.Expire].
//
// A mistake of the library is an errno for the library and a violation for the
// test: [Kernel.Close] reports violations, ids that were not destroyed and
// files that were not closed.
//
// Sources: drivers/infiniband/core/{ucma,cma,cm}.c of Linux 6.1. The tests of
// package rdmacm run on the fake kernel and on real kernels, to check that they
// behave the same.
package rdmacmtest
