package uverbs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/memlock"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// An errorGroup is a section of the golden file and of docs/evidence/errors.md.
type errorGroup struct {
	name  string
	cases []errorCase
}

// An errorCase is an error and the targets that errors.Is must find in it.
type errorCase struct {
	name string
	err  error
	is   []error
}

// registerFake makes Device.Open find the fake driver. A provider can be registered only once.
var registerFake = sync.OnceFunc(func() {
	driver.Register[QPConfig, AHAttr, SendWR, RecvWR, SGE, Opcode, SendFlags, WC](&fakeProvider{})
})

// TestErrorTexts checks the text of every error that a user is likely to see. Read
// testdata/errors.golden as a user would who sees the error for the first time: it must describe
// what is wrong, and what to do.
func TestErrorTexts(t *testing.T) {
	registerFake()
	groups := []errorGroup{
		{"Opening a device", openErrors()}, {"Numbers", numberErrors(t)}, {"Memory", memoryErrors(t)},
		{"Memory windows", mwErrors(t)}, {"GIDs", gidChoices(t)},
		{"Connecting", connectErrors(t)},
		{"States of a QP", stateErrors(t)}, {"Unreliable connections", ucErrors(t)}, {"Draining", drainErrors(t)},
		{"What not every device does", optionalErrors(t)}, {"Datagrams", datagramErrors(t)},
		{"Shared receive queues", srqErrors(t)}, {"Extended reliable connections", xrcErrors(t)},
		{"Dynamic connections", dcErrors(t)},
		{"Domains", domainErrors(t)}, {"Sharing a context", importErrors(t)}, {"Life", lifeErrors(t)},
		{"Posting, polling and waiting", append(sentinels(), waitErrors(t)...)},
		{"Completions", statusErrors()},
	}
	var out strings.Builder
	for _, group := range groups {
		fmt.Fprintf(&out, "# %s\n\n", group.name)
		for _, c := range group.cases {
			if c.err == nil {
				t.Errorf("%s: no error", c.name)
				continue
			}
			fmt.Fprintf(&out, "%s\n    %v\n", c.name, c.err)
			for _, target := range c.is {
				if !errors.Is(c.err, target) {
					t.Errorf("%s: %v is not %v", c.name, c.err, target)
				}
			}
		}
		out.WriteString("\n")
	}
	page := errorPage(t, groups)
	ioctltest.GoldenFile(t, "../docs/evidence/errors.md", page)
	usualErrors(t, page)
	ioctltest.Golden(t, "errors", out.String())
}

