// Package devicetest tests uverbs on devices. Without GOVERBS_DEVICE, the devices are those of machines in memory
// (package verbstest), and the list of differences has the tests that need a kernel:
//
//	go test ./uverbs/devicetest
//
// GOVERBS_DEVICE names a device of the kernel, on which all tests run:
//
//	GOVERBS_DEVICE=rxe0 go test -tags device ./uverbs/devicetest
package devicetest
