package rping

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/internal/rdmaaddr"
	"github.com/goverbs/goverbs/uverbs"
)

// backlog is the number of clients that may wait, as in the C program.
const backlog = 3

// runServer serves one client, or with -P any number of them.
func runServer(ctx context.Context, opt *options, out io.Writer) error {
	listener, err := listen(ctx, opt)
	if err != nil {
		return err
	}
	return serveAll(ctx, listener, opt, out)
}

// serveAll serves the clients of a listener: one, or with -P all. It closes the listener.
func serveAll(ctx context.Context, listener *cm.SyncID, opt *options, out io.Writer) (err error) {
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

// listen creates the listening id.
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

// servePersistently serves clients until ctx is done. An error of one client does
// not affect the others.
func servePersistently(ctx context.Context, listener *cm.SyncID, opt *options, out io.Writer) error {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		id, err := listener.GetRequest(ctx)
		switch {
		case err == nil:
			all.Go(func() { printError(serve(ctx, id, opt, out)) })
		case ctx.Err() != nil, errors.Is(err, cm.ErrListenerClosed):
			return err
		default:
			printError(err) // of a client that closed its connection before it was served
		}
	}
}

func printError(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "rping:", err)
	}
}

// serve accepts a client and echoes its pings until it disconnects.
func serve(ctx context.Context, id *cm.SyncID, opt *options, out io.Writer) (err error) {
	client := id.RemoteAddr()
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
	if errors.Is(err, errDisconnected) {
		fmt.Fprintln(os.Stderr, "server DISCONNECT EVENT...")
	}
	if err == errDisconnected { // between two pings
		return nil
	}
	return err
}

// accept accepts the client's request.
func (l *link) accept(ctx context.Context) error {
	var p *cm.ConnParam // nil: as in the request
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
	l.debugf("accepted %v", l.id.RemoteAddr())
	return nil
}

// A server echoes pings.
type server struct {
	*link
	buf  *uverbs.MR // the text that was READ, and is WRITTEN back
	want []byte     // with -V: the expected text
}

// goAhead is the slot of the server's only message in the outbox.
const goAhead = 0

// pings echoes pings. It returns errDisconnected if the client disconnects between
// two pings.
func (s *server) pings(ctx context.Context) error {
	for ping := 0; ; ping++ {
		source, err := s.receive(ctx)
		if err == nil {
			err = s.echo(ctx, ping, source)
		} else if err == errDisconnected {
			return err
		}
		if err != nil {
			return fmt.Errorf("ping %d: %w", ping, err)
		}
	}
}

// echo READs a text from the client and WRITEs it back.
func (s *server) echo(ctx context.Context, ping int, source message) error {
	if n := int64(source.size); n < 1 || n > int64(s.buf.Len()) {
		return fmt.Errorf("the client's text has %d bytes, the server's buffer %d: use the same -S at both ends", n,
			s.buf.Len())
	}
	text := s.buf.Bytes()[:source.size]
	if err := s.rdma(ctx, uverbs.OpRead, s.buf.SGE(0, len(text)), source); err != nil {
		return fmt.Errorf("READ of %d bytes: %w", len(text), err)
	}
	if err := s.check(ping, text); err != nil {
		return err
	}
	// The SENDs are not signaled: each is complete when the following READ or
	// WRITE completes.
	if err := s.send(goAhead, 0); err != nil {
		return err
	}
	sink, err := s.receive(ctx)
	if err != nil {
		return err
	}
	text = text[:textLen(text)]
	if int64(sink.size) < int64(len(text)) {
		return fmt.Errorf("the text of %d bytes does not fit into the client's buffer of %d: is it an rping?",
			len(text), sink.size)
	}
	if err := s.rdma(ctx, uverbs.OpWrite, s.buf.SGE(0, len(text)), sink); err != nil {
		return fmt.Errorf("WRITE of %d bytes: %w", len(text), err)
	}
	return s.send(goAhead, 0)
}

// check validates the text with -V, and prints it with -v.
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
