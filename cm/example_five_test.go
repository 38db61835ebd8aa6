package cm_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/cm"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

// These are the programs of docs/five-functions.md. They need an RDMA device:
// TestDeviceFiveFunctions runs them.

// exampleIP is the address of a device's network interface.
var exampleIP = "192.0.2.1"

// exampleQP has room for four requests in each direction, and for short inline
// messages.
var exampleQP = uverbs.QPConfig{MaxSendWR: 4, MaxRecvWR: 4, MaxInline: 16}

// connected connects a client with a server in this process, runs f, and ends the connection. It calls setup for the
// server when its QP exists and the client cannot send yet.
func connected(setup func(*cm.Conn) error, f func(ctx context.Context, server, client *cm.Conn) error) error {
	return connectedWith(&cm.Options{QP: exampleQP, Setup: setup}, &cm.Options{QP: exampleQP}, f)
}

// connectedWith is connected with the options of each side.
func connectedWith(server, client *cm.Options, f func(ctx context.Context, server, client *cm.Conn) error) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l, err := cm.Listen(exampleIP+":0", &cm.ListenOptions{Options: *server})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	type accepted struct {
		conn *cm.Conn
		err  error
	}
	results := make(chan accepted, 1)
	go func() {
		conn, err := l.Accept(ctx)
		results <- accepted{conn, err}
	}()
	dialed, err := cm.Dial(ctx, l.Addr().String(), client)
	if err != nil {
		cancel()
		return errors.Join(err, (<-results).err)
	}
	defer func() { err = errors.Join(err, dialed.Close()) }()
	result := <-results
	if result.err != nil {
		return result.err
	}
	defer func() { err = errors.Join(err, result.conn.Close()) }()
	return f(ctx, result.conn, dialed)
}

// Receives are posted before the peer may send: after the QP is created and before the connection is established. Each
// uses a different part of one buffer, which its number identifies.
func ExampleConn_PostRecv() {
	const slots, size = 4, 64
	var mr *uverbs.MR
	post := func(c *cm.Conn, slot uint64) error {
		return c.PostRecv(slot, mr.SGE(int(slot)*size, size))
	}
	setup := func(c *cm.Conn) (err error) {
		if mr, err = c.AllocMsgs(slots * size); err != nil {
			return err
		}
		for slot := range uint64(slots) {
			if err := post(c, slot); err != nil {
				return err
			}
		}
		return nil
	}
	err := connected(setup, func(ctx context.Context, server, client *cm.Conn) error {
		for _, text := range []string{"one", "two", "three", "four", "five", "six"} {
			if err := client.PostSendInline(0, uverbs.Signaled, []byte(text)); err != nil {
				return err
			}
			if _, err := client.SendComp(ctx); err != nil {
				return err
			}
			wc, err := server.RecvComp(ctx)
			if err != nil {
				return err
			}
			fmt.Printf("receive %d: %s\n", wc.WRID, mr.Bytes()[wc.WRID*size:][:wc.ByteLen])
			if err := post(server, wc.WRID); err != nil { // its part is free again
				return err
			}
		}
		return nil
	})
	if mr != nil {
		err = errors.Join(err, mr.Close())
	}
	if err != nil {
		fmt.Println(err)
	}
}

// The memory of a message may be changed when its send has completed, and that of an inline message when the post has
// returned.
func ExampleConn_PostSend() {
	var in *uverbs.MR
	setup := func(c *cm.Conn) (err error) {
		if in, err = c.AllocMsgs(2 * 64); err != nil {
			return err
		}
		return errors.Join(c.PostRecv(0, in.SGE(0, 64)), c.PostRecv(1, in.SGE(64, 64)))
	}
	err := connected(setup, func(ctx context.Context, server, client *cm.Conn) (err error) {
		out, err := client.AllocMsgs(64)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, out.Close()) }()
		n := copy(out.Bytes(), "out of registered memory")
		if err := client.PostSend(7, uverbs.Signaled, out.SGE(0, n)); err != nil {
			return err
		}
		wc, err := client.SendComp(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("send %d is complete\n", wc.WRID)

		short := []byte("inline")
		if err := client.PostSendInline(8, uverbs.Signaled, short); err != nil {
			return err
		}
		clear(short)
		if _, err := client.SendComp(ctx); err != nil {
			return err
		}
		for range 2 {
			wc, err := server.RecvComp(ctx)
			if err != nil {
				return err
			}
			fmt.Printf("received %q\n", in.Bytes()[wc.WRID*64:][:wc.ByteLen])
		}
		return nil
	})
	if in != nil {
		err = errors.Join(err, in.Close())
	}
	if err != nil {
		fmt.Println(err)
	}
}

