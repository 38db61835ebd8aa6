// Package kernels runs the device tests of the library's packages on stock
// kernels. Each test in a guest is reported as a subtest.
//
//	go test -C testbed -tags vm ./kernels -run 'TestKernels/6.12'
package kernels