func openErrors() []errorCase {
	d := Device{Name: "rxe0", Node: "/nonexistent/uverbs0", DriverID: fakeDriver, ABI: 1, Major: 231, Minor: 192}
	open := func(change func(*Device)) error {
		d := d
		change(&d)
		return second(d.Open())
	}
	return []errorCase{
		{"no such device", noSuchDevice("mlx5_9", []Device{{Name: "rxe0"}, {Name: "mlx5_0"}}, false),
			[]error{ErrNoDevice, unix.ENODEV}},
		{"no such device in exclusive mode", noSuchDevice("mlx5_9", []Device{{Name: "rxe0"}}, true), []error{ErrNoDevice}},
		{"no device at all", noSuchDevice("", nil, false), []error{ErrNoDevice}},
		{"no device at all in exclusive mode", noSuchDevice("", nil, true), []error{ErrNoDevice}},
		{"ioctl denied", (&Context{name: "rxe0"}).wrap("open", "rxe0", explainGetContext(unix.EPERM), ""),
			[]error{fs.ErrPermission, unix.EPERM}},
		{"no RDMA in the kernel", explainDevices(&nldevError{unix.EPROTONOSUPPORT}),
			[]error{ErrNoDevice, unix.EPROTONOSUPPORT}},
		{"list refused", explainDevices(&nldev.Error{Op: "list devices", Errno: unix.EPERM}),
			[]error{unix.EPERM, fs.ErrPermission}},
		{"list without descriptors", explainDevices(&nldev.Error{Op: "list devices", Errno: unix.EMFILE}),
			[]error{unix.EMFILE}},
		{"limit of the rdma cgroup", (&Context{name: "mlx5_0"}).wrap("open", "mlx5_0", unix.EAGAIN, ""),
			[]error{unix.EAGAIN}},
		{"limit of the rdma cgroup, found", cgroupError(), []error{unix.EAGAIN}},
		{"driver without provider", open(func(d *Device) { d.DriverID = uapi.RDMA_DRIVER_HNS }), []error{ErrNoProvider}},
		{"provider not linked", open(func(d *Device) { d.DriverID = uapi.RDMA_DRIVER_RXE }), []error{ErrNoProvider}},
		{"provider not linked, mlx5", open(func(d *Device) { d.DriverID = uapi.RDMA_DRIVER_MLX5 }), []error{ErrNoProvider}},
		{"unknown ABI", open(func(d *Device) { d.ABI = 9 }), []error{ErrABI}},
		{"old ABI", open(func(d *Device) { d.ABI = 0 }), []error{ErrABI}},
		{"no uverbs", open(func(d *Device) { d.Node = "" }), []error{ErrNoNode, os.ErrNotExist}},
		{"node missing", open(func(*Device) {}), []error{ErrNoNode, unix.ENOENT}},
		{"another file", open(func(d *Device) { d.Node = "/dev/null" }), []error{ErrNoNode}},
		{"no permission", explainOpen(&d, unix.EACCES), []error{fs.ErrPermission, unix.EACCES}},
		{"another namespace", explainOpen(&d, unix.EPERM), []error{ErrNetns, fs.ErrPermission}},
		{"removed", explainOpen(&d, unix.ENXIO), []error{ErrDeviceGone, unix.ENXIO}},
		{"no descriptors", explainOpen(&d, unix.EMFILE), []error{unix.EMFILE}},
		{"kernel too old", (&Context{}).wrap("open", "rxe0", explainGetContext(unix.ENOTTY), ""),
			[]error{ErrNotSupported, unix.ENOTTY}},
	}
}

type nldevError struct{ errno unix.Errno }

func (e *nldevError) Error() string   { return "rdma netlink: " + e.errno.Error() }
func (e *nldevError) Unwrap() []error { return []error{e.errno, nldev.ErrNoRDMA} }

