package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/examples/internal/rdmaaddr"
	"github.com/goverbs/goverbs/uverbs"
)

// backlog is how many clients may wait, as in the C program.
const backlog = 3

// runServer serves one client, or with -P any number of them.
func runServer(ctx context.Context, opt *options, out io.Writer) (err error) {
	listener, err := listen(ctx, opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, listener.Close()) }()
	if opt.persistent {
		return servePersistently(ctx, listener, opt, out)
	}
	id, err := listener.GetRequest(ctx)
	if err != nil {
		return err
	}
	return serve(ctx, id, opt, out)
}

// listen makes the id that clients connect to.
func listen(ctx context.Context, opt *options) (*cm.SyncID, error) {
	host, err := rdmaaddr.Host(ctx, opt.host)
	if err != nil {
		return nil, err
	}
	if !host.IsValid() {
		host = netip.IPv4Unspecified()
	}
	listener, err := cm.NewID(cm.PSTCP)
	if err != nil {
		return nil, err
	}
	if err := listener.Bind(netip.AddrPortFrom(host, opt.port)); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	if err := listener.Listen(backlog); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// servePersistently serves clients until ctx ends. That one of them fails is no
// matter of the others.
func servePersistently(ctx context.Context, listener *cm.SyncID, opt *options, out io.Writer) error {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		id, err := listener.GetRequest(ctx)
		switch {
		case err == nil:
			all.Go(func() { complain(serve(ctx, id, opt, out)) })
		case ctx.Err() != nil, over(listener):
			return err
		default:
			complain(err) // of a client that gave up before it was served
		}
	}
}

// over tells whether no client will come any more.
func over(listener *cm.SyncID) bool {
	select {
	case <-listener.Disconnected():
		return true
	default:
		return false
	}
}

func complain(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "rping:", err)
	}
}

// serve accepts a client and echoes its pings until it leaves.
func serve(ctx context.Context, id *cm.SyncID, opt *options, out io.Writer) (err error) {
	client := id.PeerAddr()
	l, err := newLink(opt, out, id)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, l.close())
		if err != nil {
			err = fmt.Errorf("client %v: %w", client, err)
		}
	}()
	s := &server{link: l}
	if s.buf, err = l.buffer(id.AllocMsgs); err != nil {
		return err
	}
	s.want = make([]byte, s.buf.Len())
	if err := l.accept(ctx); err != nil {
		return err
	}
	err = s.pings(ctx)
	if errors.Is(err, errLeft) {
		fmt.Fprintln(os.Stderr, "server DISCONNECT EVENT...")
	}
	if err == errLeft { // between two pings
		return nil
	}
	return err
}

// accept takes up the client's request.
func (l *link) accept(ctx context.Context) error {
	var p *cm.ConnParam // what the client asks for
	if l.own != nil {
		if err := l.own.ready(); err != nil {
			return err
		}
		p = l.own.param(connParam)
	}
	if err := l.id.Accept(ctx, p); err != nil {
		return err
	}
	l.up = true
	l.debugf("accepted %v", l.id.PeerAddr())
	return nil
}

// A server echoes pings.
type server struct {
	*link
	buf  *uverbs.MR // the text that was READ, and is WRITTEN back
	want []byte     // with -V: what should be in buf
}

// goAhead is the message in a server's outbox. It says nothing.
const goAhead = 0

// pings echoes pings. Its end is errLeft, if the client leaves between two of
// them.
func (s *server) pings(ctx context.Context) error {
	for ping := 0; ; ping++ {
		source, err := s.receive(ctx)
		if err == nil {
			err = s.echo(ctx, ping, source)
		} else if err == errLeft {
			return err
		}
		if err != nil {
			return fmt.Errorf("ping %d: %w", ping, err)
		}
	}
}

// echo fetches a text from the client and brings it back.
func (s *server) echo(ctx context.Context, ping int, source message) error {
	if n := int64(source.size); n < 1 || n > int64(s.buf.Len()) {
		return fmt.Errorf("the client's text has %d bytes, the server's buffer %d: give both the same -S", n, s.buf.Len())
	}
	text := s.buf.Bytes()[:source.size]
	if err := s.rdma(ctx, uverbs.OpRead, s.buf.SGE(0, len(text)), source); err != nil {
		return fmt.Errorf("READ of %d bytes: %w", len(text), err)
	}
	if err := s.check(ping, text); err != nil {
		return err
	}
	// The SENDs are not signaled: once the READ or WRITE behind one is
	// complete, so is it.
	if err := s.send(goAhead, 0); err != nil {
		return err
	}
	sink, err := s.receive(ctx)
	if err != nil {
		return err
	}
	text = text[:textLen(text)]
	if int64(sink.size) < int64(len(text)) {
		return fmt.Errorf("the client wants %d bytes to be written to a buffer of %d: is it an rping?", len(text), sink.size)
	}
	if err := s.rdma(ctx, uverbs.OpWrite, s.buf.SGE(0, len(text)), sink); err != nil {
		return fmt.Errorf("WRITE of %d bytes: %w", len(text), err)
	}
	return s.send(goAhead, 0)
}

// check validates and prints the text, where that is asked for.
func (s *server) check(ping int, text []byte) error {
	if s.opt.validate {
		want := s.want[:len(text)]
		putText(want, ping)
		if err := compare(text, want); err != nil {
			return err
		}
	}
	if s.opt.verbose {
		return show(s.out, "server ping data", text)
	}
	return nil
}
