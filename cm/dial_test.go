package cm

import (
	"context"
	"errors"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/uverbs"
)

// serve accepts connections until the test ends, and closes each when its peer has
// closed it.
func serve(t testing.TB, l *Listener) {
	t.Helper()
	var all sync.WaitGroup
	ctx := limit(t)
	all.Go(func() {
		for {
			c, err := l.Accept(ctx)
			if errors.Is(err, uverbs.ErrClosed) || ctx.Err() != nil {
				return
			}
			if err != nil {
				continue // the peer has disconnected
			}
			all.Go(func() {
				<-c.Disconnected()
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	})
	t.Cleanup(func() {
		check(t, l.Close())
		all.Wait()
	})
}

// TestDialSecondAddress checks that Dial tries the next address of a name if the first rejects or does not reply.
func TestDialSecondAddress(t *testing.T) {
	newRig(t)
	ctx := limit(t)
	l := good(Listen("192.0.2.1:0", nil))(t)
	serve(t, l)
	for _, first := range []string{"2001:db8::1", "192.0.2.2", "192.0.2.77"} {
		infos := []AddrInfo{{PortSpace: PSTCP, Dst: at(netip.MustParseAddr(first), l.Addr().Port())},
			{PortSpace: PSTCP, Dst: l.Addr()}}
		c, err := dialEach(ctx, infos, &Options{})
		if err != nil {
			t.Errorf("first %s: %v", first, err)
			continue
		}
		check(t, c.Shutdown(ctx))
	}
}

// TestDialShares checks that an address whose peer does not reply does not use up the time of the others.
func TestDialShares(t *testing.T) {
	now := time.Now()
	for _, tc := range []struct {
		left time.Duration
		n    int
		want time.Duration
	}{{30 * time.Second, 3, 10 * time.Second}, {30 * time.Second, 1, 30 * time.Second},
		{5 * time.Second, 4, 2 * time.Second},
		{time.Second, 4, time.Second}} {
		ctx, cancel := context.WithDeadline(context.Background(), now.Add(tc.left))
		part, release := share(ctx, now, tc.n)
		if end, ok := part.Deadline(); !ok || end.Sub(now) != tc.want {
			t.Errorf("%v for %d addresses: the first has %v, want %v", tc.left, tc.n, end.Sub(now), tc.want)
		}
		release()
		cancel()
	}
}

// TestDialBound checks that Dial is limited by the context's deadline, or else by Options.Timeout or the default.
func TestDialBound(t *testing.T) {
	within := func(ctx context.Context, o *Options) time.Duration {
		ctx, cancel := o.withDeadline(ctx)
		defer cancel()
		end, ok := ctx.Deadline()
		if !ok {
			t.Error("Dial has no bound")
		}
		return time.Until(end).Round(time.Second)
	}
	hour, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	for _, tc := range []struct{ got, want time.Duration }{
		{within(context.Background(), &Options{}), 30 * time.Second},
		{within(context.Background(), &Options{Timeout: time.Minute}), time.Minute},
		{within(hour, &Options{}), time.Hour},
		{within(hour, &Options{Timeout: time.Minute}), time.Minute},
		{within(hour, &Options{Timeout: 2 * time.Hour}), time.Hour},
	} {
		if tc.got != tc.want {
			t.Errorf("Dial is bounded by %v, want %v", tc.got, tc.want)
		}
	}
}

// TestDialError checks that the error of Dial has the address, the step and the cause.
func TestDialError(t *testing.T) {
	r := newRig(t)
	l := good(Listen("192.0.2.1:7471", nil))(t)
	serve(t, l)
	for typ, step := range map[EventType]string{EventAddrResolved: "resolve address", EventRouteResolved: "resolve route",
		EventConnectResponse: "connect"} {
		r.Hold(uint32(typ))
		_, err := Dial(context.Background(), "192.0.2.1:7471", &Options{Timeout: 50 * time.Millisecond})
		r.Release()
		is(t, step, err, context.DeadlineExceeded)
		want := "cm: dial 192.0.2.1:7471: " + step + ": context deadline exceeded"
		if step == "connect" {
			want = "cm: dial 192.0.2.1:7471: connect: no reply within 50ms, before the deadline of the call: the peer is busy" +
				" or not reached: check that it is up and that UDP port 4791 is open both ways, and run `doctor` on both machines"
		}
		if got := regexp.MustCompile(`\d+ms`).ReplaceAllString(err.Error(), "50ms"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
		var late interface{ Timeout() bool }
		if !errors.As(err, &late) || !late.Timeout() {
			t.Errorf("%v is no timeout", err)
		}
	}
	_, err := dialEach(limit(t), []AddrInfo{{PortSpace: PSTCP, Dst: at(here, 5)}}, &Options{})
	err = operationError("dial", "a.name:5", err)
	const want = "cm: dial a.name:5: connect 192.0.2.1:5: rejected: no program listens on that port (ECONNREFUSED)"
	if err.Error() != want {
		t.Errorf("the address of a name: %v", err)
	}
	_, err = Dial(limit(t), "192.0.2.1:5", nil)
	var e *Error
	if !errors.As(err, &e) || e.Op != "dial" || e.Object != "192.0.2.1:5" || e.Reason != RejectInvalidServiceID ||
		e.Kind != ErrRejected {
		t.Errorf("%+v", e)
	}
}

// TestDialLate checks that the error of a Dial whose deadline passes before the peer can reply says so.
func TestDialLate(t *testing.T) {
	ctx, cancel := context.WithDeadline(context.Background(), time.Now())
	defer cancel()
	err := explainDeadline(ctx, &Error{Op: "connect", Err: ctxerr.Of(ctx)}, 29*time.Second, time.Second)
	const want = "cm: connect: no reply within the 1s before the deadline, since the steps before lasted 29s:" +
		" this machine is busy: set a later deadline, or call Dial less often at the same time"
	if err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
}

// TestDialHere checks that an empty host means the addresses of this machine's RDMA devices.
func TestDialHere(t *testing.T) {
	r := newRig(t)
	ctx := limit(t)
	l := good(Listen(":7471", nil))(t)
	serve(t, l)
	c := good(Dial(ctx, ":7471", nil))(t)
	if c.RemoteAddr() != at(here, 7471) {
		t.Errorf("dialed %v", c.RemoteAddr())
	}
	check(t, c.Shutdown(ctx))
	r.Set(func() { r.Addrs = nil })
	is(t, "a machine without RDMA addresses", second(Dial(ctx, ":7471", nil)), uverbs.ErrNoDevice)
}

// TestDialHereUnusableDevice checks that a device that cannot be opened does not prevent the use of others. Its error
// is reported if no address is left.
func TestDialHereUnusableDevice(t *testing.T) {
	r := newRig(t)
	noProvider := &uverbs.Error{Op: "open", Object: "other0", Kind: uverbs.ErrNoProvider}
	var opened, fail int
	openDevice = func(k deviceKey) (*device, error) { // newRig restores it
		if opened++; opened <= fail {
			return nil, noProvider
		}
		return r.openDevice(k)
	}
	all := good(deviceAddrs(limit(t)))(t)
	opened, fail = 0, 1
	some := good(deviceAddrs(limit(t)))(t)
	if !slices.Equal(some, all[1:]) {
		t.Errorf("addresses %v, want %v", some, all[1:])
	}
	opened, fail = 0, len(all)
	is(t, "no usable device", second(deviceAddrs(limit(t))), noProvider)
	opened = 0
	is(t, "Dial", second(Dial(limit(t), ":7471", nil)), uverbs.ErrNoProvider)
	is(t, "with a context that has ended", second(deviceAddrs(endedContext())), context.Canceled)
}

// TestOptionsDefaults checks the defaults of options that are not set.
func TestOptionsDefaults(t *testing.T) {
	for _, tc := range []struct{ cfg, want uverbs.QPConfig }{
		{uverbs.QPConfig{}, uverbs.QPConfig{MaxSendWR: 16, MaxRecvWR: 16}},
		{uverbs.QPConfig{MaxSendWR: 64}, uverbs.QPConfig{MaxSendWR: 64, MaxRecvWR: 16}},
		{uverbs.QPConfig{MaxRecvWR: 64}, uverbs.QPConfig{MaxSendWR: 16, MaxRecvWR: 64}},
		{uverbs.QPConfig{MaxSendWR: -1, MaxRecvWR: -1}, uverbs.QPConfig{}},
		{uverbs.QPConfig{SRQ: &uverbs.SRQ{}}, uverbs.QPConfig{MaxSendWR: 16}},
	} {
		got := (&Options{QP: tc.cfg}).qp(uverbs.RC)
		if got.MaxSendWR != tc.want.MaxSendWR || got.MaxRecvWR != tc.want.MaxRecvWR {
			t.Errorf("%d sends, %d receives: the QP has %d and %d", tc.cfg.MaxSendWR, tc.cfg.MaxRecvWR, got.MaxSendWR,
				got.MaxRecvWR)
		}
	}
	type numbers [4]uint8
	for in, want := range map[numbers]numbers{
		{}:                                   {MaxRespRes, MaxInitDepth, 6, 7},
		{0, 4, 0, 0}:                         {MaxRespRes, 4, 6, 7},
		{3, 0, 7, 1}:                         {3, MaxInitDepth, 7, 1},
		{NoReads, NoReads, NoRetry, NoRetry}: {},
	} {
		p := (&ConnParam{ResponderResources: in[0], InitiatorDepth: in[1], RetryCount: in[2],
			RNRRetryCount: in[3]}).complete()
		if got := (numbers{p.ResponderResources, p.InitiatorDepth, p.RetryCount, p.RNRRetryCount}); got != want {
			t.Errorf("%v stands for %v, want %v", in, got, want)
		}
	}
	for d, want := range map[time.Duration]uint32{0: 2000, 1: 1, time.Second: 1000, time.Second + 1: 1001,
		math.MaxInt64: math.MaxInt32} {
		if got := milliseconds(d); got != want {
			t.Errorf("%v is %d ms, want %d", d, got, want)
		}
	}
}

// TestConnParamDefaults checks the values that reach the kernel from a partly set ConnParam.
func TestConnParamDefaults(t *testing.T) {
	newRig(t)
	k := newTalk(t)
	l := k.listen(PSTCP)
	a := k.resolved(PSTCP, l.LocalAddr())
	check(t, a.CreateQP(nil, small))
	check(t, a.Connect(&ConnParam{InitiatorDepth: 4}))
	e := k.next(EventConnectRequest, nil)
	closing(t, e.ID)
	if got := e.Conn; got.RetryCount != 6 || got.RNRRetryCount != 7 || got.ResponderResources != 4 ||
		got.InitiatorDepth == 0 {
		t.Errorf("%+v", got)
	}
}

// TestSetupLeavesNothing checks that the objects that Prepare and Setup have created are closed if the attempt fails,
// on both sides, and stay open otherwise.
func TestSetupLeavesNothing(t *testing.T) {
	r := newRig(t)
	ctx := limit(t)
	var mrs []*uverbs.MR
	o := &Options{
		Prepare: func(c *Conn, qp *uverbs.QPConfig) error {
			mrs = append(mrs, good(c.AllocWrite(64))(t))
			qp.SendCQ = good(c.Verbs().CreateCQ(uverbs.CQConfig{Entries: 16}))(t)
			c.Own(qp.SendCQ)
			return nil
		},
		Setup: func(c *Conn) error {
			mrs = append(mrs, good(c.AllocMsgs(64))(t), good(c.RegMsgs(make([]byte, 64)))(t))
			return c.PostRecv(1, mrs[len(mrs)-1].SGE(0, 64))
		},
	}
	objects := func(what string) int {
		return len(slices.DeleteFunc(r.loop().k.Live(),
			func(s string) bool { return !slices.Contains([]string{what}, s[:2]) }))
	}
	hold := closing(t, good(Listen("192.0.2.1:0", manual))(t)) // keeps the device open
	first := good(hold.id.dev.ctx.AllocPD())(t)
	is(t, "dial", second(Dial(ctx, "192.0.2.1:5", o)), ErrRejected)
	if n := objects("MR") + objects("CQ"); n != 0 {
		t.Errorf("a failed Dial leaves %d: %q", n, r.loop().k.Live())
	}
	for _, mr := range mrs {
		check(t, mr.Close()) // may be called again
	}
	mrs = nil
	dialed := make(chan error, 1)
	go func() {
		c, err := Dial(ctx, hold.Addr().String(), nil)
		if err == nil {
			err = c.Close()
		}
		dialed <- err
	}()
	bad := *o
	bad.PrivateData = make([]byte, 256)
	is(t, "accept", second(good(hold.Request(ctx))(t).Accept(ctx, &bad)), ErrPrivateData)
	is(t, "a peer that is not accepted", <-dialed, ErrRejected)
	if n := objects("MR") + objects("CQ"); n != 0 {
		t.Errorf("a failed Accept leaves %d: %q", n, r.loop().k.Live())
	}
	mrs = nil
	l := good(Listen("192.0.2.1:0", nil))(t)
	serve(t, l)
	c := good(Dial(ctx, l.Addr().String(), o))(t)
	check(t, c.Shutdown(ctx))
	if n := objects("MR"); n != 3 {
		t.Errorf("%d MRs after Shutdown, want the program's 3: %q", n, r.loop().k.Live())
	}
	if n := objects("CQ"); n > 2 { // of the peer, which may not have closed yet
		t.Errorf("Shutdown leaves CQs: %q", r.loop().k.Live())
	}
	for _, mr := range mrs {
		check(t, mr.Close())
	}
	check(t, first.Close())
}

// TestSetPrivateData checks that Setup can set private data that depends on the objects that it has created, on both
// sides.
func TestSetPrivateData(t *testing.T) {
	newRig(t)
	ctx := limit(t)
	says := func(text string) *Options {
		return &Options{PrivateData: []byte("not this"), Setup: func(c *Conn) error {
			c.SetPrivateData([]byte(text))
			return nil
		}}
	}
	l := closing(t, good(Listen("192.0.2.1:0", &ListenOptions{Options: *says("rkey of the server")}))(t))
	heard := make(chan string, 1)
	go func() {
		defer close(heard)
		c, err := l.Accept(ctx)
		if err != nil {
			heard <- err.Error()
			return
		}
		heard <- string(c.PrivateData()[:18])
		<-c.Disconnected()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := good(Dial(ctx, l.Addr().String(), says("rkey of the client")))(t)
	if got := string(c.PrivateData()[:18]); got != "rkey of the server" {
		t.Errorf("the client has %q", got)
	}
	if got := <-heard; got != "rkey of the client" {
		t.Errorf("the server has %q", got)
	}
	check(t, c.Shutdown(ctx))
	<-heard
}

// TestOwnPD checks that connections with OwnPD have different PDs.
func TestOwnPD(t *testing.T) {
	newRig(t)
	ctx := limit(t)
	l := good(Listen("192.0.2.1:0", nil))(t)
	serve(t, l)
	var early *uverbs.MR
	a := good(Dial(ctx, l.Addr().String(), &Options{OwnPD: true, Prepare: func(c *Conn, _ *uverbs.QPConfig) (err error) {
		early, err = c.AllocMsgs(8)
		return err
	}}))(t)
	b := good(Dial(ctx, l.Addr().String(), &Options{OwnPD: true}))(t)
	if a.PD() == b.PD() || a.QP().PD() != a.PD() || b.QP().PD() != b.PD() || a.PD() == a.id.dev.pd {
		t.Error("PDs are shared")
	}
	if early.PD() != a.PD() {
		t.Error("the MR that Prepare has made is of another PD")
	}
	is(t, "close with an MR", a.Close(), uverbs.ErrBusy)
	check(t, early.Close())
	check(t, a.Close())
	_, err := Dial(ctx, l.Addr().String(), &Options{OwnPD: true, PD: b.PD()})
	is(t, "two PDs", err, uverbs.ErrInvalid)
	check(t, b.Shutdown(ctx))
}
