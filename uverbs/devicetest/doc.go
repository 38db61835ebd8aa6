// Package devicetest tests uverbs on a device of the kernel, which GOVERBS_DEVICE names:
//
//	GOVERBS_DEVICE=rxe0 go test -tags device ./uverbs/devicetest
package devicetest
