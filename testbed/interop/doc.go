// Package interop runs the library's programs against the C programs of
// rdma-core on stock kernels: what they print is compared, and they talk to
// each other, either one as the server.
//
//	go test -tags vm ./testbed/interop
//	go test -tags vm ./testbed/interop -run 'TestInterop/6.12/rc_pingpong/c-server'
package interop
