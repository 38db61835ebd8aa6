// Asyncwatch prints the asynchronous events of an RDMA device as they occur. Its
// options and output are those of rdma-core's ibv_asyncwatch.
//
//	asyncwatch -d rxe0
package main

import "github.com/goverbs/goverbs/cmd/internal/asyncwatch"

func main() { asyncwatch.Main() }
