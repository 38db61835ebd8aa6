// Valkey over RDMA, apart from the library so that it keeps few dependencies.
module github.com/goverbs/goverbs/valkeyrdma

go 1.25.0

replace github.com/goverbs/goverbs => ../

require github.com/goverbs/goverbs v0.0.0

require (
	github.com/google/go-cmp v0.7.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
)
