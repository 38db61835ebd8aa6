package rdmacmtest_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/sim/rdmacmtest"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	leak.Enable()
	code := m.Run()
	for _, l := range leak.Live() {
		os.Stderr.WriteString("left: " + l.String() + "\n")
		code = 1
	}
	os.Exit(code)
}

func sockaddr(s string) []byte {
	a := netip.MustParseAddrPort(s)
	b := make([]byte, 16)
	binary.NativeEndian.PutUint16(b, unix.AF_INET)
	binary.BigEndian.PutUint16(b[2:], a.Port())
	copy(b[4:], a.Addr().AsSlice())
	return b
}

func open(t *testing.T, k *rdmacmtest.Kernel) *rdmacm.File {
	t.Helper()
	f, err := k.Open()
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	return f
}

var must = errtest.Check

func want(t *testing.T, what string, err error, errno unix.Errno) {
	t.Helper()
	if !errors.Is(err, errno) {
		t.Errorf("%s: %v, want %v", what, err, errno)
	}
}

// await reads the next event and checks it.
func await(t *testing.T, f *rdmacm.File, event uint32, uid uint64) uapi.RdmaUcmEventResp {
	t.Helper()
	var e uapi.RdmaUcmEventResp
	must(t, f.SetReadDeadline(time.Now().Add(time.Minute)))
	if err := f.NextEvent(&e); err != nil {
		t.Fatalf("waiting for event %d: %v", event, err)
	}
	if e.Event != event || e.Uid != uid {
		t.Fatalf("event %d of uid %d, want %d of %d", e.Event, e.Uid, event, uid)
	}
	return e
}

func none(t *testing.T, f *rdmacm.File) {
	t.Helper()
	var e uapi.RdmaUcmEventResp
	must(t, f.SetReadDeadline(time.Now().Add(time.Millisecond)))
	if err := f.NextEvent(&e); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, event %d of uid %d; want none", err, e.Event, e.Uid)
	}
}

const (
	listenerUID, activeUID, passiveUID = 11, 22, 33
	address                            = "192.0.2.1:7471"
)

// A pair is a listener and an active id, on two files, with the route resolved.
type pair struct {
	t                *testing.T
	k                *rdmacmtest.Kernel
	server, client   *rdmacm.File
	listener, active uint32
}

func newPair(t *testing.T, ps uint16) *pair {
	t.Helper()
	k := rdmacmtest.New(t)
	p := &pair{t: t, k: k, server: open(t, k), client: open(t, k)}
	var err error
	p.listener, err = p.server.CreateID(listenerUID, ps, 0)
	must(t, err)
	must(t, p.server.Bind(p.listener, sockaddr(address)))
	must(t, p.server.Listen(p.listener, 1))
	p.active = p.resolved(activeUID, ps)
	t.Cleanup(func() {
		for _, id := range k.IDs() {
			for _, f := range []*rdmacm.File{p.server, p.client} {
				_, _ = f.DestroyID(id) // it belongs to one of the files
			}
		}
	})
	return p
}

func (p *pair) resolved(uid uint64, ps uint16) uint32 {
	p.t.Helper()
	id, err := p.client.CreateID(uid, ps, 0)
	must(p.t, err)
	must(p.t, p.client.ResolveAddr(id, nil, sockaddr(address), 1000))
	await(p.t, p.client, rdmacm.EventAddrResolved, uid)
	must(p.t, p.client.ResolveRoute(id, 1000))
	await(p.t, p.client, rdmacm.EventRouteResolved, uid)
	return id
}

func param(qpn uint32, data string) uapi.RdmaUcmConnParam {
	p := uapi.RdmaUcmConnParam{QpNum: qpn, ResponderResources: 3, InitiatorDepth: 5, RetryCount: 7, RnrRetryCount: 6,
		Valid: 1, PrivateDataLen: uint8(len(data))}
	copy(p.PrivateData[:], data)
	return p
}

func (p *pair) request(id uint32) uapi.RdmaUcmEventResp {
	p.t.Helper()
	must(p.t, p.client.Connect(&uapi.RdmaUcmConnect{ConnParam: param(0x77, "hello"), Id: id}))
	return await(p.t, p.server, rdmacm.EventConnectRequest, listenerUID)
}

