// Package devicetest tests cm on machines in memory, or on a device of the kernel, which
// GOVERBS_DEVICE names:
//
//	GOVERBS_DEVICE=rxe0 go test -tags device ./cm/devicetest
//
// GOVERBS_ADDRESS is the address of its network interface. The default is the address of the
// guests' device. The tag adds the tests that need processes and credentials.
package devicetest