func numberErrors(t *testing.T) []errorCase {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	cq := good(r.c.CreateCQ(CQConfig{Entries: 4, NoEvents: true}))(t)
	inv := []error{ErrInvalid, unix.EINVAL}
	newCQ := func(cfg CQConfig) error { return second(r.c.CreateCQ(cfg)) }
	qp := func(change func(*QPConfig)) error {
		cfg := QPConfig{Type: RC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4}
		change(&cfg)
		return second(pd.CreateQP(cfg))
	}
	cases := []errorCase{
		{"port 0", second(r.c.QueryPort(0)), inv},
		{"port too high", second(r.c.GIDs(9)), inv},
		{"CQ of no entry", newCQ(CQConfig{}), inv},
		{"CQ too large", newCQ(CQConfig{Entries: 5000, NoEvents: true}), inv},
		{"CQ over all bounds", newCQ(CQConfig{Entries: 1 << 40}), inv},
		{"vector", newCQ(CQConfig{Entries: 1, Vector: 2}), inv},
		{"resize to 0", cq.Resize(0), inv},
		{"resize too large", cq.Resize(5000), inv},
		{"QP without CQ", qp(func(c *QPConfig) { c.SendCQ = nil }), inv},
		{"QP of no type", qp(func(c *QPConfig) { c.Type = 0 }), inv},
		{"QP of unknown type", qp(func(c *QPConfig) { c.Type = 99 }), []error{ErrNotSupported}},
		{"MaxSendWR negative", qp(func(c *QPConfig) { c.MaxSendWR = -1 }), inv},
		{"MaxSendWR too large", qp(func(c *QPConfig) { c.MaxSendWR = 2000 }), inv},
		{"MaxRecvWR too large", qp(func(c *QPConfig) { c.MaxRecvWR = 2000 }), inv},
		{"MaxSendSGE too large", qp(func(c *QPConfig) { c.MaxSendSGE = 17 }), inv},
		{"MaxRecvSGE too large", qp(func(c *QPConfig) { c.MaxRecvSGE = 17 }), inv},
		{"MaxInline too large", qp(func(c *QPConfig) { c.MaxInline = 2000 }), inv},
	}
	r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"CQ.CREATE": unix.ENOMEM, "RESIZE_CQ": unix.EINVAL} })
	cases = append(cases, errorCase{"no CQ left", newCQ(CQConfig{Entries: 1, NoEvents: true}), []error{unix.ENOMEM}},
		errorCase{"resize below what waits", cq.Resize(1), inv})
	r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"CREATE_COMP_CHANNEL": unix.EMFILE} })
	cases = append(cases, errorCase{"no descriptor left", newCQ(CQConfig{Entries: 1}), []error{unix.EMFILE}})
	r.k.Set(func() { r.k.Refuse = nil; r.k.Ports[0].State = 1; r.k.GIDs = nil })
	cases = append(cases,
		errorCase{"no active port", second(r.c.SelectGID(0, GID{}.Addr())), []error{unix.ENETDOWN}},
		errorCase{"no GID", second(r.c.SelectGID(1, GID{}.Addr())), inv})
	r.k.Set(func() {
		r.k.GIDs = []uapi.IbUverbsGidEntry{{PortNum: 1, GidType: 1, Gid: [16]byte{0: 0xfe, 1: 0x80, 15: 1}}}
	})
	return append(cases, errorCase{"no GID that can be used", second(r.c.SelectGID(1, GID{}.Addr())), inv})
}

func optionalErrors(t *testing.T) []errorCase {
	r := newRig(t)
	b := r.bundle(t, false)
	lacks, inv := []error{ErrNotSupported, unix.EOPNOTSUPP}, []error{ErrInvalid}
	dmabuf := func(off, iova uint64, a Access) error { return second(b.pd.RegDMABuf(0, off, 8, iova, a)) }
	cases := []errorCase{
		{"GID not in use", second(r.c.QueryGID(1, 9)), inv},
		{"port speed", second(r.c.QueryPortSpeed(1)), lacks},
		{"CQ moderation", b.cq.Moderate(1, 1), lacks},
		{"CQ moderation, negative", b.cq.Moderate(-1, 1), inv},
		{"rate limit", b.qp.Modify(QPAttr{State: StateRTS, RateLimit: 9}, MaskState|MaskRateLimit), lacks},
		{"dma-buf", dmabuf(0, 0, 0), lacks},
		{"dma-buf, no range", second(b.pd.RegDMABuf(0, 0, 0, 0, 0)), inv},
	}
	r.k.Set(func() { r.k.DMABuf, r.k.Extended.CqModerationCaps.MaxCqModerationCount = 7, 10 })
	return append(cases, []errorCase{
		{"CQ moderation, too much", b.cq.Moderate(11, 0), inv},
		{"dma-buf, another descriptor", dmabuf(0, 0, 0), inv},
		{"dma-buf, another place in the page", dmabuf(0, 8, 0), inv},
		{"dma-buf, for windows", dmabuf(0, 0, LocalWrite|MWBindAccess), inv},
		{"dma-buf, RemoteWrite alone", dmabuf(0, 0, RemoteWrite), inv},
	}...)
}

