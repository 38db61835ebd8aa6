package mlx5

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// everyCommand issues every command with a part for this driver, and those that are the same for every driver, and
// closes the objects that it created.
func everyCommand(t *testing.T, prepare func(*soft)) *soft {
	t.Helper()
	k := standard()
	k.resp = func(r *uapi.Mlx5IbAllocUcontextResp) { r.CompMask |= uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE }
	s := newSoft(t, k)
	s.Set(func() {
		s.NetRaw, s.Raw, s.Speed, s.RateMax, s.Rereg = true, true, 1000, 1000, 7
		s.Extended.OdpCaps.GeneralCaps = 1
		s.Extended.CqModerationCaps.MaxCqModerationCount, s.Extended.CqModerationCaps.MaxCqModerationPeriod = 100, 100
	})
	prepare(s)
	c := good(s.tryOpen(k))(t)
	d := &desk{s: s, c: c, pd: good(c.AllocPD())(t)}
	d.mr = good(d.pd.Alloc(1<<16, allAccess))(t)
	cq := good(c.CreateCQ(uverbs.CQConfig{Entries: 100}))(t)
	srq := good(d.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 30, MaxSGE: 3}))(t)
	for _, cfg := range []uverbs.QPConfig{
		{Type: uverbs.RC, MaxSendWR: 10, MaxRecvWR: 20, MaxSendSGE: 4, MaxRecvSGE: 3, MaxInline: 70},
		{Type: uverbs.UC, MaxSendWR: 10, MaxRecvWR: 1},
		{Type: uverbs.UD, MaxSendWR: 10, MaxRecvWR: 20, SignalAll: true},
		{Type: uverbs.RC, MaxSendWR: 100, SRQ: srq},
		{Type: uverbs.RC},
	} {
		cfg.SendCQ = cq
		good(d.pd.CreateQP(cfg))(t)
	}
	check(t, cq.Resize(200))
	check(t, cq.Moderate(4, 10*time.Microsecond))
	check(t, good(c.CreateCQ(uverbs.CQConfig{Entries: 3, NoEvents: true}))(t).Close())
	check(t, srq.Modify(uverbs.SRQAttr{Limit: 4}, uverbs.SRQMaskLimit))
	good(srq.Query())(t)
	d.everyQuery(t)
	d.everyMemory(t)
	d.everyState(t, cq)
	d.everyXRC(t, cq)
	d.everyRaw(t, cq)
	d.everyDomain(t)
	d.everyImport(t)
	check(t, c.Close())
	s.Close(t)
	s.quiet()
	return s
}

func (d *desk) everyQuery(t *testing.T) {
	good(d.c.QueryDevice())(t)
	good(d.c.QueryPort(1))(t)
	good(d.c.QueryPortSpeed(1))(t)
	good(d.c.GIDs(1))(t)
	good(d.c.QueryGID(1, 2))(t)
}

func (d *desk) everyMemory(t *testing.T) {
	b := good(unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))(t)
	defer func() { check(t, unix.Munmap(b)) }()
	m := good(d.pd.RegMR(b[:4096], uverbs.LocalWrite|uverbs.OnDemand))(t)
	// The fake kernel has no MR with the key that the device assigned.
	d.s.Set(func() { d.s.Refuse = map[string]unix.Errno{"MR.ADVISE": unix.EOPNOTSUPP} })
	if err := d.pd.AdviseMR(uverbs.AdvicePrefetch, 0, uverbs.MRRange{MR: m,
		Len: 100}); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("AdviseMR: %v", err)
	}
	check(t, m.Rereg(uverbs.ReregAccess, nil, nil, uverbs.LocalWrite|uverbs.RemoteRead|uverbs.OnDemand))
	check(t, m.Close())
	dm := good(d.c.AllocDM(uverbs.DMConfig{Size: 0x111, Align: 256}))(t)
	good(MapDMOp(dm, DMTestAndSet))(t)
	check(t, good(d.pd.RegDM(dm, 0x11, 0x77, uverbs.LocalWrite|uverbs.RemoteRead))(t).Close())
	check(t, dm.Close())
	check(t, good(d.pd.AllocMW(uverbs.MWType1))(t).Close())
	check(t, good(d.pd.AllocMW(uverbs.MWType2))(t).Close())
	file := good(unix.MemfdCreate("buffer", unix.MFD_CLOEXEC))(t)
	fd := good(unix.FcntlInt(uintptr(file), unix.F_DUPFD_CLOEXEC, 900))(t) // this number appears in the dump
	check(t, unix.Close(file))
	defer func() { check(t, unix.Close(fd)) }()
	d.s.Set(func() { d.s.DMABuf = fd })
	check(t, good(d.pd.RegDMABuf(fd, 0, 4096, 0, uverbs.LocalWrite))(t).Close())
}

