package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// A link is one end of a connection: the id, its queue pair, and the memory of
// the messages. It belongs to one goroutine.
type link struct {
	opt *options
	out io.Writer
	id  *cm.SyncID
	own *ownQP // with -q

	qp    *uverbs.QP // the id's, or with -q the program's own
	sends *uverbs.CQ // of SEND, READ and WRITE
	recvs *uverbs.CQ
	msgs  *uverbs.MR   // a message that arrives, and outbox messages to send
	bufs  []*uverbs.MR // the memory of the pings
	wc    [1]uverbs.WC
	up    bool // the connection stands
}

const (
	sendDepth = 16
	recvDepth = 2
	outbox    = 2
)

// errLeft says that the peer has ended the connection.
var errLeft = errors.New("the peer has disconnected: its own output says why")

// connParam is what the C program connects with: one READ at a time.
var connParam = cm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7}

// newLink makes a link of an id that is bound to a device, with the first
// receive posted: the peer may send as soon as it hears that the connection
// stands. The link owns the id, also when there is an error.
func newLink(opt *options, out io.Writer, id *cm.SyncID) (*link, error) {
	l := &link{opt: opt, out: out, id: id}
	if err := l.prepare(); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return l, nil
}

func (l *link) prepare() (err error) {
	cfg := uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: sendDepth, MaxRecvWR: recvDepth}
	if l.opt.ownQP {
		if l.own, err = newOwnQP(l.id, cfg); err != nil {
			return err
		}
		l.qp = l.own.qp
	} else {
		if err := l.id.CreateQP(nil, cfg); err != nil {
			return err
		}
		l.qp = l.id.QP()
	}
	l.sends, l.recvs = l.qp.SendCQ(), l.qp.RecvCQ()
	l.debugf("created qp %d on %s", l.qp.QPN(), l.id.Verbs().Name())
	if l.msgs, err = l.id.AllocMsgs((1 + outbox) * messageSize); err != nil {
		return err
	}
	return l.postRecv()
}

// buffer makes the memory of pings: by one of the id's Alloc methods, which
// differ in what the peer may do.
func (l *link) buffer(alloc func(n int) (*uverbs.MR, error)) (*uverbs.MR, error) {
	mr, err := alloc(l.opt.size)
	if err == nil {
		l.bufs = append(l.bufs, mr)
	}
	return mr, err
}

// compose writes a message to the outbox that names a buffer.
func (l *link) compose(slot int, mr *uverbs.MR) {
	m := message{addr: mr.Addr(), rkey: mr.RKey(), size: uint32(mr.Len())}
	m.put(l.msgs.Bytes()[(1+slot)*messageSize:])
	l.debugf("RDMA addr %x rkey %x len %d", m.addr, m.rkey, m.size)
}

func (l *link) postRecv() error {
	_, err := l.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{l.msgs.SGE(0, messageSize)}})
	return err
}

// send posts a message of the outbox. Only a signaled one completes.
func (l *link) send(slot int, f uverbs.SendFlags) error {
	_, err := l.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: f,
		SGL: []uverbs.SGE{l.msgs.SGE((1+slot)*messageSize, messageSize)}})
	return err
}

// rdma does a READ or WRITE of the peer's memory, and waits for its end.
func (l *link) rdma(ctx context.Context, op uverbs.Opcode, local uverbs.SGE, remote message) error {
	_, err := l.qp.PostSend(uverbs.SendWR{Opcode: op, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{local}, RemoteAddr: remote.addr, RKey: remote.rkey})
	if err != nil {
		return err
	}
	return l.complete(ctx, l.sends)
}

// receive waits for the peer's next message, and makes room for the one after
// it, which the peer does not send before it has an answer to this.
func (l *link) receive(ctx context.Context) (message, error) {
	if err := l.complete(ctx, l.recvs); err != nil {
		return message{}, err
	}
	m, err := parseMessage(l.msgs.Bytes()[:min(l.wc[0].ByteLen, messageSize)])
	if err != nil {
		return m, err
	}
	if l.opt.debug {
		l.debugf("received rkey %x addr %x len %d from peer", m.rkey, m.addr, m.size)
	}
	return m, l.postRecv()
}

// complete waits for one completion.
func (l *link) complete(ctx context.Context, cq *uverbs.CQ) error {
	if _, err := cq.PollWait(ctx, l.wc[:]); err != nil {
		return err
	}
	if err := l.wc[0].Err(); err != nil {
		return l.explain(ctx, err)
	}
	return nil
}

// explain finds out why a request was flushed. Either another one has failed
// before, and its completion tells why, or the connection has ended.
func (l *link) explain(ctx context.Context, err error) error {
	if !errors.Is(err, uverbs.WCWRFlushErr) {
		return err
	}
	for _, cq := range []*uverbs.CQ{l.sends, l.recvs} {
		for range sendDepth {
			if n, pollErr := cq.Poll(l.wc[:]); n == 0 || pollErr != nil {
				break
			}
			if first := l.wc[0].Err(); first != nil && !errors.Is(first, uverbs.WCWRFlushErr) {
				return first
			}
		}
	}
	const grace = time.Second // the queues are flushed first
	select {
	case <-l.id.Disconnected():
		return errLeft
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(grace):
		return err
	}
}

// close ends the connection, if it stands, and lets go of everything.
func (l *link) close() error {
	var errs []error
	if l.up {
		errs = append(errs, l.disconnect())
	}
	if l.own != nil {
		errs = append(errs, l.own.close())
	} else {
		errs = append(errs, l.id.DestroyQP())
	}
	if l.msgs != nil {
		errs = append(errs, l.msgs.Close())
	}
	for _, mr := range l.bufs {
		errs = append(errs, mr.Close())
	}
	return errors.Join(append(errs, l.id.Close())...)
}

// disconnect has a time of its own: the program may be on its way out.
func (l *link) disconnect() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 5*time.Second,
		errors.New("the peer does not answer the disconnect request"))
	defer cancel()
	return l.id.Disconnect(ctx)
}

// debugf prints a step. On the way of every ping the caller looks at opt.debug
// first, so that the arguments cost nothing.
func (l *link) debugf(format string, args ...any) {
	if l.opt.debug {
		fmt.Fprintf(l.out, format+"\n", args...)
	}
}