func memoryErrors(t *testing.T) []errorCase {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	refused := func(errno unix.Errno) error {
		r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"REG_MR": errno} })
		defer r.k.Set(func() { r.k.Refuse = nil })
		return second(pd.RegMR(make([]byte, 100), LocalWrite))
	}
	limited := memlock.State{Limit: 64 << 10}
	setMemlock(t, limited)
	r.k.Memlock = 64 << 10
	mr := good(pd.Alloc(4096, LocalWrite))(t)
	other := newRig(t)
	foreign := good(other.c.AllocPD())(t)
	inv, lacks := []error{ErrInvalid, unix.EINVAL}, []error{ErrNotSupported, unix.EOPNOTSUPP}
	inUserNS, queue := queueMemlockErrors(t, limited)
	return []errorCase{
		{"limit on locked memory", second(pd.Alloc(1<<20, LocalWrite)), []error{ErrMemlock, unix.ENOMEM}},
		{"limit on locked memory, in a user namespace", inUserNS, []error{ErrMemlock, unix.ENOMEM}},
		{"limit on locked memory, of a queue on mlx5", queue, []error{ErrMemlock, unix.ENOMEM}},
		{"no memory, under the limit", refused(unix.ENOMEM), []error{unix.ENOMEM}},
		{"nothing to register", second(pd.RegMR(nil, 0)), []error{ErrInvalid}},
		{"nothing to allocate", second(pd.Alloc(0, 0)), []error{ErrInvalid}},
		{"more than there is", second(pd.Alloc(1<<46, 0)), []error{unix.ENOMEM}},
		{"RemoteWrite alone", second(pd.RegMR(make([]byte, 100), RemoteWrite)), []error{ErrInvalid}},
		{"unknown access", refused(unix.EINVAL), []error{ErrInvalid}},
		{"memory that is read-only", refused(unix.EFAULT), []error{unix.EFAULT}},
		{"another place in the page", second(pd.RegMRIOVA(mr.Bytes()[16:], 4096+24, 0)), inv},
		{"beyond all addresses", second(pd.RegMRIOVA(mr.Bytes(), ^uint64(0)-99, 0)), inv},
		{"no on-demand paging", second(pd.RegMR(mr.Bytes(), OnDemand)), lacks},
		{"no implicit on-demand paging", second(pd.RegImplicit(OnDemand)), []error{ErrNotSupported}},
		{"all memory, pinned", second(pd.RegImplicit(LocalWrite)), inv},
		{"no FLUSH", second(pd.RegMR(mr.Bytes(), FlushGlobal)), lacks},
		{"no FLUSH to persistence", second(pd.RegMR(mr.Bytes(), FlushPersistent)), lacks},
		{"no rereg", mr.Rereg(ReregAccess, nil, nil, 0), lacks},
		{"no rereg of memory", mr.Rereg(ReregTranslation, nil, make([]byte, 8), 0), lacks},
		{"rereg of nothing", mr.Rereg(0, nil, nil, 0), inv},
		{"rereg without PD", mr.Rereg(ReregPD, nil, nil, 0), inv},
		{"rereg without memory", mr.Rereg(ReregTranslation, nil, nil, 0), inv},
		{"rereg, access too many", mr.Rereg(ReregPD, pd, nil, LocalWrite), inv},
		{"rereg to a foreign PD", mr.Rereg(ReregPD, foreign, nil, 0), inv},
		{"rereg, OnDemand", mr.Rereg(ReregAccess, nil, nil, OnDemand), inv},
		{"rereg, RemoteWrite alone", reregRefused(t, RemoteWrite, unix.EINVAL), inv},
		{"rereg, unknown access", reregRefused(t, RemoteRead, unix.EINVAL), inv},
		{"rereg, no FLUSH", reregRefused(t, FlushGlobal, unix.EOPNOTSUPP), lacks},
		{"rereg, memory that is read-only", reregRefused(t, LocalWrite, unix.EACCES), []error{unix.EACCES}},
		{"advice on a device without", pd.advise(AdvicePrefetch, 0, make([]byte, 16)), lacks},
		{"advice, not on demand", pd.AdviseMR(AdvicePrefetch, 0, MRRange{mr, 0, 1}), inv},
		{"advice, outside", pd.AdviseMR(AdvicePrefetch, 0, MRRange{mr, 0, 4097}), []error{ErrRange}},
		{"window bound", func() error {
			r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"MR.DESTROY": unix.EINVAL} })
			defer r.k.Set(func() { r.k.Refuse = nil })
			return mr.Close()
		}(), []error{ErrBusy, unix.EINVAL}},
	}
}

