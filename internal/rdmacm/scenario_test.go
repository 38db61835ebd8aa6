package rdmacm_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// testWalk issues the commands of a client and a server up to the connection.
func testWalk(m machine) {
	f := m.file()
	server := m.id(f, 1, uapi.RDMA_PS_TCP)
	must(m, f.Bind(server, m.sockaddr(m.addr, 0)))
	bound, err := f.QueryAddr(server)
	must(m, err)
	port := binary.BigEndian.Uint16(bound.SrcAddr[2:])
	if bound.SrcSize != 16 || port == 0 || bound.PortNum != 1 || bound.NodeGuid == 0 ||
		bound.IbdevIndex == rdmacm.NoIndex {
		m.Errorf("bound: %+v", bound)
	}
	must(m, f.Listen(server, 0))

	client := m.id(f, 2, uapi.RDMA_PS_TCP)
	must(m, f.ResolveAddr(client, nil, m.sockaddr(m.addr, port), 2000))
	if e := m.next(f, rdmacm.EventAddrResolved, 2); e.Id != client || e.Status != 0 {
		m.Errorf("%+v", e)
	}
	paths, err := f.QueryPath(client)
	if must(m, err); len(paths) != 0 {
		m.Errorf("%d paths before there is a route", len(paths))
	}
	must(m, f.ResolveRoute(client, 2000))
	m.next(f, rdmacm.EventRouteResolved, 2)
	resolved, err := f.QueryAddr(client)
	must(m, err)
	if resolved.IbdevIndex != bound.IbdevIndex || resolved.DstSize != 16 ||
		netip.AddrFrom4([4]byte(resolved.SrcAddr[4:])).String() != m.addr {
		m.Errorf("resolved: %+v", resolved)
	}
	gids, err := f.QueryGID(client)
	must(m, err)
	sid := binary.BigEndian.Uint64(gids.DstAddr[24:])
	if family := binary.NativeEndian.Uint16(gids.SrcAddr[:]); family != unix.AF_IB || gids.SrcSize != 48 ||
		sid != uapi.RDMA_PS_TCP<<16|uint64(port) {
		m.Errorf("family %d of %d bytes, service %#x", family, gids.SrcSize, sid)
	}
	if gid := netip.AddrFrom16([16]byte(gids.SrcAddr[8:24])); gid.Unmap().String() != m.addr {
		m.Errorf("GID %v", gid)
	}
	if paths, err = f.QueryPath(client); err != nil || len(paths) != 1 || paths[0].Flags != uapi.IB_PATH_GMP|
		uapi.IB_PATH_PRIMARY|uapi.IB_PATH_BIDIRECTIONAL {
		m.Errorf("paths %+v, %v", paths, err)
	}
	attr, err := f.InitQPAttr(client, qpsInit)
	must(m, err)
	if attr.QpState != qpsInit || attr.PortNum != 1 || attr.QpAttrMask != 1<<0|1<<3|1<<4|1<<5 {
		m.Errorf("attributes %+v", attr)
	}
	if n := m.destroy(f, client); n != 2 {
		m.Errorf("%d events, want 2", n)
	}
	m.none(f)
}

func testErrors(m machine) {
	f := m.file()
	id := m.id(f, 1, uapi.RDMA_PS_TCP)
	m.refused("a foreign address", f.Bind(id, m.sockaddr("198.51.100.1", 0)), unix.EADDRNOTAVAIL)
	m.refused("no address", f.Bind(id, nil), unix.EINVAL)
	m.refused("half an address", f.Bind(id, m.sockaddr(m.addr, 1)[:8]), unix.EINVAL)
	m.refused("a route before the address", f.ResolveRoute(id, 1), unix.EINVAL)
	m.refused("connect before the route", f.Connect(&uapi.RdmaUcmConnect{ConnParam: connParam(1, ""), Id: id}),
		unix.EINVAL)
	_, err := f.InitQPAttr(id, qpsInit)
	m.refused("QP attributes without device", err, unix.EINVAL)
	must(m, f.Bind(id, m.sockaddr(m.addr, 7999)))
	m.refused("binding twice", f.Bind(id, m.sockaddr(m.addr, 7999)), unix.EINVAL)
	other := m.id(f, 2, uapi.RDMA_PS_TCP)
	m.refused("a port taken for another address", f.Bind(other, m.sockaddr("0.0.0.0", 7999)), unix.EADDRNOTAVAIL)
	m.refused("a taken port", f.Bind(other, m.sockaddr(m.addr, 7999)), unix.EADDRINUSE)
	m.refused("no way", f.ResolveAddr(m.id(f, 3, uapi.RDMA_PS_TCP), nil, m.sockaddr("198.51.100.1", 1), 1),
		unix.ENETUNREACH)
	m.refused("disconnect without connection", f.Disconnect(id), unix.EINVAL)
	m.refused("reject without request", f.Reject(id, 28, nil), unix.EINVAL)
	m.refused("an unknown reason", f.Reject(id, 1, nil), unix.EINVAL)
	m.refused("accept without request", f.Accept(&uapi.RdmaUcmAccept{Uid: 1, Id: id, ConnParam: connParam(1, "")}),
		unix.EINVAL)
	_, err = f.JoinMulticast(id, 1, m.sockaddr("239.1.1.1", 0), 0)
	m.refused("a group on a connected id", err, unix.EINVAL)
	_, err = f.CreateID(9, 0x7777, 0)
	m.refused("an unknown port space", err, unix.EINVAL)
	stranger := m.file()
	m.refused("the id of another file", stranger.Listen(id, 0), unix.EINVAL)
	m.destroy(f, id)
	m.refused("a destroyed id", f.Listen(id, 0), unix.ENOENT)
	_, err = f.DestroyID(id)
	m.refused("destroying twice", err, unix.ENOENT)
	_, err = f.LeaveMulticast(1 << 30)
	m.refused("leaving nothing", err, unix.ENOENT)
	_, err = f.MigrateID(1<<30, stranger)
	m.refused("migrating nothing", err, unix.ENOENT)
}

