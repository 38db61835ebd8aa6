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
func ExampleID_PostWriteImm() {
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
