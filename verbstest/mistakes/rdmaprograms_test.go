package mistakes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
)

// Each of these programs uses package rdma and makes one mistake, in the line with the comment, and returns what it
// sees of it. addr is an address of the machine.

// A link is a connection of a program to itself, with memory that the server shares.
type link struct {
	listener       *rdma.Listener
	client, server *rdma.Conn
	region         *rdma.Region
}

var background = context.Background()

func newLink(addr string) *link {
	l := &link{listener: must(rdma.Listen(addr+":0", nil)), region: rdma.NewRegion(size)}
	l.client, l.server = l.dial()
	return l
}

// dial returns both ends of another connection.
func (l *link) dial() (client, server *rdma.Conn) {
	accepted := make(chan *rdma.Conn)
	go func() { accepted <- must(l.listener.Accept(background)) }()
	client = must(rdma.Dial(background, l.listener.Addr().String(), nil))
	return client, <-accepted
}

// share returns what the client may use.
func (l *link) share(rights rdma.Rights) rdma.Token {
	return must(l.server.Share(background, l.region, rights)).Token()
}

// end closes the link after a mistake that may have ended the connection.
func (l *link) end(more ...*rdma.Conn) {
	for _, c := range append(more, l.client, l.server) {
		if err := c.Close(); err != nil && !errors.Is(err, rdma.ErrDisconnected) && !errors.Is(err, rdma.ErrUndelivered) &&
			!errors.As(err, new(uverbs.WCStatus)) {
			panic(err)
		}
	}
	check(errors.Join(l.region.Close(), l.listener.Close()))
}

// see describes an error by its cause.
func see(err error) string {
	var status uverbs.WCStatus
	if errors.As(err, &status) {
		return strings.TrimPrefix(status.Error(), "uverbs: completion failed: ")
	}
	return fmt.Sprint(errors.Unwrap(err))
}

func forgedKey(addr string) string {
	l := newLink(addr)
	defer l.end()
	token := l.share(rdma.CanRead)
	token.Key ^= keys
	return see(l.client.Read(background, make([]byte, 64), token, 0)) // mistake
}

func revokedToken(addr string) string {
	l := newLink(addr)
	defer l.end()
	s := must(l.server.Share(background, l.region, rdma.CanRead))
	check(s.Revoke())
	return see(l.client.Read(background, make([]byte, 64), s.Token(), 0)) // mistake
}

func forgedLength(addr string) string {
	l := newLink(addr)
	defer l.end()
	token := l.share(rdma.CanWrite)
	token.Len += 64
	return see(l.client.Write(background, make([]byte, 64), token, size-32)) // mistake
}

func forgedRights(addr string) string {
	l := newLink(addr)
	defer l.end()
	token := l.share(rdma.CanRead)
	token.Rights |= rdma.CanWrite
	return see(l.client.Write(background, make([]byte, 64), token, 0)) // mistake
}

func tokenOfOtherConnection(addr string) string {
	l := newLink(addr)
	other, itsPeer := l.dial()
	defer l.end(other, itsPeer)
	return see(other.Read(background, make([]byte, 64), l.share(rdma.CanRead), 0)) // mistake
}

func outOfBounds(addr string) string {
	l := newLink(addr)
	defer l.end()
	return see(l.client.Read(background, make([]byte, 64), l.share(rdma.CanRead), size-32))
}

func withoutRight(addr string) string {
	l := newLink(addr)
	defer l.end()
	return see(l.client.Write(background, make([]byte, 64), l.share(rdma.CanRead), 0))
}

func misalignedCounter(addr string) string {
	l := newLink(addr)
	defer l.end()
	_, err := l.client.FetchAdd(background, l.share(rdma.CanAtomic), 4, 1)
	return see(err)
}

func groupNotReceiving(string) string {
	const depth = 4
	o := &rdma.GroupOptions{Depth: depth}
	a, b := must(rdma.JoinGroup(background, "239.1.2.3", o)), must(rdma.JoinGroup(background, "239.1.2.3", o))
	defer func() { check(errors.Join(a.Close(), b.Close())) }()
	check(b.Send(background, []byte("hello")))
	d := must(a.Recv(background))
	d.Release()
	check(a.SendTo(background, []byte("hello"), d.From())) // a goroutine sends it when the address is known
	received := must(b.Recv(background))
	received.Release()
	for range 64 * depth {
		check(a.SendTo(background, []byte("hello"), d.From())) // mistake
	}
	return "nothing"
}

func connectionUsedAfterClose(addr string) string {
	l := newLink(addr)
	defer l.end()
	check(l.client.Close())
	return see(l.client.Send(background, []byte("hello")))
}

func connectionNotClosed(addr string) string {
	l := must(rdma.Listen(addr+":0", nil))
	accepted := make(chan *rdma.Conn)
	go func() { accepted <- must(l.Accept(background)) }()
	must(rdma.Dial(background, l.Addr().String(), nil)) // mistake
	check(errors.Join((<-accepted).Close(), l.Close()))
	return "nothing"
}

func acceptedNotClosed(addr string) string {
	l := must(rdma.Listen(addr+":0", nil))
	dialed := make(chan *rdma.Conn)
	go func() { dialed <- must(rdma.Dial(background, l.Addr().String(), nil)) }()
	must(l.Accept(background)) // mistake
	check(errors.Join((<-dialed).Close(), l.Close()))
	return "nothing"
}

func messageNotReleased(addr string) string {
	l := newLink(addr)
	defer l.end()
	check(l.client.Send(background, []byte("hello")))
	must(l.server.Recv(background)) // mistake
	return "nothing"
}

func bufferNotReleased(addr string) string {
	l := newLink(addr)
	defer l.end()
	must(l.client.Alloc(64)) // mistake
	return "nothing"
}

// bothSend has both sides send without end, from the goroutine that is to receive afterwards.
func bothSend(addr string) string {
	l := newLink(addr)
	defer l.end()
	ctx, cancel := context.WithTimeout(background, time.Second)
	defer cancel()
	errs := make(chan error)
	for _, c := range []*rdma.Conn{l.client, l.server} {
		go func() {
			var err error
			for err == nil {
				err = c.Send(ctx, []byte("hello"))
			}
			errs <- err
		}()
	}
	seen := see(<-errs)
	<-errs
	return seen
}
