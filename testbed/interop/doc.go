// Package interop tests the library's programs with the C programs of rdma-core on
// stock kernels. It compares their output, and connects them to each other, with
// either one as the server.
//
//	go test -C testbed -tags vm ./interop
//	go test -C testbed -tags vm ./interop -run 'TestInterop/6.12/rc_pingpong/c-server'
package interop
