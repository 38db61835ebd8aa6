// Peer serves package rxe's calls on standard input and output.
package main

import (
	"fmt"
	"io"
	"net/rpc"
	"os"

	_ "github.com/goverbs/goverbs/provider/rxe"
	"github.com/goverbs/goverbs/testbed/connectx/rxe"
)

func main() {
	s := rpc.NewServer()
	if err := s.Register(new(rxe.Peer)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	s.ServeConn(struct {
		io.Reader
		io.WriteCloser
	}{os.Stdin, os.Stdout})
}
