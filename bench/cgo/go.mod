// What a Go program pays that calls libibverbs, apart from the library so that
// its own module stays without C.
module github.com/goverbs/goverbs/bench/cgo

go 1.25.0
