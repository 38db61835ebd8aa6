package cm

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestGoldenRefusals checks errors that involve no peer.
func TestGoldenRefusals(t *testing.T) {
	r := newRig(t)
	k := newTalk(t)
	b := newTable(t)
	bad := netip.MustParseAddrPort("[fe80::1%nosuch0]:1")

	fresh := k.id(PSTCP)
	b.add("create id: QP type", second(k.CreateIDFor(PSTCP, uverbs.UD)))
	b.add("create id: port space", second(k.CreateID(7)))
	b.add("bind: foreign address", k.id(PSTCP).Bind(nowhere))
	b.add("bind: zone", fresh.Bind(bad))
	b.add("resolve: zone of dst", fresh.ResolveAddr(netip.AddrPort{}, bad, 0))
	b.add("resolve: zone of src", fresh.ResolveAddr(bad, silent, 0))
	b.add("resolve: foreign src", k.id(PSTCP).ResolveAddr(nowhere, silent, 0))
	b.add("resolve: no route", fresh.ResolveAddr(netip.AddrPort{}, nowhere, 0))
	b.add("resolve: IB", k.id(PSIB).ResolveIB(&IBAddr{}, IBAddr{}, 0))
	b.add("bind: IB", k.id(PSIB).BindIB(IBAddr{}))
	b.add("route: not resolved", fresh.ResolveRoute(0))
	b.add("listen: backlog", fresh.Listen(-1))
	b.add("listen: large backlog", fresh.Listen(math.MaxInt32+1))
	b.add("connect: not bound", fresh.Connect(foreign))
	b.add("connect: not bound, no param", fresh.Connect(nil))
	b.add("accept: not bound", fresh.Accept(foreign))
	b.add("reject: nothing", fresh.Reject(nil))
	b.add("disconnect: not bound", fresh.Disconnect())
	b.add("create QP: not bound", fresh.CreateQP(nil, small))
	b.add("create SRQ: not bound", fresh.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 4}))
	b.add("memory: not bound", second(fresh.RegMsgs(make([]byte, 8))))
	b.add("allocate: not bound", second(fresh.AllocRead(8)))
	b.add("post recv: no QP", fresh.PostRecv(1, uverbs.SGE{}))
	b.add("send comp: no QP", second(fresh.SendComp(context.Background())))
	b.add("recv comp: no QP", second(fresh.RecvComp(context.Background())))
	b.add("establish: nothing", fresh.Establish())
	b.add("notify: nothing", fresh.Notify(uverbs.EventCommEst))
	b.add("ECE: no vendor", fresh.SetLocalECE(ECE{}))
	b.add("init QP: not bound", third(fresh.InitQPAttr(uverbs.StateInit)))
	b.add("set paths: not resolved", fresh.SetPaths([]PathRecord{{}}))
	b.add("join: not bound", second(k.id(PSUDP).JoinMulticast(netip.MustParseAddr("239.1.1.1"), JoinFull)))
	b.add("join: not multicast", second(fresh.JoinMulticast(here, JoinFull)))
	b.add("join: zero address", second(fresh.JoinMulticast(netip.Addr{}, JoinFull)))
	b.add("join: zone", second(fresh.JoinMulticast(netip.MustParseAddr("ff02::1%nosuch0"), JoinFull)))
	b.add("join: IB", second(fresh.JoinMulticastIB(IBAddr{GID: uverbs.GID{0: 0xff}}, JoinFull)))

	// Two listeners.
	first := k.listen(PSTCP)
	for name, addr := range map[string]netip.AddrPort{"same address": first.LocalAddr(),
		"any address": at(netip.IPv4Unspecified(), first.LocalAddr().Port())} {
		b.add("two listeners: "+name, k.id(PSTCP).Bind(addr))
	}
	reused := [2]*ID{k.id(PSTCP), k.id(PSTCP)}
	for _, i := range reused {
		check(t, i.SetReuseAddr(true))
		check(t, i.Bind(at(here, 9)))
	}
	b.add("two listeners: reuse", reused[0].Listen(0))
	b.add("bind: twice", first.Bind(first.LocalAddr()))
	b.add("listen: twice", first.Listen(0))
	b.add("migrate: listener", first.Migrate(k.EventChannel))
	b.add("option: too late", first.SetReuseAddr(true))
	b.add("option: AF too late", first.SetAFOnly(true))
	b.add("option: of a UD id", k.id(PSUDP).SetAckTimeout(9))

	for name, errno := range map[string]unix.Errno{"EACCES": unix.EACCES, "ENODEV": unix.ENODEV, "ENOMEM": unix.ENOMEM} {
		r.Set(func() { r.Refuse["BIND"] = errno })
		b.add("bind: "+name, k.id(PSTCP).Bind(at(here, 0)))
	}
	r.Set(func() { clear(r.Refuse); r.Refuse["RESOLVE_ADDR"] = unix.ENODEV })
	b.add("resolve: no device", k.id(PSTCP).ResolveAddr(netip.AddrPort{}, silent, 0))
	r.Set(func() { clear(r.Refuse); r.Refuse["WRITE_CM_EVENT"] = unix.EINVAL })
	b.add("write event: old kernel", fresh.WriteEvent(0, 1))
	r.Set(func() { clear(r.Refuse); r.Refuse["QUERY"] = unix.EIO })
	b.add("paths: input/output error", second(fresh.Paths()))
	r.Set(func() { clear(r.Refuse); r.Stale = true })
	b.add("credentials", fresh.SetTOS(1))
	b.add("credentials: create", second(k.CreateID(PSTCP)))
	r.Set(func() { r.Stale = false })

	b.add("channel: busy", k.Close())
	other := good(NewEventChannel())(t)
	check(t, other.Close())
	b.add("channel: closed", second(other.CreateID(PSTCP)))
	b.add("channel: wait on closed", second(other.Next(context.Background())))
	b.add("migrate: to closed", fresh.Migrate(other))
	b.golden("refusals")
}

