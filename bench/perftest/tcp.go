package perftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
)

// A tcpWire is a wire over TCP. A goroutine reads the connection, so that its end is
// noticed while no goroutine waits for a message.
type tcpWire struct {
	conn net.Conn
	done chan struct{} // closed when the goroutine returns

	mu      sync.Mutex
	in      []byte
	err     error         // why the connection ended
	changed chan struct{} // closed and replaced when in or err changes
}

// maxPending is more than a peer sends before it waits for a reply.
const maxPending = 1 << 16

func newTCPWire(conn net.Conn) *tcpWire {
	w := &tcpWire{conn: conn, done: make(chan struct{}), changed: make(chan struct{})}
	go w.read()
	return w
}

func (w *tcpWire) read() {
	defer close(w.done)
	buf := make([]byte, 4096)
	for {
		n, err := w.conn.Read(buf)
		w.mu.Lock()
		w.in = append(w.in, buf[:n]...)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET):
			w.err = errPeerClosed
		case err != nil:
			w.err = err
		case len(w.in) > maxPending:
			w.err = atPeer("", "the peer sends more than perftest does: does it use another protocol?")
		}
		end := w.err != nil
		close(w.changed)
		w.changed = make(chan struct{})
		w.mu.Unlock()
		if end {
			return
		}
	}
}

func (w *tcpWire) state() (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.in), w.err
}

func (w *tcpWire) receive(ctx context.Context, message []byte) error {
	for {
		w.mu.Lock()
		if mismatch := keysMismatch(w.in, len(message)); mismatch != nil {
			w.mu.Unlock()
			return mismatch
		}
		if len(w.in) >= len(message) {
			w.in = w.in[copy(message, w.in):]
			w.mu.Unlock()
			return nil
		}
		in, err, changed := w.in, w.err, w.changed
		w.mu.Unlock()
		if err != nil && len(in) > 0 {
			return fmt.Errorf("%w; it sent: %q", err, in[:min(len(in), 64)])
		}
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// keysMismatch returns an error if the peer's keys have a GID and those of this end do
// not, or vice versa. Keys with a GID are longer.
func keysMismatch(in []byte, want int) error {
	switch {
	case want == gidKeys && len(in) >= plainKeys && in[plainKeys-1] == 0:
		return atPeer("-x", "the peer uses no GID, and this end does: on InfiniBand give -x to both ends or to none")
	case want == plainKeys && len(in) >= plainKeys && in[plainKeys-1] != 0:
		return here("-x", "the peer uses a GID, and this end does not: on InfiniBand give -x to both ends or to none")
	}
	return nil
}

// send sends the message with one write, because perftest reads each message with one
// read.
func (w *tcpWire) send(ctx context.Context, message []byte) error {
	deadline, _ := ctx.Deadline() // a zero deadline resets that of an earlier message
	if err := w.conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	if _, err := w.conn.Write(message); err != nil {
		if _, gone := w.state(); gone != nil {
			return gone
		}
		if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
			return errPeerClosed
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}

func (w *tcpWire) close() error {
	err := w.conn.Close()
	<-w.done
	return err
}

// dialTCP connects to the server.
func dialTCP(ctx context.Context, o *Options) (wire, error) {
	d := net.Dialer{Timeout: patience}
	if o.SourceIP != "" {
		source, err := netip.ParseAddr(o.SourceIP)
		if err != nil {
			return nil, here("--bind_source_ip", "%v", err)
		}
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	conn, err := retryRefused(ctx, func() (net.Conn, error) {
		return d.DialContext(ctx, o.network(), net.JoinHostPort(o.Server, strconv.Itoa(o.Port)))
	})
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil, fmt.Errorf("%w: start the server first, with the same -p; a server with -R or -z needs a client with "+
			"the same option, and each serves one client only", err)
	}
	if err != nil {
		return nil, err
	}
	return newTCPWire(conn), nil
}

// acceptTCP accepts one client.
func acceptTCP(ctx context.Context, o *Options) (wire, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, o.network(), net.JoinHostPort(o.SourceIP, strconv.Itoa(o.Port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%w: another server listens there; choose another -p, the same at both ends", err)
	}
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	o.waiting()
	conn, err := l.Accept()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	} else if e := l.Close(); err == nil && e != nil {
		err = e
	}
	if err != nil {
		if conn != nil {
			err = errors.Join(err, conn.Close())
		}
		return nil, err
	}
	return newTCPWire(conn), nil
}

// network returns the network: IPv4, as in perftest, unless --ipv6-addr is given.
func (o *Options) network() string { return choose(o.IPv6Addr, "tcp6", "tcp4") }
