package main

import (
	"testing"

	"github.com/goverbs/goverbs/cmd/internal/program/programtest"
)

func TestHelp(t *testing.T) {
	programtest.Help(t, run, "-s <server_address>", "0.0.0.0", "-p <port_number>", "7471")
}

func TestErrors(t *testing.T) {
	programtest.Refusals(t, run, []programtest.Refusal{
		{Args: "-x", Err: "unknown option -x"},
		{Args: "-s", Err: "option -s needs an argument: <server_address>"},
		{Args: "host", Err: `unexpected argument "host": give the address with -s`},
		{Args: "-p nosuchservice", Err: "nosuchservice", Out: "rdma_server: start\nrdma_server: end -1\n"},
	})
}
