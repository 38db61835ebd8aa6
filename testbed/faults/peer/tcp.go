package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// tcpLines connects QPs with a handshake over a TCP connection, which stays open as long
// as the QPs are connected.
type tcpLines struct {
	p *peer
	l *net.TCPListener
}

func (t *tcpLines) listen(addr string) error {
	l, err := net.Listen("tcp", addr)
	if err == nil {
		t.l = l.(*net.TCPListener)
	}
	return err
}

func (t *tcpLines) close() error {
	if t.l == nil {
		return nil
	}
	return t.l.Close()
}

func (t *tcpLines) next(ctx context.Context) (line, error) {
	conn, err := t.connect(ctx)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	l := &tcpLine{conn: conn, closed: make(chan struct{}), byeReceived: make(chan struct{})}
	if err := l.begin(ctx, t.p); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (t *tcpLines) connect(ctx context.Context) (net.Conn, error) {
	if t.l == nil {
		ctx, cancel := context.WithTimeout(ctx, connectLimit)
		defer cancel()
		return new(net.Dialer).DialContext(ctx, "tcp", t.p.options.call)
	}
	stop := context.AfterFunc(ctx, func() { t.l.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	return t.l.Accept()
}

type tcpLine struct {
	conn        net.Conn
	q           queues
	remote      hello
	closed      chan struct{}
	byeReceived chan struct{} // closed when the other end has sent bye
	reader      sync.WaitGroup
}

// begin connects the QP and exchanges hellos. After that, either end may send.
func (l *tcpLine) begin(ctx context.Context, p *peer) (err error) {
	if l.q.cq, err = p.newCQ(); err != nil {
		return err
	}
	if l.q.qp, err = p.pd.CreateQP(qpConfig(l.q.cq)); err != nil {
		return err
	}
	if err := l.q.qp.Init(); err != nil {
		return err
	}
	if err := p.receiveAll(l.q.qp); err != nil {
		return err
	}
	if err := l.q.qp.Handshake(ctx, l.conn); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { l.conn.SetDeadline(time.Unix(1, 0)) })
	b, err := json.Marshal(p.hello())
	if err != nil {
		return err
	}
	if _, err := l.conn.Write(append(b, '\n')); err != nil {
		return err
	}
	r := bufio.NewReader(l.conn)
	text, err := r.ReadBytes('\n')
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &l.remote); err != nil {
		return err
	}
	if !stop() {
		return context.Cause(ctx)
	}
	l.reader.Go(func() { l.follow(r) })
	return nil
}

// follow waits for the other end's bye, and for the end of the connection.
func (l *tcpLine) follow(r *bufio.Reader) {
	defer close(l.closed)
	for {
		text, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if text == farewell {
			close(l.byeReceived)
		}
	}
}

const farewell = "bye\n"

func (l *tcpLine) remoteHello() hello            { return l.remote }
func (l *tcpLine) queues() *queues               { return &l.q }
func (l *tcpLine) disconnected() <-chan struct{} { return l.closed }

func (l *tcpLine) finish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	if _, err := l.conn.Write([]byte(farewell)); err != nil {
		return err
	}
	select {
	case <-l.byeReceived:
		return nil
	case <-l.closed:
		select {
		case <-l.byeReceived:
			return nil
		default:
			return errGone
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *tcpLine) close() error {
	err := l.conn.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	l.reader.Wait()
	if l.q.qp != nil {
		err = errors.Join(err, l.q.qp.Close())
	}
	if l.q.cq != nil {
		err = errors.Join(err, l.q.cq.Close())
	}
	return err
}
