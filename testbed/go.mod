// Tests on kernels in guests and with C programs, apart from the library so that
// its own module keeps two dependencies.
module github.com/goverbs/goverbs/testbed

go 1.25.0

replace github.com/goverbs/goverbs => ../

replace github.com/goverbs/goverbs/valkeyrdma => ../valkeyrdma

require (
	github.com/cavaliergopher/cpio v1.0.1
	github.com/google/go-cmp v0.7.0
	github.com/goverbs/goverbs v0.0.0
	github.com/goverbs/goverbs/valkeyrdma v0.0.0
	github.com/ulikunitz/xz v0.5.17
	github.com/valkey-io/valkey-go v1.0.79
	golang.org/x/net v0.57.0
	golang.org/x/sys v0.47.0
)
