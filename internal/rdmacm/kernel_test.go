package rdmacm_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/sim/rdmacmtest"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// machine is what the tests of this file run on: the fake kernel, or a real one, which
// validates the fake.
type machine struct {
	*testing.T
	open func() (*rdmacm.File, error)
	addr string // of the RDMA device
	real bool
}

var onEveryKernel = map[string]func(machine){
	"walk": testWalk, "errors": testErrors, "loopback": testLoopback, "options": testOptions, "connection": testConnection,
	"reject":  testReject,
	"endings": testEndings, "nobody listens": testNobodyListens, "dropped events": testDroppedEvents,
	"datagram": testDatagram, "datagram rejected": testDatagramRejected, "multicast": testMulticast,
	"migrate": testMigrate,
	"wait":    testWait, "own events": testOwnEvents,
}

func TestKernelInMemory(t *testing.T) {
	for name, test := range onEveryKernel {
		t.Run(name, func(t *testing.T) {
			k := rdmacmtest.New(t)
			test(machine{t, k.Open, "192.0.2.1", false})
		})
	}
}

// patience limits waits that would not end.
const patience = 60 * time.Second

func (m machine) file() *rdmacm.File {
	m.Helper()
	f, err := m.open()
	must(m, err)
	m.Cleanup(func() { must(m, f.Close()) })
	return f
}

func (m machine) sockaddr(ip string, port uint16) []byte {
	b := make([]byte, 16)
	binary.NativeEndian.PutUint16(b, unix.AF_INET)
	binary.BigEndian.PutUint16(b[2:], port)
	copy(b[4:], netip.MustParseAddr(ip).AsSlice())
	return b
}

// id creates an id. It is destroyed when the test ends, unless the test does so before.
func (m machine) id(f *rdmacm.File, uid uint64, ps uint16) uint32 {
	m.Helper()
	id, err := f.CreateID(uid, ps, 0)
	must(m, err)
	m.owns(f, id)
	return id
}

func (m machine) owns(f *rdmacm.File, id uint32) {
	m.Cleanup(func() {
		if _, err := f.DestroyID(id); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
			m.Error(err)
		}
	})
}

func (m machine) destroy(f *rdmacm.File, id uint32) (events uint32) {
	m.Helper()
	events, err := f.DestroyID(id)
	must(m, err)
	return events
}

// next reads the next event, which must be this one.
func (m machine) next(f *rdmacm.File, event uint32, uid uint64) uapi.RdmaUcmEventResp {
	m.Helper()
	var e uapi.RdmaUcmEventResp
	must(m, f.SetReadDeadline(time.Now().Add(patience)))
	if err := f.NextEvent(&e); err != nil {
		m.Fatalf("waiting for event %d: %v", event, err)
	}
	if e.Event != event || e.Uid != uid {
		m.Fatalf("event %d of uid %d, status %d; want event %d of uid %d", e.Event, e.Uid, int32(e.Status), event, uid)
	}
	return e
}

// none checks that there is no event.
func (m machine) none(f *rdmacm.File) {
	m.Helper()
	var e uapi.RdmaUcmEventResp
	must(m, f.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	if err := f.NextEvent(&e); !errors.Is(err, os.ErrDeadlineExceeded) {
		m.Errorf("%v, event %d of uid %d; want none", err, e.Event, e.Uid)
	}
}

func (m machine) refused(what string, err error, errno unix.Errno) {
	m.Helper()
	if !errors.Is(err, errno) {
		m.Errorf("%s: %v, want %v", what, err, errno)
	}
}

const (
	listenerUID, activeUID, passiveUID = 11, 22, 33

	// IB_QPS_INIT, _RTR and _RTS.
	qpsInit, qpsRTR, qpsRTS = 1, 2, 3
)

// pair is a listener and an active id, on another file, that has resolved the route to
// it.
type pair struct {
	machine
	server, client   *rdmacm.File
	listener, active uint32
	port             uint16
	// QP numbers that no recent connection has used: otherwise the kernel would treat
	// them as stale connections of the same machine.
	activeQPN, passiveQPN uint32
}

var lastQPN atomic.Uint32

func init() { lastQPN.Store(0x100) }

func (m machine) pair(ps uint16) *pair {
	m.Helper()
	p := &pair{machine: m, server: m.file(), client: m.file(), activeQPN: lastQPN.Add(1), passiveQPN: lastQPN.Add(1)}
	p.listener = m.id(p.server, listenerUID, ps)
	must(m, p.server.Bind(p.listener, m.sockaddr(m.addr, 0)))
	resp, err := p.server.QueryAddr(p.listener)
	must(m, err)
	p.port = binary.BigEndian.Uint16(resp.SrcAddr[2:])
	must(m, p.server.Listen(p.listener, 16))
	p.active = m.id(p.client, activeUID, ps)
	must(m, p.client.ResolveAddr(p.active, nil, m.sockaddr(m.addr, p.port), 2000))
	m.next(p.client, rdmacm.EventAddrResolved, activeUID)
	must(m, p.client.ResolveRoute(p.active, 2000))
	m.next(p.client, rdmacm.EventRouteResolved, activeUID)
	return p
}

func connParam(qpn uint32, data string) uapi.RdmaUcmConnParam {
	p := uapi.RdmaUcmConnParam{QpNum: qpn, ResponderResources: 3, InitiatorDepth: 5, RetryCount: 7, RnrRetryCount: 6,
		Valid: 1, PrivateDataLen: uint8(len(data))}
	copy(p.PrivateData[:], data)
	return p
}

func (p *pair) request() (e uapi.RdmaUcmEventResp) {
	p.Helper()
	must(p, p.client.Connect(&uapi.RdmaUcmConnect{ConnParam: connParam(p.activeQPN, "hello"), Id: p.active,
		Ece: uapi.RdmaUcmEce{VendorId: 5, AttrMod: 6}}))
	e = p.next(p.server, rdmacm.EventConnectRequest, listenerUID)
	p.owns(p.server, e.Id)
	return e
}

func (p *pair) accept(child uint32) error {
	return p.server.Accept(&uapi.RdmaUcmAccept{Uid: passiveUID, ConnParam: connParam(p.passiveQPN, "welcome"), Id: child,
		Ece: uapi.RdmaUcmEce{VendorId: 7, AttrMod: 8}})
}

// establish establishes the connection and returns the id of the child.
func (p *pair) establish() uint32 {
	p.Helper()
	child := p.request().Id
	must(p, p.accept(child))
	p.next(p.client, rdmacm.EventConnectResponse, activeUID)
	must(p, p.client.Accept(&uapi.RdmaUcmAccept{Id: p.active}))
	p.next(p.server, rdmacm.EventEstablished, passiveUID)
	return child
}
