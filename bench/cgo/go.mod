// What a Go program pays that calls libibverbs and librdmacm, apart from the
// library so that its own module stays without C.
module github.com/goverbs/goverbs/bench/cgo

go 1.25.0

replace github.com/goverbs/goverbs => ../../

require github.com/goverbs/goverbs v0.0.0

require golang.org/x/sys v0.47.0 // indirect
