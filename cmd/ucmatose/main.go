// Ucmatose connects several QPs concurrently, sends a few messages in each
// direction over each of them, and disconnects. It is an example of an event
// channel: calls return immediately, and one goroutine processes the events of all
// ids. It has the protocol, options and output of rdma-core's ucmatose (cmatose.c),
// so either end can be the C program.
//
// Server, then client:
//
//	ucmatose -c 100
//	ucmatose -c 100 -s server-host
//
// On InfiniBand the addresses can be GIDs. With the server's LID, no subnet manager
// is needed to resolve the path:
//
//	ucmatose -f gid -b fe80::1
//	ucmatose -f gid -b fe80::2 -s fe80::1 --dlid 1
//
// Unlike the C program it also listens on IPv6, checks every completion, ends if the peer is killed, and ends cleanly
// on SIGINT.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/internal/getopt"
	_ "github.com/goverbs/goverbs/provider/all"
)

func main() { program.Main("ucmatose", run) }

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	opt, err := parseOptions(args)
	switch {
	case errors.Is(err, getopt.ErrHelp):
		return usage(out)
	case err != nil:
		return err
	}
	defer func() {
		status := 0
		if err != nil {
			status = 1
		}
		fmt.Fprintf(out, "return status %d\n", status)
	}()
	t, err := newTest(ctx, opt, out)
	if err != nil {
		return err
	}
	defer func() {
		fmt.Fprintln(out, "test complete")
		err = errors.Join(err, t.close())
	}()
	if opt.server != "" {
		return t.connect()
	}
	if err := t.listen(); err != nil {
		return err
	}
	return t.serve()
}

// listen creates the listening id.
func (t *test) listen() error {
	t.print("cmatose: starting server")
	addr, err := t.find()
	if err != nil {
		return err
	}
	if t.listener, err = t.channel.CreateID(t.opt.portSpace); err != nil {
		return err
	}
	if err := addr.bind(t.listener); err != nil {
		return err
	}
	return t.listener.Listen(0)
}

// serve is the server's part: it sends first, and disconnects.
func (t *test) serve() error {
	t.start()
	if err := t.wait(t.connected); err != nil {
		return err
	}
	if t.opt.count > 0 {
		if err := t.sendFirst(); err != nil {
			return err
		}
	}
	if err := t.migrate(); err != nil {
		return err
	}
	t.print("cmatose: disconnecting")
	for _, n := range t.nodes {
		if err := n.id.Disconnect(); err != nil {
			return err
		}
	}
	if err := t.wait(t.disconnected); err != nil {
		return err
	}
	t.print("disconnected")
	return nil
}

func (t *test) sendFirst() error {
	t.print("initiating data transfers")
	if err := t.each((*node).postSends); err != nil {
		return err
	}
	t.print("completing sends")
	if err := t.each((*node).completeSends); err != nil {
		return err
	}
	t.print("receiving data transfers")
	if err := t.each((*node).receive); err != nil {
		return err
	}
	t.print("data transfers complete")
	return nil
}

// connect is the client's part: it receives first, replies, and waits until it is
// disconnected.
func (t *test) connect() error {
	t.print("cmatose: starting client")
	addr, err := t.find()
	if err != nil {
		return err
	}
	t.print("cmatose: connecting")
	for range t.opt.connections {
		id, err := t.channel.CreateID(t.opt.portSpace)
		if err != nil {
			return err
		}
		t.add(id)
		if err := addr.resolve(id); err != nil {
			return err
		}
	}
	t.start()
	if err := t.wait(t.connected); err != nil {
		return err
	}
	if t.opt.count > 0 {
		if err := t.sendReplies(); err != nil {
			return err
		}
	}
	if err := t.migrate(); err != nil {
		return err
	}
	return t.wait(t.disconnected)
}

// sendReplies does not wait for the completion of its sends. The server disconnects
// when they have arrived.
func (t *test) sendReplies() error {
	t.print("receiving data transfers")
	if err := t.each((*node).receive); err != nil {
		return err
	}
	t.print("sending replies")
	if err := t.each((*node).postSends); err != nil {
		return err
	}
	t.print("data transfers complete")
	return nil
}

func (t *test) print(line string) { fmt.Fprintln(t.out, line) }