// reregRefused returns the error of Rereg for an implicit MR, which has no bytes.
func reregRefused(t *testing.T, a Access, errno unix.Errno) error {
	t.Helper()
	r := newRig(t)
	r.pageable()
	r.k.Set(func() { r.k.Extended.DeviceCapFlagsEx = 0 })
	m := good(good(r.c.AllocPD())(t).RegImplicit(OnDemand))(t)
	r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"REREG_MR": errno} })
	return m.Rereg(ReregAccess, nil, nil, a)
}

func stateErrors(t *testing.T) []errorCase {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	cq := good(r.c.CreateCQ(CQConfig{Entries: 4, NoEvents: true}))(t)
	qp := good(pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4}))(t)
	inv := []error{ErrInvalid, unix.EINVAL}
	to := func(s QPState, m QPMask) error { return qp.Modify(QPAttr{State: s, Port: 1}, MaskState|m) }
	path := QPAttr{State: StateRTR, PathMTU: MTU1024, AV: AHAttr{IsGlobal: true, Port: 1, SGIDIndex: 2, HopLimit: 64}}
	const rtr = MaskState | MaskAV | MaskPathMTU | MaskDestQPN | MaskRQPSN | MaskMaxDestRdAtomic | MaskMinRNRTimer
	with := func(change func(*QPAttr)) error {
		a := path
		change(&a)
		return qp.Modify(a, rtr)
	}
	cases := []errorCase{
		{"RESET to RTS", to(StateRTS, MaskSQPSN), inv},
		{"send in RESET", second(qp.PostSend(SendWR{})), []error{ErrState}},
		{"receive in RESET", second(qp.PostRecv(RecvWR{})), []error{ErrState}},
		{"INIT, attribute missing", to(StateInit, MaskPort), inv},
		{"INIT, attribute too many", to(StateInit, MaskPort|MaskPKeyIndex|MaskAccess|MaskDestQPN), inv},
		{"INIT, no such port", qp.Modify(QPAttr{State: StateInit, Port: 7}, MaskState|MaskPort|MaskPKeyIndex|MaskAccess),
			inv},
		{"RESET, with an attribute", to(StateReset, MaskPort), inv},
	}
	check(t, qp.Init())
	return append(cases,
		errorCase{"RTR, all missing", to(StateRTR, 0), inv},
		errorCase{"GID index out of range", with(func(a *QPAttr) { a.AV.SGIDIndex = 99 }), inv},
		errorCase{"RoCE without GRH", with(func(a *QPAttr) { a.AV.IsGlobal = false }), inv},
		errorCase{"PathMTU too large", with(func(a *QPAttr) { a.PathMTU = MTU4096 }), inv},
		errorCase{"path over no port", with(func(a *QPAttr) { a.AV.Port = 3 }), inv},
		errorCase{"no route", refusedModify(r, qp, path, rtr, unix.ENETUNREACH), []error{unix.ENETUNREACH}},
		errorCase{"nobody there", refusedModify(r, qp, path, rtr, unix.ETIMEDOUT), []error{unix.ETIMEDOUT}},
	)
}

func refusedModify(r *rig, qp *QP, a QPAttr, m QPMask, errno unix.Errno) error {
	r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"MODIFY_QP": errno} })
	defer r.k.Set(func() { r.k.Refuse = nil })
	return qp.Modify(a, m)
}

