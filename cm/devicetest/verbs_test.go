package devicetest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// buffer returns registered memory of an id, which is deregistered when the test ends.
func buffer(t testing.TB, i *cm.ID, n int) *uverbs.MR {
	t.Helper()
	mr := must(i.AllocMsgs(n))(t)
	closing(t, mr)
	return mr
}

// TestDevicePostRecvEarly posts receives before the connection is established: "Messages may be posted to an rdma_cm_id
// only after a queue pair has been associated with it" (rdma_post_recv(3)).
func TestDevicePostRecvEarly(t *testing.T) {
	begin(t)
	k := newTalk(t)
	_, to := k.listen(t, cm.PSTCP, at(deviceIP, 0))
	client := k.id(t, cm.PSTCP)
	isError(t, client.PostRecv(1, uverbs.SGE{}), []error{cm.ErrNoQP}, "CreateQP")
	k.resolve(t, client, to)
	isError(t, client.PostRecv(1, uverbs.SGE{}), []error{cm.ErrNoQP})
	check(t, client.CreateQP(nil, small()))
	mr := buffer(t, client, 64)
	check(t, client.PostRecv(1, mr.SGE(0, 64)))
	check(t, client.Connect(nil))
	child := k.good(t, cm.EventConnectRequest, nil).ID
	closing(t, child)
	check(t, child.CreateQP(nil, small()))
	check(t, child.Accept(nil))
	k.established(t, client, child)
	check(t, child.PostSendInline(2, uverbs.Signaled, []byte("early bird")))
	if wc := must(client.RecvComp(k.ctx))(t); wc.WRID != 1 || string(mr.Bytes()[:wc.ByteLen]) != "early bird" {
		t.Errorf("%+v", wc)
	}
}

