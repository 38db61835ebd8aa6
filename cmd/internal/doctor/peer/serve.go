package peer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// MaxMessage is the length of the longest message in bytes.
const MaxMessage = 1 << 20

// The limits of the listening end: the time of a peer, how many are served at a time, how many more are told at a time
// that they are not served, and the time of each of these.
const (
	peerTimeout   = 2 * time.Minute
	maxPeers      = 64
	maxRefusals   = 64
	refuseTimeout = time.Second
)

// ListenOptions returns the options of the listener for Serve. Peers whose connections end have a place until both ends
// know it, so there are more places than peers.
func ListenOptions() *rdma.ListenOptions {
	return &rdma.ListenOptions{Options: rdma.Options{MaxMessage: MaxMessage}, MaxConns: 2 * maxPeers}
}

// Serve serves peers until ctx ends. It closes both listeners, which listen at the same port. If it serves 64 peers,
// it tells the next ones so.
func Serve(ctx context.Context, l net.Listener, r *rdma.Listener) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Serve(ctx, serveConn); err != nil {
			cancel(err)
		}
	})
	wg.Go(func() {
		<-ctx.Done()
		_ = l.Close() // Accept reports net.ErrClosed
	})
	peers, refusals := make(places, maxPeers), make(places, maxRefusals)
	for {
		c, err := l.Accept()
		if err != nil {
			cancel(err)
			break
		}
		serve := func() { _ = serveHello(ctx, c) } // the client reports what fails
		refuse := func() { _ = errors.Join(refuse(ctx, c, &hello{Busy: maxPeers}), c.Close()) }
		if !peers.run(&wg, serve) && !refusals.run(&wg, refuse) {
			_ = c.Close() // of a peer that gets no reply
		}
	}
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// places limits how many functions run at a time.
type places chan struct{}

// run runs f on a new goroutine, if there is a place. It reports whether there is.
func (p places) run(wg *sync.WaitGroup, f func()) bool {
	select {
	case p <- struct{}{}:
		wg.Go(func() {
			f()
			<-p
		})
		return true
	default:
		return false
	}
}

// refuse tells a peer why it is not served. It reads the peer's hello first: closing a connection with data that was
// not read may discard what was sent.
func refuse(ctx context.Context, c net.Conn, why *hello) error {
	ctx, cancel := context.WithTimeout(ctx, refuseTimeout)
	defer cancel()
	why.Version = version
	_, err := exchange(ctx, c, why, false)
	return err
}

// serveHello exchanges hellos, and replies to datagrams until the peer closes the connection.
func serveHello(ctx context.Context, c net.Conn) (err error) {
	defer func() { err = errors.Join(err, c.Close()) }()
	e, err := openEnd(ipOf(c.LocalAddr()))
	if err != nil {
		return errors.Join(err, refuse(ctx, c, &hello{Fault: err.Error()}))
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	d, err := newDatagrams(e)
	if err != nil {
		return errors.Join(err, refuse(ctx, c, &hello{Fault: err.Error()}))
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	ctx, cancel := context.WithTimeout(ctx, peerTimeout)
	defer cancel()
	short, cancelShort := context.WithTimeout(ctx, connectTimeout)
	defer cancelShort()
	theirs, err := exchange(short, c, e.hello(d), false)
	if err != nil || theirs.Datagrams == nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, c) // until the peer closes its end
		cancel()
	}()
	context.AfterFunc(ctx, func() { _ = c.Close() })
	return d.echo(ctx, *theirs.Datagrams)
}

// serveConn shares memory with a peer and replies to its calls: an empty one with the checksum of the memory, any other
// with what it contains.
func serveConn(ctx context.Context, c *rdma.Conn) (err error) {
	region := rdma.NewRegion(regionSize)
	defer func() { err = errors.Join(err, region.Close()) }()
	pattern(region.Bytes()[:regionSize-8], seedOffered)
	if _, err := c.SendToken(ctx, region, rdma.CanRead|rdma.CanWrite|rdma.CanAtomic); err != nil {
		return fmt.Errorf("share memory with %v: %w", c.RemoteAddr(), err)
	}
	return c.ServeCalls(ctx, func(request []byte) []byte {
		if len(request) > 0 {
			return request
		}
		return binary.BigEndian.AppendUint32(nil, sum(region.Bytes()[:regionSize-8]))
	})
}
