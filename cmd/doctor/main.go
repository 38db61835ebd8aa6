// Doctor reports whether RDMA works on this machine and, for each thing that does not, the command that mends it. With
// the address of a machine where doctor listens, it also connects, moves checked data with each operation, and reports
// latency and bandwidth.
//
//	doctor                  # this machine
//	doctor -listen          # a peer, until it is interrupted
//	doctor 192.0.2.1        # this machine, and the connection to a peer that listens, or to several
//	doctor -json | jq -r '.findings[] | select(.severity == "error").fix'
//	doctor -summary *.json  # what -json has printed on many machines, on one page
//
// The exit status is 0 if RDMA works, 1 if a finding is an error, and 2 if the command line is wrong or doctor cannot
// listen, read a file or write its output. Docs/doctor.md lists the findings.
package main

import "github.com/goverbs/goverbs/cmd/internal/doctor"

func main() { doctor.Main() }