// TestDevicePostSendEarly posts before the connection is established: "Send operations may not be posted to an
// rdma_cm_id or the corresponding queue pair until it has been connected" (rdma_post_send(3), and similarly
// rdma_post_read(3) and rdma_post_write(3)). A UD QP needs no connection.
func TestDevicePostSendEarly(t *testing.T) {
	begin(t)
	k := newTalk(t)
	_, to := k.listen(t, cm.PSTCP, at(deviceIP, 0))
	client, child := k.request(t, cm.PSTCP, to, nil)
	mr := buffer(t, client, 64)
	sge := mr.SGE(0, 8)
	sends := map[string]func() error{
		"send":         func() error { return client.PostSend(1, 0, sge) },
		"sendv":        func() error { return client.PostSend(1, 0, sge, sge) },
		"inline":       func() error { return client.PostSendInline(1, 0, []byte("x")) },
		"read":         func() error { return client.PostRead(1, 0, mr.Addr(), mr.RKey(), sge) },
		"readv":        func() error { return client.PostRead(1, 0, mr.Addr(), mr.RKey(), sge, sge) },
		"write":        func() error { return client.PostWrite(1, 0, mr.Addr(), mr.RKey(), sge) },
		"writev":       func() error { return client.PostWrite(1, 0, mr.Addr(), mr.RKey(), sge, sge) },
		"write inline": func() error { return client.PostWriteInline(1, 0, mr.Addr(), mr.RKey(), []byte("x")) },
	}
	for name, send := range sends {
		if err := send(); !errors.Is(err, uverbs.ErrState) || !errors.Is(err, unix.EINVAL) {
			t.Errorf("%s before the connection: %v", name, err)
		}
	}
	check(t, child.Accept(nil))
	k.established(t, client, child)
	carries(t, client, child, "now")
	check(t, client.Close())
	for name, send := range sends {
		if err := send(); !errors.Is(err, uverbs.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}

	if rnic() {
		return // it has no datagrams
	}
	k = newTalk(t)
	ud := k.member(t, deviceIP)
	isError(t, ud.PostUDSendInline(1, 0, nil, 1, nil), []error{uverbs.ErrNoAH})
	_, where := k.join(t, ud, "239.1.2.20", cm.JoinFull)
	ah := must(ud.PD().CreateAH(where.AH))(t)
	defer ah.Close()
	check(t, ud.PostUDSendInline(1, uverbs.Signaled, ah, where.QPN, []byte("unconnected")))
	must(ud.SendComp(k.ctx))(t)
}

// TestDeviceInlineUnregistered sends inline data from unregistered memory: "Unless the send request is using inline
// data, the message buffer must have been registered" (rdma_post_send(3)).
func TestDeviceInlineUnregistered(t *testing.T) {
	begin(t)
	k := newTalk(t)
	client, child := k.pair(t)
	mr := buffer(t, child, 64)
	check(t, child.PostRecv(1, mr.SGE(0, 64)))
	data := []byte("from the heap")
	check(t, client.PostSendInline(2, uverbs.Signaled, data))
	clear(data) // it has been copied
	must(client.SendComp(k.ctx))(t)
	wc := must(child.RecvComp(k.ctx))(t)
	if got := string(mr.Bytes()[:wc.ByteLen]); got != "from the heap" {
		t.Errorf("%q arrived", got)
	}
	isError(t, client.PostSendInline(1, 0, make([]byte, 1<<16)), []error{uverbs.ErrInlineTooLong})
	closed := must(client.AllocMsgs(64))(t)
	check(t, closed.Close())
	isError(t, client.PostSend(1, 0, closed.SGE(0, 64)), []error{uverbs.ErrRange})
	isError(t, client.PostRecv(1, closed.SGE(0, 64)), []error{uverbs.ErrRange})
}

// TestDeviceSRQ checks that a receive on an id with an SRQ is posted to the SRQ: "the SRQ will be ready to handle
// posting of receives" (rdma_create_srq(3)).
func TestDeviceSRQ(t *testing.T) {
	begin(t)
	k := newTalk(t)
	_, to := k.listen(t, cm.PSTCP, at(deviceIP, 0))
	client, child := k.id(t, cm.PSTCP), (*cm.ID)(nil)
	k.resolve(t, client, to)
	check(t, client.CreateQP(nil, small()))
	check(t, client.Connect(nil))
	child = k.good(t, cm.EventConnectRequest, nil).ID
	closing(t, child)
	check(t, child.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 8, MaxSGE: 2}))
	// "An rdma_cm_id may only be associated with a single SRQ" (rdma_create_srq(3)).
	isError(t, child.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 8}), []error{uverbs.ErrInvalid})
	mr := buffer(t, child, 128)
	check(t, child.PostRecv(1, mr.SGE(0, 64))) // before the QP exists
	check(t, child.CreateQP(nil, small()))
	check(t, child.PostRecv(2, mr.SGE(64, 4), mr.SGE(68, 60)))
	if _, err := child.QP().PostRecv(uverbs.RecvWR{}); !errors.Is(err, uverbs.ErrSRQ) {
		t.Errorf("a receive on the QP itself: %v", err)
	}
	check(t, child.Accept(nil))
	if e := k.established(t, client, child); !e.Conn.SRQ && !rnic() { // MPA does not say it
		t.Error("the peer does not hear of the SRQ")
	}
	for n, text := range []string{"first", "second"} {
		check(t, client.PostSendInline(9, uverbs.Signaled, []byte(text)))
		must(client.SendComp(k.ctx))(t)
		wc := must(child.RecvComp(k.ctx))(t)
		if got := mr.Bytes()[64*n:][:wc.ByteLen]; string(got) != text || wc.WRID != uint64(n+1) {
			t.Errorf("%+v brought %q", wc, got)
		}
	}
	isError(t, child.DestroySRQ(), []error{uverbs.ErrBusy})
	check(t, child.DestroyQP())
	check(t, child.DestroySRQ())
	if child.SRQ() != nil {
		t.Error("the destroyed SRQ is still there")
	}
}

// TestDeviceSharedSRQ uses one SRQ for several ids.
func TestDeviceSharedSRQ(t *testing.T) {
	begin(t)
	k := newTalk(t)
	l, to := k.listen(t, cm.PSTCP, at(deviceIP, 0))
	check(t, l.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 8}))
	mr := buffer(t, l, 128)
	check(t, l.PostRecv(0, mr.SGE(0, 64)))
	check(t, l.PostRecv(1, mr.SGE(64, 64)))
	cfg := small()
	cfg.SRQ = l.SRQ()
	for n := range uint64(2) {
		client := k.id(t, cm.PSTCP)
		k.resolve(t, client, to)
		check(t, client.CreateQP(nil, small()))
		check(t, client.Connect(nil))
		child := k.good(t, cm.EventConnectRequest, nil).ID
		defer child.Close()
		check(t, child.CreateQP(nil, cfg))
		check(t, child.Accept(nil))
		k.established(t, client, child)
		check(t, client.PostSendInline(1, 0, []byte{byte(n)}))
		if wc := must(child.RecvComp(k.ctx))(t); wc.WRID != n || wc.QPNum != child.QP().QPN() || mr.Bytes()[64*n] != byte(n) {
			t.Errorf("connection %d: %+v", n, wc)
		}
	}
}

