package cm

import (
	"context"
	"testing"
	"time"
)

// TestBatchOwnerRecvComp checks that RecvComp returns when the connection ends, if it is called by the goroutine that
// has an open SendBatch. The QP cannot be flushed before the batch is closed.
func TestBatchOwnerRecvComp(t *testing.T) {
	newRig(t)
	l := closing(t, good(Listen("192.0.2.1:0", nil))(t))
	done := dialing(t, l)
	a := closing(t, good(l.Accept(limit(t)))(t))
	d := dialed(t, done)
	b := a.QP().StartSend()
	defer b.Abort()
	check(t, d.ID().ID.Disconnect())
	<-a.Disconnected()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	is(t, "RecvComp", second(a.RecvComp(ctx)), ErrDisconnected)
}

// TestBatchOwnerRecvCompAsync checks the same if the event that ends the connection is read from a channel.
func TestBatchOwnerRecvCompAsync(t *testing.T) {
	newRig(t)
	k := newTalk(t)
	a, p := k.pair()
	b := p.QP().StartSend()
	defer b.Abort()
	check(t, a.Disconnect())
	k.next(EventDisconnected, p)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	is(t, "RecvComp", second(p.RecvComp(ctx)), ErrDisconnected)
}