func (p *pair) establish() (passive uint32) {
	p.t.Helper()
	passive = p.request(p.active).Id
	must(p.t, p.server.Accept(&uapi.RdmaUcmAccept{Uid: passiveUID, ConnParam: param(0x99, "welcome"), Id: passive}))
	await(p.t, p.client, rdmacm.EventConnectResponse, activeUID)
	must(p.t, p.client.Accept(&uapi.RdmaUcmAccept{Id: p.active}))
	await(p.t, p.server, rdmacm.EventEstablished, passiveUID)
	return passive
}

func TestEndings(t *testing.T) {
	for name, tc := range map[string]struct {
		end         func(p *pair, passive uint32) error
		event       uint32
		active      bool // sides that get an event
		status      int32
		established bool
	}{
		"reject": {func(p *pair, c uint32) error { return p.server.Reject(c, 0, []byte("no")) },
			rdmacm.EventRejected, true, 28, false},
		"reject ECE": {func(p *pair, c uint32) error { return p.server.Reject(c, 35, nil) }, rdmacm.EventRejected,
			true, 35, false},
		"destroy request": {func(p *pair, c uint32) error { _, err := p.server.DestroyID(c); return err },
			rdmacm.EventRejected, true, 28, false},
		"request times out": {func(p *pair, c uint32) error { p.k.Expire(p.active); return nil }, rdmacm.EventUnreachable,
			true, -110, false},
		"destroy passive": {func(p *pair, c uint32) error { _, err := p.server.DestroyID(c); return err },
			rdmacm.EventDisconnected, true, 0, true},
		"destroy active": {func(p *pair, c uint32) error { _, err := p.client.DestroyID(p.active); return err },
			rdmacm.EventDisconnected, false, 0, true},
		"no reply": {func(p *pair, c uint32) error {
			err := p.client.Disconnect(p.active)
			p.k.Expire(p.active)
			await(p.t, p.server, rdmacm.EventDisconnected, passiveUID)
			return err
		}, rdmacm.EventDisconnected, true, -110, true},
		"unplugged": {func(p *pair, c uint32) error { p.k.RemoveDevice(); return nil }, rdmacm.EventDeviceRemoval, true, 0,
			true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, uapi.RDMA_PS_TCP)
			var passive uint32
			if tc.established {
				passive = p.establish()
			} else {
				passive = p.request(p.active).Id
			}
			must(t, tc.end(p, passive))
			f, uid := p.server, uint64(passiveUID)
			if tc.active {
				f, uid = p.client, activeUID
			}
			if e := await(t, f, tc.event, uid); int32(e.Status) != tc.status {
				t.Errorf("status %d, want %d", int32(e.Status), tc.status)
			}
		})
	}
}

// TestHold checks that held events are delivered in order when they are
// released.
func TestHold(t *testing.T) {
	p := newPair(t, uapi.RDMA_PS_TCP)
	p.k.Hold(rdmacm.EventConnectRequest)
	must(t, p.client.Connect(&uapi.RdmaUcmConnect{ConnParam: param(1, ""), Id: p.active}))
	none(t, p.server)
	p.k.Release()
	await(t, p.server, rdmacm.EventConnectRequest, listenerUID)
}

// TestBacklog checks that a listener with a full backlog gets the next request
// when one was accepted.
func TestBacklog(t *testing.T) {
	p := newPair(t, uapi.RDMA_PS_TCP)
	second := p.resolved(44, uapi.RDMA_PS_TCP)
	for _, id := range []uint32{p.active, second} {
		must(t, p.client.Connect(&uapi.RdmaUcmConnect{ConnParam: param(id, ""), Id: id}))
	}
	if n := len(p.k.IDs()); n != 4 {
		t.Errorf("%d ids, want 4: the second request waits", n)
	}
	for _, id := range []uint32{p.active, second} {
		e := await(t, p.server, rdmacm.EventConnectRequest, listenerUID)
		if got := rdmacm.ConnParam(&e).QpNum; got != id {
			t.Errorf("request of %d, want %d", got, id)
		}
	}
}

