package rping

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/internal/rdmaaddr"
	"github.com/goverbs/goverbs/uverbs"
)

// resolveTimeout is the timeout of the C program.
const resolveTimeout = 2 * time.Second

// A client sends pings.
type client struct {
	*link
	source *uverbs.MR // the server READs the text from here
	sink   *uverbs.MR // and WRITEs it back to here
}

// These are the client's messages, by their slot in the outbox.
const (
	sourceMsg = 0
	sinkMsg   = 1
)

// runClient pings a server.
func runClient(ctx context.Context, opt *options, out io.Writer) (err error) {
	id, err := resolve(ctx, opt)
	if err != nil {
		return err
	}
	l, err := newLink(opt, out, id)
	if err != nil {
		return err
	}
	defer func() {
		up := l.up
		closeErr := l.close()
		if up && closeErr == nil {
			fmt.Fprintln(os.Stderr, "client DISCONNECT EVENT...")
		}
		err = errors.Join(err, closeErr)
	}()
	c := &client{link: l}
	if c.source, err = l.buffer(id.AllocRead); err != nil {
		return err
	}
	if c.sink, err = l.buffer(id.AllocWrite); err != nil {
		return err
	}
	l.compose(sourceMsg, c.source)
	l.compose(sinkMsg, c.sink)
	if err := l.connect(ctx); err != nil {
		return err
	}
	return c.pings(ctx)
}

// resolve creates an id and resolves the server's address and route.
func resolve(ctx context.Context, opt *options) (*cm.SyncID, error) {
	dst, err := rdmaaddr.Host(ctx, opt.host)
	if err != nil {
		return nil, err
	}
	src, err := rdmaaddr.Host(ctx, opt.source)
	if err != nil {
		return nil, err
	}
	id, err := cm.NewID(cm.PSTCP)
	if err != nil {
		return nil, err
	}
	if err := id.ResolveAddr(ctx, netip.AddrPortFrom(src, 0), netip.AddrPortFrom(dst, opt.port),
		resolveTimeout); err != nil {
		return nil, errors.Join(err, id.Close())
	}
	if err := id.ResolveRoute(ctx, resolveTimeout); err != nil {
		return nil, errors.Join(err, id.Close())
	}
	return id, nil
}

// connect connects to the server.
func (l *link) connect(ctx context.Context) error {
	p := &connParam
	if l.own != nil {
		p = l.own.param(connParam)
	}
	if err := l.id.Connect(ctx, p); err != nil {
		return err
	}
	if l.own != nil {
		// The server has accepted. Establish acknowledges that.
		if err := l.own.ready(); err != nil {
			return err
		}
		if err := l.id.Establish(); err != nil {
			return err
		}
	}
	l.up = true
	l.debugf("connected to %v from %v", l.id.RemoteAddr(), l.id.LocalAddr())
	return nil
}

func (c *client) pings(ctx context.Context) error {
	for ping := 0; c.opt.count == 0 || ping < c.opt.count; ping++ {
		putText(c.source.Bytes(), ping)
		if err := c.ping(ctx, ping); err != nil {
			return fmt.Errorf("ping %d: %w", ping, err)
		}
		if c.opt.validate {
			if err := compare(c.sink.Bytes(), c.source.Bytes()); err != nil {
				return fmt.Errorf("ping %d: %w", ping, err)
			}
		}
		if c.opt.verbose {
			if err := show(c.out, "ping data", c.sink.Bytes()); err != nil {
				return err
			}
		}
	}
	return nil
}

// signalEvery is the number of pings for each signaled SEND. A ping has two SENDs,
// so half of the send queue is used between two completions.
const signalEvery = sendDepth / 2 / 2

// ping lets the server READ the text and WRITE it back.
func (c *client) ping(ctx context.Context, ping int) error {
	if err := c.send(sourceMsg, 0); err != nil {
		return err
	}
	if _, err := c.receive(ctx); err != nil {
		return err
	}
	signal := ping%signalEvery == signalEvery-1
	var f uverbs.SendFlags
	if signal {
		f = uverbs.Signaled
	}
	if err := c.send(sinkMsg, f); err != nil {
		return err
	}
	if _, err := c.receive(ctx); err != nil || !signal {
		return err
	}
	return c.complete(ctx, c.sends)
}

// show prints a text as the C program does.
func show(w io.Writer, label string, text []byte) error {
	if n := textLen(text); n > 0 && text[n-1] == 0 {
		text = text[:n-1]
	}
	_, err := fmt.Fprintf(w, "%s: %s\n", label, text)
	return err
}
