// Package kernels runs the device tests of the library's packages on stock
// kernels: each test of a guest appears as a subtest.
//
//	go test -tags vm ./testbed/kernels -run 'TestKernels/6.12'
package kernels
