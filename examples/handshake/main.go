// Handshake exchanges a message over RDMA with package uverbs only. The two sides
// exchange the addresses of their QPs over a TCP connection. Without an argument
// it listens on port 7471; with the argument host:7471 it connects.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

func main() {
	ctx := context.Background()
	dev := must(uverbs.Open("")) // the first device with an active port
	defer dev.Close()            // also closes all objects created on it
	pd, cq := must(dev.AllocPD()), must(dev.CreateCQ(uverbs.CQConfig{Entries: 16}))
	mr := must(pd.Alloc(128, uverbs.LocalWrite))
	qp := must(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: 1}))
	check(qp.Init())
	must(qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{mr.SGE(64, 64)}}))

	conn := dialOrAccept()
	check(qp.Handshake(ctx, conn))
	n := copy(mr.Bytes()[:64], fmt.Sprintf("hello from process %d", os.Getpid()))
	must(qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, SGL: []uverbs.SGE{mr.SGE(0, n)}}))
	for range 2 { // our send, and the peer's message
		var wc [1]uverbs.WC
		must(cq.PollWait(ctx, wc[:]))
		check(wc[0].Err())
		if wc[0].Opcode == uverbs.WCRecv {
			fmt.Printf("%s\n", mr.Bytes()[64:64+wc[0].ByteLen])
		}
	}
	check(conn.CloseWrite())
	must(io.ReadAll(conn)) // until the peer has finished too
}

func dialOrAccept() *net.TCPConn {
	if len(os.Args) > 1 {
		return must(net.Dial("tcp", os.Args[1])).(*net.TCPConn)
	}
	return must(must(net.Listen("tcp", ":7471")).Accept()).(*net.TCPConn)
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
