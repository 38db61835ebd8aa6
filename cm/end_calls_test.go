package cm

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestCallsUnderClose checks that calls return ErrClosed while Close has closed the QP but not yet the id, also for a
// Group.
func TestCallsUnderClose(t *testing.T) {
	r := newRig(t)
	g := good(JoinMulticast(limit(t), group.String(), &Options{LocalAddr: at(here, 0)}))(t)
	_, release := blockDestroy(t, r)
	closing := make(chan error, 1)
	go func() { closing <- g.Close() }()
	until(t, "the QP is closed", func() bool { return g.QP() == nil })
	calls := map[string]func() error{
		"Group.PostSend": func() error { return g.PostSend(1, 0, uverbs.SGE{}) },
		"PostSend":       func() error { return g.id.PostSend(1, 0, uverbs.SGE{}) },
		"PostSendInline": func() error { return g.id.PostSendInline(1, 0, nil) },
		"PostRead":       func() error { return g.id.PostRead(1, 0, 0, 0, uverbs.SGE{}) },
		"PostUDSend":     func() error { return g.id.PostUDSend(1, 0, nil, 0, uverbs.SGE{}) },
		"PostRecv":       func() error { return g.PostRecv(1, uverbs.SGE{}) },
		"SendComp":       func() error { return second(g.SendComp(limit(t))) },
		"RecvComp":       func() error { return second(g.RecvComp(limit(t))) },
	}
	type result struct {
		name string
		err  error
	}
	results := make(chan result)
	for name, call := range calls {
		go func() { results <- result{name, call()} }()
	}
	release()
	for range calls {
		got := <-results
		is(t, got.name, got.err, uverbs.ErrClosed)
	}
	check(t, <-closing)
}

// TestSRQBeforeQP checks that receives are posted where the QP reads them: the id's SRQ must be created before the QP,
// and the QP cannot have another.
func TestSRQBeforeQP(t *testing.T) {
	newRig(t)
	s, other := newSyncID(t, PSUDP), newSyncID(t, PSUDP)
	for _, i := range []*SyncID{s, other} {
		check(t, i.Bind(at(here, 0)))
		check(t, i.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 4}))
	}
	cfg := small
	cfg.SRQ = other.SRQ()
	is(t, "a QP with another SRQ", s.CreateQP(nil, cfg), uverbs.ErrInvalid)
	cfg.SRQ = s.SRQ()
	check(t, s.CreateQP(nil, cfg))
	check(t, s.DestroyQP())
	check(t, s.DestroySRQ())
	cfg.SRQ = other.SRQ()
	check(t, s.CreateQP(nil, cfg)) // the id has no SRQ
	is(t, "an SRQ after the QP", s.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 4}), uverbs.ErrInvalid)
	check(t, s.Close()) // closes the QP before its SRQ
}

// TestQueueNotClosed checks that a queue that could not be closed with its QP is closed before the next QP is created.
func TestQueueNotClosed(t *testing.T) {
	r := newRig(t)
	i := newTalk(t).id(PSTCP)
	check(t, i.Bind(at(here, 0)))
	check(t, i.CreateQP(nil, small))
	dev := r.loop().k
	queues := func() (n int) {
		for _, o := range dev.Live() {
			if strings.HasPrefix(o, "CQ ") {
				n++
			}
		}
		return n
	}
	if n := queues(); n != 2 {
		t.Fatalf("%d queues: %q", n, dev.Live())
	}
	n := len(dev.Log()) + 2 // the close after that of the QP
	dev.Set(func() { dev.FailAt, dev.FailWith = n, unix.EPERM })
	is(t, "a queue that cannot be closed", i.DestroyQP(), unix.EPERM)
	if i.QP() != nil || queues() == 0 {
		t.Fatalf("the QP is %v, left are %q", i.QP(), dev.Live())
	}
	dev.Set(func() { dev.FailAt = 0 })
	check(t, i.CreateQP(nil, small))
	if n := queues(); n != 2 {
		t.Errorf("%d queues for one QP: %q", n, dev.Live())
	}
}

// TestDialEach checks that Dial tries the next address if one rejects or does not reply.
func TestDialEach(t *testing.T) {
	newRig(t)
	ctx := limit(t)
	l := closing(t, good(Listen("192.0.2.1:0", nil))(t))
	to := func(a netip.AddrPort) AddrInfo { return AddrInfo{PortSpace: PSTCP, Dst: a} }
	refuses := to(at(here, 5))
	_, err := dialEach(ctx, []AddrInfo{to(nowhere), refuses, to(nowhere)}, &Options{})
	is(t, "none that listens", err, ErrRejected, ErrUnreachable)
	const want = "198.51.100.1:7471: resolve address: no route to it: check the routing table" +
		" and that the interface is up (ENETUNREACH); " +
		"192.0.2.1:5: connect: rejected: no program listens on that port (ECONNREFUSED); 198.51.100.1:7471: "
	if !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v", err)
	}
	done := make(chan error, 1)
	go func() {
		c, err := dialEach(ctx, []AddrInfo{to(nowhere), refuses, to(l.Addr())}, &Options{})
		if err == nil {
			err = c.Close()
		}
		done <- err
	}()
	closing(t, good(l.Accept(ctx))(t))
	check(t, <-done)
}

// TestAcceptDatagramsWithoutQP checks that Accept of a request for datagrams needs a QP or its number.
func TestAcceptDatagramsWithoutQP(t *testing.T) {
	newRig(t)
	l, ctx := syncListener(t, PSUDP), limit(t)
	s := readyID(t, l)
	check(t, s.DestroyQP()) // the client needs none
	done := make(chan error, 1)
	go func() { done <- s.Connect(ctx, nil) }()
	p := closing(t, good(l.GetRequest(ctx))(t))
	is(t, "accept", p.Accept(ctx, nil), ErrNoQP, unix.EINVAL)
	check(t, p.Accept(ctx, &ConnParam{QPN: 5}))
	check(t, <-done)
	if n := s.Event().UD.QPN; n != 5 {
		t.Errorf("QP %d", n)
	}
}

// TestDataLimit checks that the room for private data in a request depends on the address family.
func TestDataLimit(t *testing.T) {
	ip := at(here, 0)
	for _, tc := range []struct {
		typ     uverbs.QPType
		l       dataLimits
		ip, own int
	}{
		{uverbs.RC, connectLimits, 56, 92}, {uverbs.RC, acceptLimits, 196, 196}, {uverbs.RC, rejectLimits, 148, 148},
		{uverbs.UD, connectLimits, 180, 216}, {uverbs.UD, acceptLimits, 136, 136}, {uverbs.UD, rejectLimits, 136, 136},
	} {
		a, b := &ID{qpType: tc.typ, local: ip}, &ID{qpType: tc.typ}
		if got, own := a.dataLimit(tc.l), b.dataLimit(tc.l); got != tc.ip || own != tc.own {
			t.Errorf("%v, %v: %d for IP addresses, %d for others; want %d, %d", tc.typ, tc.l, got, own, tc.ip, tc.own)
		}
	}
}
