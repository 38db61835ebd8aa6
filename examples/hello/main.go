// Hello sends a message over RDMA and prints the reply. Start one without an argument,
// then another with the address of the first one's RDMA device: hello 192.0.2.1:7471.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/goverbs/goverbs/cm"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

func main() {
	ctx := context.Background()
	var mr *uverbs.MR
	o := &cm.Options{Setup: func(c *cm.Conn) error { // the QP exists, the peer cannot send yet
		mr = must(c.AllocMsgs(128))
		return c.PostRecv(0, mr.SGE(64, 64))
	}}
	conn, dialed := dialOrAccept(ctx, o)
	defer conn.Close()
	if dialed {
		check(send(conn, mr, "hello"))
		fmt.Println("reply:", receive(ctx, conn, mr))
		check(conn.Shutdown(ctx))
	} else {
		fmt.Println("heard:", receive(ctx, conn, mr))
		check(send(conn, mr, fmt.Sprintf("hello to %v from process %d", conn.PeerAddr(), os.Getpid())))
		<-conn.Disconnected() // by the peer, when it has the reply
	}
	check(mr.Close())
}

func send(conn *cm.Conn, mr *uverbs.MR, text string) error {
	return conn.PostSend(0, 0, mr.SGE(0, copy(mr.Bytes()[:64], text)))
}

func receive(ctx context.Context, conn *cm.Conn, mr *uverbs.MR) string {
	wc := must(conn.RecvComp(ctx))
	return string(mr.Bytes()[64:][:wc.ByteLen])
}

func dialOrAccept(ctx context.Context, o *cm.Options) (conn *cm.Conn, dialed bool) {
	if len(os.Args) > 1 {
		return must(cm.Dial(ctx, os.Args[1], o)), true
	}
	l := must(cm.Listen(":7471", o))
	defer l.Close()
	return must(l.Accept(ctx)), false
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