func TestMulticast(t *testing.T) {
	k := rdmacmtest.New(t)
	f := open(t, k)
	id, err := f.CreateID(1, uapi.RDMA_PS_UDP, 0)
	must(t, err)
	_, err = f.JoinMulticast(id, 2, sockaddr("239.1.1.1:0"), 0)
	want(t, "joining before bind", err, unix.EINVAL)
	must(t, f.Bind(id, sockaddr("192.0.2.1:0")))
	mc, err := f.JoinMulticast(id, 2, sockaddr("239.1.1.1:0"), 0)
	must(t, err)
	e := await(t, f, rdmacm.EventMulticastJoin, 2)
	if ud := rdmacm.UDParam(&e); e.Id != mc || ud.QpNum != 0xffffff ||
		netip.AddrFrom16(ud.AhAttr.Grh.Dgid).Unmap().String() != "239.1.1.1" {
		t.Errorf("membership %d: %+v", e.Id, ud)
	}
	k.FailMulticast(mc, 2, -101)
	await(t, f, rdmacm.EventMulticastError, 2)
	n, err := f.LeaveMulticast(mc)
	if must(t, err); n != 2 {
		t.Errorf("%d events, want 2", n)
	}
	_, err = f.LeaveMulticast(mc)
	want(t, "leaving twice", err, unix.ENOENT)
	n, err = f.DestroyID(id)
	if must(t, err); n != 2 {
		t.Errorf("%d events of the id, want 2", n)
	}
}

func TestAddresses(t *testing.T) {
	k := rdmacmtest.New(t)
	f := open(t, k)
	id, err := f.CreateID(1, uapi.RDMA_PS_TCP, 0)
	must(t, err)
	want(t, "a foreign address", f.Bind(id, sockaddr("198.51.100.1:0")), unix.EADDRNOTAVAIL)
	want(t, "no address", f.Bind(id, nil), unix.EINVAL)
	want(t, "half an address", f.Bind(id, sockaddr("192.0.2.1:1")[:8]), unix.EINVAL)
	must(t, f.Bind(id, sockaddr("192.0.2.1:9")))
	want(t, "binding twice", f.Bind(id, sockaddr("192.0.2.1:9")), unix.EINVAL)
	other, err := f.CreateID(2, uapi.RDMA_PS_TCP, 0)
	must(t, err)
	want(t, "a taken port", f.Bind(other, sockaddr("0.0.0.0:9")), unix.EADDRNOTAVAIL)
	want(t, "no way", f.ResolveAddr(other, nil, sockaddr("198.51.100.1:9"), 1), unix.ENETUNREACH)
	must(t, f.ResolveAddr(other, nil, sockaddr("192.0.2.77:9"), 1))
	if e := await(t, f, rdmacm.EventAddrError, 2); int32(e.Status) != -int32(unix.ETIMEDOUT) {
		t.Errorf("status %d", int32(e.Status))
	}
	must(t, f.SetOption(other, uapi.RDMA_OPTION_ID, uapi.RDMA_OPTION_ID_ACK_TIMEOUT, []byte{9}))
	want(t, "a long option", f.SetOption(other, uapi.RDMA_OPTION_ID, uapi.RDMA_OPTION_ID_TOS, []byte{9, 9}), unix.EINVAL)
	want(t, "an unknown option", f.SetOption(other, 7, 7, []byte{9, 9}), unix.ENOSYS)
	resp, err := f.QueryAddr(id)
	if must(t, err); resp.SrcSize != 16 || resp.DstSize != 0 || resp.PortNum != 1 || resp.NodeGuid != k.NodeGUID {
		t.Errorf("%+v", resp)
	}
	for _, i := range []uint32{id, other} {
		_, err := f.DestroyID(i)
		must(t, err)
	}
	want(t, "a destroyed id", f.Listen(id, 0), unix.ENOENT)
}

// TestViolations checks that mistakes are reported.
func TestViolations(t *testing.T) {
	k := rdmacmtest.New(t)
	f, err := k.Open()
	must(t, err)
	_, err = f.CreateID(0, uapi.RDMA_PS_TCP, 0)
	must(t, err)
	must(t, f.Close())
	if err := k.Close(); err == nil {
		t.Error("uid 0 or the leaked id was not reported")
	}
}