// testLoopback: to the connection manager, a loopback address is the unspecified
// address, and on RoCE no route leads to it.
func testLoopback(m machine) {
	f := m.file()
	id := m.id(f, 1, uapi.RDMA_PS_TCP)
	must(m, f.Bind(id, m.sockaddr("127.0.0.1", 0)))
	resp, err := f.QueryAddr(id)
	if must(m, err); resp.PortNum != 0 || resp.NodeGuid != 0 || resp.IbdevIndex != 0 {
		m.Errorf("bound to a device: %+v", resp)
	}
	must(m, f.Listen(id, 1))
	for i, dst := range []string{"127.0.0.1", "0.0.0.0"} {
		uid := uint64(10 + i)
		client := m.id(f, uid, uapi.RDMA_PS_TCP)
		must(m, f.ResolveAddr(client, nil, m.sockaddr(dst, 7), 2000))
		m.next(f, rdmacm.EventAddrResolved, uid)
		m.refused("a route to "+dst, f.ResolveRoute(client, 2000), unix.ENODEV)
	}
}

func testOptions(m machine) {
	f := m.file()
	id := m.id(f, 1, uapi.RDMA_PS_TCP)
	set := func(name uint32, value ...byte) error { return f.SetOption(id, uapi.RDMA_OPTION_ID, name, value) }
	must(m, set(uapi.RDMA_OPTION_ID_TOS, 0x20))
	must(m, set(uapi.RDMA_OPTION_ID_ACK_TIMEOUT, 9))
	must(m, set(uapi.RDMA_OPTION_ID_REUSEADDR, 1, 0, 0, 0))
	must(m, set(uapi.RDMA_OPTION_ID_AFONLY, 1, 0, 0, 0))
	m.refused("a long option", set(uapi.RDMA_OPTION_ID_TOS, 1, 2), unix.EINVAL)
	m.refused("a short option", set(uapi.RDMA_OPTION_ID_REUSEADDR, 1), unix.EINVAL)
	m.refused("an unknown option", set(99, 1), unix.ENOSYS)
	m.refused("an unknown level", f.SetOption(id, 7, 0, []byte{1}), unix.ENOSYS)
	m.refused("half a path", f.SetOption(id, uapi.RDMA_OPTION_IB, uapi.RDMA_OPTION_IB_PATH, make([]byte, 71)), unix.EINVAL)
	must(m, f.Bind(id, m.sockaddr(m.addr, 7998)))
	again := m.id(f, 2, uapi.RDMA_PS_TCP)
	m.refused("a taken port", f.Bind(again, m.sockaddr(m.addr, 7998)), unix.EADDRINUSE)
	must(m, f.SetOption(again, uapi.RDMA_OPTION_ID, uapi.RDMA_OPTION_ID_REUSEADDR, []byte{1, 0, 0, 0}))
	must(m, f.Bind(again, m.sockaddr(m.addr, 7998)))
	m.refused("listening on a shared port", f.Listen(id, 1), unix.EADDRINUSE)
	m.destroy(f, again)
	must(m, f.Listen(id, 1))
	m.refused("the option on a listener", set(uapi.RDMA_OPTION_ID_AFONLY, 1, 0, 0, 0), unix.EINVAL)

	// A path that is set replaces route resolution.
	p := m.pair(uapi.RDMA_PS_TCP)
	paths, err := p.client.QueryPath(p.active)
	must(m, err)
	other := m.id(p.client, 44, uapi.RDMA_PS_TCP)
	must(m, p.client.ResolveAddr(other, nil, m.sockaddr(m.addr, p.port), 2000))
	m.next(p.client, rdmacm.EventAddrResolved, 44)
	record := binary.NativeEndian.AppendUint64(nil, uint64(paths[0].Flags))
	for _, w := range paths[0].PathRec {
		record = binary.NativeEndian.AppendUint32(record, w)
	}
	must(m, p.client.SetOption(other, uapi.RDMA_OPTION_IB, uapi.RDMA_OPTION_IB_PATH, record))
	m.next(p.client, rdmacm.EventRouteResolved, 44)
}