func second[T any](_ T, err error) error { return err }

func third[T, U any](_ T, _ U, err error) error { return err }

// TestGoldenClosed checks that every call of a closed id returns ErrClosed.
func TestGoldenClosed(t *testing.T) {
	newRig(t)
	k := newTalk(t)
	b := newTable(t)
	i := k.id(PSTCP)
	check(t, i.Bind(at(here, 7)))
	check(t, i.Close())
	check(t, i.Close())
	for name, call := range map[string]func() error{
		"bind":     func() error { return i.Bind(at(here, 0)) },
		"resolve":  func() error { return i.ResolveAddr(netip.AddrPort{}, silent, 0) },
		"route":    func() error { return i.ResolveRoute(0) },
		"listen":   func() error { return i.Listen(0) },
		"connect":  func() error { return i.Connect(foreign) },
		"accept":   func() error { return i.Accept(foreign) },
		"reject":   func() error { return i.Reject(nil) },
		"hang up":  i.Disconnect,
		"qp":       func() error { return i.CreateQP(nil, small) },
		"srq":      func() error { return i.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 4}) },
		"confirm":  i.Establish,
		"notify":   func() error { return i.Notify(uverbs.EventCommEst) },
		"ece":      func() error { return i.SetLocalECE(ECE{VendorID: 1}) },
		"attr":     func() error { return third(i.InitQPAttr(uverbs.StateInit)) },
		"tos":      func() error { return i.SetTOS(1) },
		"paths":    func() error { return second(i.Paths()) },
		"join":     func() error { return second(i.JoinMulticast(netip.MustParseAddr("239.1.1.1"), JoinFull)) },
		"migrate":  func() error { return i.Migrate(k.EventChannel) },
		"sync":     func() error { return second(i.Sync()) },
		"event":    func() error { return i.WriteEvent(0, 1) },
		"register": func() error { return second(i.RegWrite(nil)) },
		"post":     func() error { return i.PostSend(1, 0, uverbs.SGE{}) },
		"wait":     func() error { return second(i.RecvComp(context.Background())) },
	} {
		b.add(name, call())
	}
	check(t, i.DestroyQP())
	check(t, i.DestroySRQ())
	if i.Verbs() != nil || i.PD() != nil {
		t.Error("a closed id has a device")
	}
	b.golden("closed")
}

// TestGoldenOpen checks the errors of opening the node.
func TestGoldenOpen(t *testing.T) {
	real := openFile
	t.Cleanup(func() { openFile = real })
	b := newTable(t)
	for name, err := range map[string]error{
		"no node":      fmt.Errorf("%w: not there", rdmacm.ErrNoNode),
		"no RDMA":      fmt.Errorf("%w: %w", rdmacm.ErrNoNode, nldev.ErrNoRDMA),
		"not there":    &os.PathError{Op: "open", Path: "/dev/infiniband/rdma_cm", Err: syscall.ENOENT},
		"forbidden":    &os.PathError{Op: "open", Path: "/dev/infiniband/rdma_cm", Err: syscall.EACCES},
		"out of files": &os.PathError{Op: "open", Path: "/dev/infiniband/rdma_cm", Err: syscall.EMFILE},
		"no socket":    &nldev.Error{Op: "find node of", Object: "rdma_cm", Errno: syscall.EMFILE},
		"ABI":          fmt.Errorf("%w: 9", rdmacm.ErrABI),
	} {
		openFile = func() (*rdmacm.File, error) { return nil, err }
		b.add("channel: "+name, second(NewEventChannel()))
		b.add("id: "+name, second(NewID(PSTCP)))
		if len(pumps.running) > 0 {
			t.Error("a pump runs without a node")
		}
	}
	b.golden("open")
}