func lifeErrors(t *testing.T) []errorCase {
	r := newRig(t)
	b := r.bundle(t, false)
	busy := []error{ErrBusy, unix.EBUSY}
	closed := []error{ErrClosed, os.ErrClosed}
	cases := []errorCase{
		{"CQ of a QP", b.cq.Close(), busy},
		{"PD of an MR and a QP", b.pd.Close(), busy},
	}
	r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"QP.DESTROY": unix.EIO} })
	refused := b.qp.Close()
	r.k.Set(func() { r.k.Refuse = nil })
	b.cq.overran()
	cases = append(cases,
		errorCase{"the kernel fails to destroy a QP", refused, []error{unix.EIO}},
		errorCase{"poll of an empty CQ that overran", second(b.cq.Poll(make([]WC, 1))), []error{ErrCQOverrun}})
	check(t, b.qp.Close())
	spare := good(r.c.CreateCQ(CQConfig{Entries: 1, NoEvents: true}))(t)
	check(t, spare.Close())
	cases = append(cases,
		errorCase{"post on a closed QP", second(b.qp.PostSend(SendWR{})), closed},
		errorCase{"QP on a closed CQ", second(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: spare})), closed},
		errorCase{"poll of a closed CQ", second(spare.Poll(make([]WC, 1))), closed})
	check(t, r.c.Close())
	return append(cases,
		errorCase{"PD of a closed Context", second(r.c.AllocPD()), closed},
		errorCase{"query of a closed Context", second(r.c.QueryDevice()), closed})
}

func sentinels() []errorCase {
	return []errorCase{
		{"ErrCQOverrun", ErrCQOverrun, nil},
		{"ErrQueueFull", ErrQueueFull, []error{unix.ENOMEM}},
		{"ErrRange", ErrRange, []error{unix.EINVAL}},
		{"ErrTooManySGEs", ErrTooManySGEs, []error{unix.EINVAL}},
		{"ErrInlineTooLong", ErrInlineTooLong, []error{unix.EINVAL}},
		{"ErrOpcode", ErrOpcode, []error{unix.EINVAL}},
		{"ErrQPType", ErrQPType, []error{ErrOpcode, unix.EINVAL}},
		{"ErrOpNotSupported", ErrOpNotSupported,
			[]error{ErrOpcode, ErrNotSupported, unix.EINVAL, errors.ErrUnsupported}},
		{"ErrMalformed", ErrMalformed, []error{ErrOpcode, unix.EINVAL}},
		{"ErrState", ErrState, []error{unix.EINVAL}},
		{"ErrRdAtomic", ErrRdAtomic, []error{unix.EINVAL}},
		{"ErrAtomicSize", ErrAtomicSize, []error{unix.EINVAL}},
		{"ErrNoMW", ErrNoMW, []error{unix.EINVAL}},
		{"ErrForeignMW", ErrForeignMW, []error{unix.EPERM}},
		{"closed MW", errClosedMW, []error{ErrClosed, os.ErrClosed, unix.EBADF}},
		{"ErrNoQueue", ErrNoQueue, []error{unix.EINVAL}},
		{"ErrFrameHeader", ErrFrameHeader, []error{unix.EINVAL}},
		{"ErrTSO", ErrTSO, []error{unix.EINVAL}},
		{"ErrNoSRQN", ErrNoSRQN, []error{unix.EINVAL}},
		{"ErrSRQ", ErrSRQ, []error{unix.EINVAL}},
		{"ErrNoAH", ErrNoAH, []error{unix.EINVAL}},
		{"ErrUnsignaled", ErrUnsignaled, []error{ErrOpcode, ErrNotSupported, unix.EINVAL, errors.ErrUnsupported}},
		{"ErrNoStreams", ErrNoStreams, []error{unix.EINVAL}},
		{"ErrForeignAH", ErrForeignAH, []error{unix.EINVAL}},
		{"closed AH", errClosedAH, []error{ErrClosed, os.ErrClosed, unix.EBADF}},
		{"ErrTooLong", ErrTooLong, []error{unix.EMSGSIZE}},
		{"ErrClosed", ErrClosed, []error{unix.EBADF, os.ErrClosed}},
		{"ErrDeviceGone", ErrDeviceGone, []error{unix.EIO}},
		{"ErrNotSupported", ErrNotSupported, []error{unix.EOPNOTSUPP, errors.ErrUnsupported}},
		{"no events", errNoEvents, []error{unix.EINVAL}},
	}
}