// everyState modifies queue pairs explicitly, as some programs do.
func (d *desk) everyState(t *testing.T, cq *uverbs.CQ) {
	q := good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: 1}))(t)
	check(t, q.SetECE(uverbs.ECE{VendorID: 0x15b3, Options: 0x4}))
	av := uverbs.AHAttr{Port: 1, IsGlobal: true, DGID: uverbs.GID{10: 0xff, 11: 0xff, 12: 192, 14: 2, 15: 1}, SGIDIndex: 2,
		HopLimit: 64}
	for _, c := range []struct {
		m uverbs.QPMask
		a uverbs.QPAttr
	}{
		{uverbs.MaskState | uverbs.MaskPKeyIndex | uverbs.MaskPort | uverbs.MaskAccess,
			uverbs.QPAttr{State: uverbs.StateInit, Port: 1, Access: uverbs.RemoteWrite}},
		{uverbs.MaskState | uverbs.MaskAV | uverbs.MaskPathMTU | uverbs.MaskDestQPN | uverbs.MaskRQPSN |
			uverbs.MaskMaxDestRdAtomic | uverbs.MaskMinRNRTimer,
			uverbs.QPAttr{State: uverbs.StateRTR, PathMTU: uverbs.MTU1024, DestQPN: q.QPN(), RQPSN: 5, AV: av,
				MaxDestRdAtomic: 4, MinRNRTimer: 12}},
		{uverbs.MaskState | uverbs.MaskSQPSN | uverbs.MaskTimeout | uverbs.MaskRetryCount | uverbs.MaskRNRRetryCount |
			uverbs.MaskMaxRdAtomic,
			uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: 5, Timeout: 14, RetryCount: 7, RNRRetryCount: 7, MaxRdAtomic: 4}},
	} {
		check(t, q.Modify(c.a, c.m))
	}
	good(q.Query(uverbs.MaskState))(t)
	check(t, q.Close())
	u := good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.UD, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: 1}))(t)
	group := uverbs.GID{0: 0xff, 1: 0x0e, 15: 1}
	check(t, u.AttachMcast(group, 0xc001))
	check(t, u.DetachMcast(group, 0xc001))
	check(t, u.Close())
	ah := good(d.pd.CreateAH(uverbs.AHAttr{IsGlobal: true, DGID: uverbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 9},
		SGIDIndex: 2, HopLimit: 64, Port: 1}))(t)
	check(t, ah.Close())
}

func (d *desk) everyXRC(t *testing.T, cq *uverbs.CQ) {
	x := good(d.c.OpenXRCD(nil, uverbs.XRCDCreate))(t)
	good(d.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 7, MaxSGE: 2, XRCD: x, CQ: cq}))(t)
	good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.XRCSend, SendCQ: cq, MaxSendWR: 10, MaxSendSGE: 2, MaxInline: 20}))(t)
	target := good(x.CreateQP(uverbs.QPConfig{Type: uverbs.XRCRecv}))(t)
	// The fake kernel does not identify QPs by the device's numbers either.
	if _, err := x.OpenQP(target.QPN()); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("OpenQP: %v", err)
	}
}

func (d *desk) everyRaw(t *testing.T, cq *uverbs.CQ) {
	raw := good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: cq, MaxSendWR: 10, MaxRecvWR: 20,
		CreateFlags: ether.QPCVLANStripping}))(t)
	check(t, good(ether.CreateFlow(raw, ether.FlowAttr{Type: ether.FlowAllDefault}))(t).Close())
	wq := good(ether.CreateWQ(d.pd, ether.WQConfig{CQ: cq, MaxWR: 30, MaxSGE: 2, Flags: ether.WQCVLANStripping}))(t)
	check(t, wq.Ready())
	good(ether.CreateRSSQP(d.pd, ether.RSSConfig{Table: good(ether.CreateRWQIndTable(d.c, wq))(t),
		Function: ether.RSSToeplitz,
		Key:      []byte("a key of Toeplitz's hash has 40 bytes..."), Fields: ether.RSSSrcIPv6 | ether.RSSDstPortTCP}))(t)
}

func (d *desk) everyDomain(t *testing.T) {
	td := good(d.c.AllocTD())(t)
	pd := good(d.pd.AllocParentDomain(uverbs.ParentDomainConfig{TD: td}))(t)
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 7, PD: pd}))(t)
	good(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4}))(t)
}

func (d *desk) everyImport(t *testing.T) {
	fd := good(unix.Dup(d.s.node))(t)
	c := good(importedContext(ioctl.NewFake(fd, "uverbs0", uapi.RDMA_DRIVER_MLX5, d.s),
		uverbs.Device{Name: "mlx5_0", Ports: 1, DriverID: uapi.RDMA_DRIVER_MLX5}, softDriver{standard(), d.s}))(t)
	pd := good(c.ImportPD(d.pd.Handle()))(t)
	good(pd.ImportMR(d.mr.Handle()))(t)
	dm := good(d.c.AllocDM(uverbs.DMConfig{Size: 0x111}))(t)
	check(t, good(c.ImportDM(dm.Handle()))(t).Close())
	check(t, dm.Close())
	check(t, c.Close())
}

// notMlx5 has the commands that are never issued to a device of this driver.
var notMlx5 = map[string]string{
	"POLL_CQ":       "how bnxt_re ends a resize",
	"POST_SEND":     "rxe's doorbell",
	"REQ_NOTIFY_CQ": "how rxe is armed",
	"QUERY_DEVICE":  "sent when a command has failed",
}

// TestCommandBytes compares the bytes of every command with the golden file. The fake kernel checks the commands
// against the specifications. Identical commands are listed once.
func TestCommandBytes(t *testing.T) {
	sent := map[string]bool{}
	var dumps []string
	s := everyCommand(t, func(s *soft) {
		s.Recorder = func(name, dump string) {
			sent[name] = true
			dumps = append(dumps, dump)
		}
	})
	for _, name := range ioctltest.Names() {
		if why := notMlx5[name]; sent[name] == (why != "") {
			t.Errorf("%s was sent: %v; %s", name, sent[name], why)
		}
	}
	var hide []string
	for _, addr := range s.addresses {
		if addr != 0 { // 0: a QP without queues
			hide = append(hide, hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, addr)), "<address ... >")
		}
	}
	replace := strings.NewReplacer(hide...)
	for i, d := range dumps {
		dumps[i] = replace.Replace(d)
	}
	var out strings.Builder
	for i, d := range dumps {
		if !slices.Contains(dumps[:i], d) {
			out.WriteString(d)
		}
	}
	ioctltest.Golden(t, "commands", out.String())
}
