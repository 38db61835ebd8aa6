package devicetest

import (
	"bytes"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// pairOf dials a listener with options for both sides.
func pairOf(t *testing.T, server, client *cm.Options) (s, c *cm.Conn) {
	t.Helper()
	ctx := limit(t)
	var o cm.ListenOptions
	if server != nil {
		o.Options = *server
	}
	l := must(cm.Listen(deviceIP+":0", &o))(t)
	closing(t, l)
	accepted := async(func() (*cm.Conn, error) { return l.Accept(ctx) })
	c = must(cm.Dial(ctx, l.Addr().String(), client))(t)
	closing(t, c)
	s = accepted(t)
	closing(t, s)
	return s, c
}

// TestDeviceListenLoopback checks that Listen returns an error for a loopback address, since the kernel serves all
// addresses for an id that is bound to one. An empty host dials this machine.
func TestDeviceListenLoopback(t *testing.T) {
	begin(t)
	_, err := cm.Listen("127.0.0.1:0", nil)
	isError(t, err, []error{uverbs.ErrNoDevice}, "127.0.0.1:0", "loopback")
	ctx := limit(t)
	l := must(cm.Listen(":0", nil))(t)
	closing(t, l)
	accepted := async(func() (*cm.Conn, error) { return l.Accept(ctx) })
	c := must(cm.Dial(ctx, ":"+strconv.Itoa(int(l.Addr().Port())), nil))(t)
	closing(t, c)
	closing(t, accepted(t))
	if !c.RemoteAddr().Addr().IsValid() || c.RemoteAddr().Addr().IsLoopback() {
		t.Errorf("dialed %v", c.RemoteAddr())
	}
}

// TestDeviceDialReuseAddr dials several connections from one port. On iWARP they are to different ports, since they are
// TCP connections.
func TestDeviceDialReuseAddr(t *testing.T) {
	begin(t)
	ctx := limit(t)
	l := must(cm.Listen(deviceIP+":0", nil))(t)
	closing(t, l)
	var from netip.AddrPort
	for range 2 {
		if from.IsValid() && rnic() {
			l = listenAt(t, deviceIP+":0", nil)
		}
		accepted := async(func() (*cm.Conn, error) { return l.Accept(ctx) })
		local := netip.AddrPortFrom(netip.MustParseAddr(deviceIP), from.Port())
		c := must(cm.Dial(ctx, l.Addr().String(), &cm.Options{LocalAddr: local, ReuseAddr: true}))(t)
		closing(t, c)
		closing(t, accepted(t))
		if from.IsValid() && c.LocalAddr() != from {
			t.Errorf("dialed from %v, want %v", c.LocalAddr(), from)
		}
		from = c.LocalAddr()
	}
}

// TestDeviceNoReads checks that rxe and siw refuse to post a READ on a connection without READs. The READ would never
// complete.
func TestDeviceNoReads(t *testing.T) {
	begin(t)
	none := &cm.Options{Param: &cm.ConnParam{InitiatorDepth: cm.NoReads}}
	_, c := pairOf(t, nil, none)
	mr := must(c.AllocMsgs(8))(t)
	closing(t, mr)
	err := c.PostRead(1, uverbs.Signaled, 4096, 7, mr.SGE(0, 8))
	if strings.HasPrefix(rdmaDevice(), "rxe") || rnic() {
		isError(t, err, []error{uverbs.ErrRdAtomic}, "MaxRdAtomic")
	} else {
		check(t, err) // the device decides
	}
	_, c = pairOf(t, nil, &cm.Options{Param: &cm.ConnParam{RetryCount: 5}})
	a := must(c.QP().Query(uverbs.MaskMaxRdAtomic | uverbs.MaskRNRRetryCount | uverbs.MaskRetryCount))(t)
	if a.MaxRdAtomic == 0 || !rnic() && (a.RNRRetryCount != 7 || a.RetryCount != 5) { // TCP has no such counts
		t.Errorf("a ConnParam with retries alone: depth %d, RNR retry %d, retry %d", a.MaxRdAtomic, a.RNRRetryCount,
			a.RetryCount)
	}
}

// TestDeviceReceiverNotReady checks that a send waits for a receive as RNRRetryCount allows. On rxe it also uses up
// RetryCount, unless that is 7. On iWARP a message without a receive ends the connection.
func TestDeviceReceiverNotReady(t *testing.T) {
	begin(t)
	ctx := limit(t)
	if rnic() {
		s, c := pairOf(t, nil, nil)
		check(t, c.PostSend(1, uverbs.Signaled, uverbs.SGE{}))
		endsBoth(t, s, c)
		return
	}
	few := &cm.ConnParam{RetryCount: 1}
	_, breaks := pairOf(t, &cm.Options{Param: few}, &cm.Options{Param: few})
	all := &cm.ConnParam{RetryCount: 7}
	s, waits := pairOf(t, &cm.Options{Param: all}, &cm.Options{Param: all})
	check(t, waits.PostSend(1, uverbs.Signaled, uverbs.SGE{}))
	if strings.HasPrefix(rdmaDevice(), "rxe") {
		check(t, breaks.PostSend(1, uverbs.Signaled, uverbs.SGE{}))
		if _, err := breaks.SendComp(ctx); !errors.Is(err, uverbs.WCRetryExcErr) {
			t.Errorf("with a RetryCount of 1: %v", err)
		}
	}
	check(t, s.PostRecv(2, uverbs.SGE{}))
	must(waits.SendComp(ctx))(t)
	must(s.RecvComp(ctx))(t)
}

// endsBoth checks that an error has ended a connection.
func endsBoth(t *testing.T, ends ...*cm.Conn) {
	t.Helper()
	ctx := limit(t)
	for _, c := range ends {
		select {
		case <-c.Disconnected():
		case <-ctx.Done():
			t.Fatalf("the connection of %v has not ended", c.LocalAddr())
		}
	}
}

// TestDeviceECEAgreed checks that both ends of a connection have the same options, if the device has any.
func TestDeviceECEAgreed(t *testing.T) {
	begin(t)
	s, c := pairOf(t, nil, nil)
	mine, err := c.QP().QueryECE()
	if errors.Is(err, uverbs.ErrNotSupported) {
		if c.ID().RemoteECE() != (cm.ECE{}) || s.ID().RemoteECE() != (cm.ECE{}) {
			t.Errorf("options of nobody: %+v, %+v", c.ID().RemoteECE(), s.ID().RemoteECE())
		}
		return
	}
	check(t, err)
	theirs := must(s.QP().QueryECE())(t)
	t.Logf("%+v and %+v, told %+v and %+v", mine, theirs, c.ID().RemoteECE(), s.ID().RemoteECE())
	if mine != theirs || c.ID().RemoteECE() != cm.ECE(theirs) {
		t.Errorf("the ends have %+v and %+v", mine, theirs)
	}
}

// TestDevicePath checks that QPConfig.Path is set in the QP.
func TestDevicePath(t *testing.T) {
	begin(t)
	o := &cm.Options{QP: uverbs.QPConfig{Path: uverbs.PathConfig{TrafficClass: 104, FlowLabel: 0x12345}}}
	s, c := pairOf(t, o, o)
	for _, q := range []*uverbs.QP{s.QP(), c.QP()} {
		if a := must(q.Query(uverbs.MaskAV))(t); a.AV.TrafficClass != 104 || a.AV.FlowLabel != 0x12345 {
			t.Errorf("%+v", a.AV)
		}
	}
}

// TestDeviceOwnPD checks that connections with separate PDs cannot access each other's memory, and that no objects
// remain after a dial that fails after Setup.
func TestDeviceOwnPD(t *testing.T) {
	begin(t)
	o := &cm.Options{OwnPD: true, Setup: func(c *cm.Conn) error {
		mr, err := c.AllocWrite(64)
		if err == nil {
			c.SetPrivateData([]byte{byte(mr.RKey())})
			err = c.PostRecv(1, mr.SGE(0, 64))
		}
		return err
	}}
	_, err := cm.Dial(limit(t), deviceIP+":1", o)
	isError(t, err, []error{cm.ErrRejected}, "dial "+deviceIP+":1: connect")
	_, a := pairOf(t, nil, &cm.Options{OwnPD: true})
	s, b := pairOf(t, nil, &cm.Options{OwnPD: true})
	if a.PD() == b.PD() {
		t.Error("the PDs are the same")
	}
	secret := must(a.AllocWrite(8))(t)
	own := must(s.AllocMsgs(8))(t)
	check(t, s.PostWrite(1, uverbs.Signaled, secret.Addr(), secret.RKey(), own.SGE(0, 8)))
	if rnic() { // the WRITE has completed when it was sent
		endsBoth(t, s, b)
		if !bytes.Equal(secret.Bytes(), make([]byte, 8)) {
			t.Error("the memory of another connection was written")
		}
	} else if _, err := s.SendComp(limit(t)); !errors.Is(err, uverbs.WCRemAccessErr) {
		t.Errorf("a WRITE to the memory of another connection: %v", err)
	}
	check(t, secret.Close())
	check(t, own.Close())
}
