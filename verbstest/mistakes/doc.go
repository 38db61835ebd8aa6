// Package mistakes has programs that use RDMA wrongly, each in one line, as users do. Its tests check
// that package verbstest reports the line and the cause, and what a device of the kernel shows in its
// place (testbed/kernels runs them on rxe):
//
//	go test ./verbstest/mistakes
//	GOVERBS_DEVICE=rxe0 go test -tags device ./verbstest/mistakes
package mistakes