// The server offers memory to be read, and sends its address: here in a variable, between two processes in a message or
// as private data. The server's CPU takes no part in the READ.
func ExampleConn_PostRead() {
	var offer *uverbs.MR
	setup := func(c *cm.Conn) (err error) {
		if offer, err = c.AllocRead(64); err != nil {
			return err
		}
		copy(offer.Bytes(), "what the server offers")
		return nil
	}
	err := connected(setup, func(ctx context.Context, server, client *cm.Conn) (err error) {
		raddr, rkey := offer.Addr(), offer.RKey()

		mr, err := client.AllocMsgs(64)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, mr.Close()) }()
		if err := client.PostRead(1, uverbs.Signaled, raddr, rkey, mr.SGE(0, 22)); err != nil {
			return err
		}
		wc, err := client.SendComp(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("READ of %d bytes: %s\n", wc.ByteLen, mr.Bytes()[:wc.ByteLen])
		return nil
	})
	if offer != nil {
		err = errors.Join(err, offer.Close())
	}
	if err != nil {
		fmt.Println(err)
	}
}

// A wait ends with its context, and the receive stays posted. When the connection ends, the posted requests are
// flushed, so that no call waits forever.
func ExampleConn_RecvComp() {
	var mr *uverbs.MR
	setup := func(c *cm.Conn) (err error) {
		if mr, err = c.AllocMsgs(2 * 64); err != nil {
			return err
		}
		return errors.Join(c.PostRecv(0, mr.SGE(0, 64)), c.PostRecv(1, mr.SGE(64, 64)))
	}
	err := connected(setup, func(ctx context.Context, server, client *cm.Conn) error {
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		_, err := server.RecvComp(short)
		fmt.Println("nothing yet:", errors.Is(err, context.DeadlineExceeded))

		if err := client.PostSendInline(0, uverbs.Signaled, []byte("late")); err != nil {
			return err
		}
		wc, err := server.RecvComp(ctx)
		if err != nil {
			return err
		}
		fmt.Printf("receive %d: %s\n", wc.WRID, mr.Bytes()[:wc.ByteLen])

		if err := client.Disconnect(ctx); err != nil {
			return err
		}
		wc, err = server.RecvComp(ctx)
		fmt.Printf("receive %d is flushed: %v\n", wc.WRID, errors.Is(err, uverbs.WCWRFlushErr))
		return nil
	})
	if mr != nil {
		err = errors.Join(err, mr.Close())
	}
	if err != nil {
		fmt.Println(err)
	}
}

// The verbs level accepts a list of receives in one call, each with any number of
// buffers. If a request in the list is invalid, those before it are posted.
func Example_ibvPostRecv() {
	var mr *uverbs.MR
	setup := func(c *cm.Conn) (err error) {
		if mr, err = c.AllocMsgs(2 * 64); err != nil {
			return err
		}
		n, err := c.QP().PostRecv(
			uverbs.RecvWR{WRID: 10, SGL: []uverbs.SGE{mr.SGE(0, 64)}},
			uverbs.RecvWR{WRID: 11, SGL: []uverbs.SGE{mr.SGE(64, 64)}},
			uverbs.RecvWR{WRID: 12, SGL: []uverbs.SGE{mr.SGE(128, 64)}}, // beyond the memory
		)
		fmt.Printf("%d are posted, the next is bad: %v\n", n, errors.Is(err, uverbs.ErrRange))
		return nil
	}
	err := connected(setup, func(ctx context.Context, server, client *cm.Conn) error {
		for range 2 {
			if err := client.PostSendInline(0, uverbs.Signaled, []byte("to the list")); err != nil {
				return err
			}
		}
		var wcs [8]uverbs.WC
		for got := 0; got < 2; {
			n, err := server.QP().RecvCQ().PollWait(ctx, wcs[:])
			if err != nil {
				return err
			}
			for _, wc := range wcs[:n] {
				if err := wc.Err(); err != nil {
					return err
				}
				fmt.Printf("receive %d: %s\n", wc.WRID, mr.Bytes()[(wc.WRID-10)*64:][:wc.ByteLen])
			}
			got += n
		}
		return nil
	})
	if mr != nil {
		err = errors.Join(err, mr.Close())
	}
	if err != nil {
		fmt.Println(err)
	}
}
