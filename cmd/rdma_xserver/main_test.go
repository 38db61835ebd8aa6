package main

import (
	"testing"

	"github.com/goverbs/goverbs/cmd/internal/program/programtest"
)

func TestHelp(t *testing.T) {
	programtest.Help(t, run, "-p <port_number>", "7471", "-c <communication_type>")
}

func TestErrors(t *testing.T) {
	programtest.Refusals(t, run, []programtest.Refusal{
		{Args: "-c u", Err: `unknown service "u": use r or x`},
		{Args: "host", Err: `unexpected argument "host"`},
		{Args: "-p nosuchservice", Err: "nosuchservice", Out: "rdma_xserver: start\nrdma_xserver: end -1\n"},
	})
}
