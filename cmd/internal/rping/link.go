package rping

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// A link is one end of a connection: the id, its QP, and the memory of the
// messages. It must not be used concurrently.
type link struct {
	opt *options
	out io.Writer
	id  *cm.SyncID
	own *ownQP // with -q

	qp    *uverbs.QP // the id's, or with -q the program's own
	sends *uverbs.CQ // of SEND, READ and WRITE
	recvs *uverbs.CQ
	msgs  *uverbs.MR   // a received message, followed by outbox messages to send
	bufs  []*uverbs.MR // the memory of the pings
	wc    [1]uverbs.WC
	up    bool // the connection is established
}

const (
	sendDepth = 16
	recvDepth = 2
	outbox    = 2
)

// errDisconnected is the error of a request that does not complete, or is flushed,
// because the peer has disconnected.
var errDisconnected = errors.New("the peer has disconnected: see its output for the reason")

// connParam has the parameters of the C program: one outstanding READ.
var connParam = cm.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7}

// newLink returns a link for an id that is bound to a device. It posts the first
// receive, because the peer may send as soon as the connection is established. The
// link takes ownership of the id, even if newLink fails.
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

// buffer allocates memory for the pings with one of the id's Alloc methods, which
// differ in the access rights of the peer.
func (l *link) buffer(alloc func(n int) (*uverbs.MR, error)) (*uverbs.MR, error) {
	mr, err := alloc(l.opt.size)
	if err == nil {
		l.bufs = append(l.bufs, mr)
	}
	return mr, err
}

// compose writes a message with the address of a buffer to the outbox.
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

// rdma does a READ or WRITE of the peer's memory and waits for its completion.
func (l *link) rdma(ctx context.Context, op uverbs.Opcode, local uverbs.SGE, remote message) error {
	_, err := l.qp.PostSend(uverbs.SendWR{Opcode: op, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{local}, RemoteAddr: remote.addr, RKey: remote.rkey})
	if err != nil {
		return err
	}
	return l.complete(ctx, l.sends)
}

// receive waits for the peer's next message and posts a receive for the one after
// it, which the peer does not send before it has the reply to this one.
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
	if _, err := cq.PollWait(ctx, l.wc[:]); errors.Is(err, cm.ErrDisconnected) {
		return errDisconnected // the device has not flushed the request in time
	} else if err != nil {
		return err
	}
	if err := l.wc[0].Err(); err != nil {
		return l.explain(err)
	}
	return nil
}

// explain returns the reason why a request was flushed: the end of the connection, or the error of an earlier request.
func (l *link) explain(err error) error {
	switch {
	case !errors.Is(err, uverbs.WCWRFlushErr):
		return err
	case l.id.Err() != nil:
		return errDisconnected
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
	if l.sends.Context().Device().NodeType == uverbs.NodeRNIC {
		return errDisconnected // iWARP flushes before the event comes
	}
	return err
}

// close disconnects, if the connection is established, and closes all objects.
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

// disconnect uses its own timeout, because the program's context may be canceled.
func (l *link) disconnect() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), 5*time.Second,
		errors.New("the peer does not reply to the disconnect request"))
	defer cancel()
	return l.id.Disconnect(ctx)
}

// debugf prints a step with -d. In the loop of pings the caller checks opt.debug
// first, so that the arguments are not allocated.
func (l *link) debugf(format string, args ...any) {
	if l.opt.debug {
		fmt.Fprintf(l.out, format+"\n", args...)
	}
}