// TestDeviceReadWrite checks the requests of rdma_post_read(3), rdma_post_readv(3), rdma_post_write(3) and
// rdma_post_writev(3), and what each registration allows.
func TestDeviceReadWrite(t *testing.T) {
	begin(t)
	k := newTalk(t)
	client, child := k.pair(t)
	local := buffer(t, client, 128)
	// "Memory buffers registered using rdma_reg_read may be targeted in an RDMA read request" (rdma_reg_read(3)).
	source := must(child.RegRead(bytes.Repeat([]byte("read me "), 8)))(t)
	closing(t, source)
	check(t, client.PostRead(1, uverbs.Signaled, source.Addr(), source.RKey(), local.SGE(0, 64)))
	if wc := must(client.SendComp(k.ctx))(t); wc.WRID != 1 || wc.Opcode != uverbs.WCRead ||
		!bytes.Equal(local.Bytes()[:64], source.Bytes()) {
		t.Errorf("%+v: %q", wc, local.Bytes()[:64])
	}
	if rnic() { // a READ has one SGE
		check(t, client.PostRead(2, uverbs.Signaled, source.Addr(), source.RKey(), local.SGE(64, 4)))
		copy(local.Bytes()[100:104], " me ")
	} else {
		check(t, client.PostRead(2, uverbs.Signaled, source.Addr(), source.RKey(), local.SGE(64, 4), local.SGE(100, 4)))
	}
	must(client.SendComp(k.ctx))(t)
	if string(local.Bytes()[64:68])+string(local.Bytes()[100:104]) != "read me " {
		t.Errorf("%q", local.Bytes()[64:])
	}
	sink := must(child.AllocWrite(64))(t)
	closing(t, sink)
	check(t, client.PostWrite(3, uverbs.Signaled, sink.Addr(), sink.RKey(), local.SGE(0, 8)))
	must(client.SendComp(k.ctx))(t)
	check(t, client.PostWrite(4, uverbs.Signaled, sink.Addr()+8, sink.RKey(), local.SGE(0, 4), local.SGE(4, 4)))
	must(client.SendComp(k.ctx))(t)
	check(t, client.PostWriteInline(5, uverbs.Signaled, sink.Addr()+16, sink.RKey(), []byte("written.")))
	must(client.SendComp(k.ctx))(t)
	carries(t, client, child, "after them") // on iWARP, a WRITE has completed when it was sent
	if got := string(sink.Bytes()[:24]); got != "read me read me written." {
		t.Errorf("%q was written", got)
	}
	// The peer cannot read memory that is registered for messages.
	check(t, client.PostRead(6, uverbs.Signaled, buffer(t, child, 8).Addr(), source.RKey(), local.SGE(0, 8)))
	want := uverbs.WCRemAccessErr
	if rnic() { // the peer ends the connection
		want = uverbs.WCWRFlushErr
	}
	if wc, err := client.SendComp(k.ctx); !errors.Is(err, want) || wc.WRID != 6 {
		t.Errorf("%+v, %v", wc, err)
	}
}

// TestDeviceOneCompletion checks that completions are returned one at a time, "with the wr_id set to the context of the
// request", and in the order of posting: "Returns the number of returned completions (0 or 1)" (rdma_get_send_comp(3)).
func TestDeviceOneCompletion(t *testing.T) {
	begin(t)
	k := newTalk(t)
	client, child := k.pair(t)
	mr := buffer(t, child, 256)
	for n := range uint64(4) {
		check(t, child.PostRecv(100+n, mr.SGE(int(n)*64, 64)))
	}
	for n := range uint64(4) {
		check(t, client.PostSendInline(1<<63|n, uverbs.Signaled, []byte{byte(n)}))
	}
	for n := range uint64(4) {
		if wc := must(client.SendComp(k.ctx))(t); wc.WRID != 1<<63|n {
			t.Errorf("send %d: %+v", n, wc)
		}
		if wc := must(child.RecvComp(k.ctx))(t); wc.WRID != 100+n || mr.Bytes()[n*64] != byte(n) {
			t.Errorf("receive %d: %+v", n, wc)
		}
	}
	ctx, cancel := context.WithCancelCause(k.ctx)
	cancel(errCut)
	for _, err := range []error{second(client.SendComp(ctx)), second(child.RecvComp(ctx))} {
		isError(t, err, []error{errCut})
	}
}
