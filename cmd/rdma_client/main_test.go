package main

import (
	"testing"

	"github.com/goverbs/goverbs/cmd/internal/program/programtest"
)

func TestHelp(t *testing.T) {
	programtest.Help(t, run, "-s <server_address>", "127.0.0.1", "-p <port_number>", "7471")
}

func TestErrors(t *testing.T) {
	programtest.Refusals(t, run, []programtest.Refusal{
		{Args: "-x", Err: "unknown option -x"},
		{Args: "-s", Err: "option -s needs an argument: <server_address>"},
		{Args: "host", Err: `unexpected argument "host": give the server's address with -s`},
		{Args: "-p nosuchservice", Err: "nosuchservice", Out: "rdma_client: start\nrdma_client: end -1\n"},
	})
}
