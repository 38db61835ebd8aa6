package cm_test

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// The server offers memory in its acceptance: Setup sets the address and the rkey as
// private data. The client writes to it, and the immediate data identifies the part.
func ExampleConn_PostWriteImm() {
	var offer *uverbs.MR
	setup := func(c *cm.Conn) (err error) {
		if offer, err = c.AllocWrite(64); err != nil {
			return err
		}
		b := binary.BigEndian.AppendUint64(nil, offer.Addr())
		c.SetPrivateData(binary.BigEndian.AppendUint32(b, offer.RKey()))
		return c.PostRecv(0) // immediate data consumes a receive, of zero bytes
	}
	err := connected(setup, func(ctx context.Context, server, client *cm.Conn) error {
		defer offer.Close()
		raddr := binary.BigEndian.Uint64(client.PrivateData())
		rkey := binary.BigEndian.Uint32(client.PrivateData()[8:])
		mr, err := client.AllocMsgs(64)
		if err != nil {
			return err
		}
		defer mr.Close()
		const part = 16
		n := copy(mr.Bytes(), "written by the peer")
		if err := client.PostWriteImm(1, uverbs.Signaled, raddr+part, rkey, part, mr.SGE(0, n)); err != nil {
			return err
		}
		if _, err := client.SendComp(ctx); err != nil {
			return err
		}
		wc, err := server.RecvComp(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("%d bytes at %d: %s\n", wc.ByteLen, wc.Imm, offer.Bytes()[wc.Imm:][:wc.ByteLen])
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
}

// The server offers memory to be written to. It is not notified of a WRITE, so the
// client sends a message after it: the message arrives when the WRITE is complete.
func ExampleConn_PostWrite() {
	var offer *uverbs.MR
	setup := func(c *cm.Conn) (err error) {
		if offer, err = c.AllocWrite(64); err != nil {
			return err
		}
		return c.PostRecv(0) // for a message without data
	}
	err := connected(setup, func(ctx context.Context, server, client *cm.Conn) error {
		defer offer.Close()
		mr, err := client.AllocMsgs(64)
		if err != nil {
			return err
		}
		defer mr.Close()
		n := copy(mr.Bytes(), "written by the peer")
		if err := client.PostWrite(1, 0, offer.Addr(), offer.RKey(), mr.SGE(0, n)); err != nil {
			return err
		}
		if err := client.PostSend(2, uverbs.Signaled); err != nil {
			return err
		}
		if _, err := client.SendComp(ctx); err != nil { // the WRITE is complete too
			return err
		}
		if _, err := server.RecvComp(ctx); err != nil {
			return err
		}
		fmt.Printf("%s\n", offer.Bytes()[:n])
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
}