func testMulticast(m machine) {
	f := m.file()
	id := m.id(f, 1, uapi.RDMA_PS_UDP)
	_, err := f.JoinMulticast(id, 2, m.sockaddr("239.1.1.1", 0), 0)
	m.refused("joining before bind", err, unix.EINVAL)
	must(m, f.Bind(id, m.sockaddr(m.addr, 0)))
	_, err = f.JoinMulticast(id, 2, m.sockaddr("239.1.1.1", 0), 2)
	m.refused("unknown flags", err, unix.EINVAL)
	mc, err := f.JoinMulticast(id, 2, m.sockaddr("239.1.1.1", 0), 0)
	must(m, err)
	e := m.next(f, rdmacm.EventMulticastJoin, 2)
	if ud := rdmacm.UDParam(&e); e.Id != mc || ud.QpNum != 0xffffff || ud.Qkey != 0x01234567 || ud.PrivateDataLen != 0 ||
		ud.AhAttr.IsGlobal != 1 ||
		netip.AddrFrom16(ud.AhAttr.Grh.Dgid).Unmap().String() != "239.1.1.1" {
		m.Errorf("membership %d of %d: %+v", e.Id, mc, ud)
	}
	n, err := f.LeaveMulticast(mc)
	if must(m, err); n != 1 {
		m.Errorf("%d events, want 1", n)
	}
	_, err = f.LeaveMulticast(mc)
	m.refused("leaving twice", err, unix.ENOENT)
	if n := m.destroy(f, id); n != 1 {
		m.Errorf("%d events of the id, want 1", n)
	}
}

// testMigrate moves an id with an unread event to a file that a reader waits on.
func testMigrate(m machine) {
	p := m.pair(uapi.RDMA_PS_TCP)
	to := m.file()
	must(m, p.client.Connect(&uapi.RdmaUcmConnect{ConnParam: connParam(1, ""), Id: p.active}))
	child := m.next(p.server, rdmacm.EventConnectRequest, listenerUID).Id
	m.owns(p.server, child)
	n, err := p.server.MigrateID(child, p.server)
	if must(m, err); n != 0 {
		m.Errorf("%d events of the child, want 0: the request is the listener's", n)
	}
	must(m, p.accept(child))
	p.polled()
	must(m, to.SetReadDeadline(time.Now().Add(patience)))
	var e uapi.RdmaUcmEventResp
	done := make(chan error)
	go func() { done <- to.NextEvent(&e) }()
	runtime.Gosched()
	n, err = to.MigrateID(p.active, p.client)
	must(m, err)
	m.owns(to, p.active)
	if must(m, <-done); n != 2 || e.Event != rdmacm.EventConnectResponse || e.Uid != activeUID {
		m.Errorf("%d events; event %d of uid %d", n, e.Event, e.Uid)
	}
	m.refused("the old file", p.client.Disconnect(p.active), unix.EINVAL)
	must(m, to.Accept(&uapi.RdmaUcmAccept{Id: p.active}))
	m.next(p.server, rdmacm.EventEstablished, passiveUID)
}

// polled waits until the reply and its event have arrived.
func (p *pair) polled() {
	p.Helper()
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		if _, err := p.client.InitQPAttr(p.active, qpsRTR); err == nil {
			return
		}
		runtime.Gosched()
	}
	p.Fatal("no reply")
}

func testWait(m machine) {
	f := m.file()
	var e uapi.RdmaUcmEventResp
	must(m, f.SetReadDeadline(time.Now().Add(time.Millisecond)))
	if err := f.NextEvent(&e); !errors.Is(err, os.ErrDeadlineExceeded) {
		m.Errorf("at the deadline: %v", err)
	}
	must(m, f.SetReadDeadline(time.Time{}))
	done := make(chan error)
	go func() { done <- f.NextEvent(&e) }()
	runtime.Gosched()
	must(m, f.Close())
	if err := <-done; !errors.Is(err, os.ErrClosed) {
		m.Errorf("after Close: %v", err)
	}
	if err := f.Listen(0, 0); !errors.Is(err, os.ErrClosed) {
		m.Errorf("a command after Close: %v", err)
	}
}

// testOwnEvents uses commands that older kernels do not have.
func testOwnEvents(m machine) {
	f := m.file()
	id := m.id(f, 1, uapi.RDMA_PS_TCP)
	err := f.WriteCMEvent(id, rdmacm.EventUser, -5, 0x1122334455667788)
	if m.real && errors.Is(err, unix.EINVAL) {
		m.Log("this kernel has no WRITE_CM_EVENT")
	} else {
		must(m, err)
		if e := m.next(f, rdmacm.EventUser, 1); int32(e.Status) != -5 || rdmacm.Arg(&e) != 0x1122334455667788 {
			m.Errorf("%+v", e)
		}
		m.refused("another event", f.WriteCMEvent(id, rdmacm.EventEstablished, 0, 0), unix.EINVAL)
	}
	service := &uapi.RdmaUcmIbService{Flags: uapi.RDMA_USER_CM_IB_SERVICE_FLAG_ID, ServiceId: 1}
	if err := f.ResolveIBService(id, service); err == nil {
		m.Error("a service on Ethernet")
	} else {
		m.Logf("RESOLVE_IB_SERVICE: %v", err)
	}
}
