package mlx5

import (
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/ioctl/ioctltest"
	"github.com/goverbs/goverbs/uverbs"
)

// proxied are the native methods that gVisor's rdmaproxy lets through to mlx5
// (pkg/sentry/devices/rdmaproxy, as of August 2026); what INVOKE_WRITE carries
// passes as it is.
var proxied = map[string]bool{
	"DEVICE.GET_CONTEXT": true, "DEVICE.QUERY_PORT": true, "DEVICE.QUERY_GID_TABLE": true, "DEVICE.QUERY_GID_ENTRY": true,
	"ASYNC_EVENT.ALLOC": true, "PD.DESTROY": true, "MR.DESTROY": true, "MR.REG_DMABUF": true,
	"CQ.CREATE": true, "CQ.DESTROY": true, "QP.CREATE": true, "QP.DESTROY": true, "UAR.ALLOC": true, "UAR.DESTROY": true,
}

// refused are the methods that it does not, with what a program does without.
var refused = map[string]string{
	"SRQ.CREATE":  "shared receive queues: it mirrors the memory of CQs and QPs alone",
	"SRQ.DESTROY": "the same",
	"AH.DESTROY":  "datagrams",
	"MW.DESTROY":  "memory windows",

	"WQ.CREATE":           "work queues, as SRQs",
	"WQ.DESTROY":          "the same",
	"RWQ_IND_TBL.DESTROY": "the same",
	"FLOW.DESTROY":        "raw packets: their QPs have a second buffer, and flows need CAP_NET_RAW",
}

// TestCommandBytes holds the bytes of the commands that have a part of the
// driver's. The kernel in memory has checked them against the specifications.
func TestCommandBytes(t *testing.T) {
	k := standard()
	s := newSoft(t, k)
	var names, dumps []string
	s.Recorder = func(name, dump string) {
		names = append(names, name)
		dumps = append(dumps, dump)
	}
	c := good(s.tryOpen(k))(t)
	pd := good(c.AllocPD())(t)
	cq := good(c.CreateCQ(uverbs.CQConfig{Entries: 100}))(t)
	srq := good(pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 30, MaxSGE: 3}))(t)
	for i, cfg := range []uverbs.QPConfig{
		{Type: uverbs.RC, MaxSendWR: 10, MaxRecvWR: 20, MaxSendSGE: 4, MaxRecvSGE: 3, MaxInline: 70},
		{Type: uverbs.UC, MaxSendWR: 10, MaxRecvWR: 1},
		{Type: uverbs.UD, MaxSendWR: 10, MaxRecvWR: 20, SignalAll: true},
		{Type: uverbs.RC, MaxSendWR: 100, SRQ: srq},
		{Type: uverbs.RC},
	} {
		cfg.SendCQ = cq
		q := good(pd.CreateQP(cfg))(t)
		t.Logf("queue pair %d is %+v", i, q.Cap())
	}
	check(t, cq.Resize(200))
	ah := good(pd.CreateAH(uverbs.AHAttr{IsGlobal: true, DGID: uverbs.GID{10: 0xff, 11: 0xff, 12: 10, 15: 9}, SGIDIndex: 2, HopLimit: 64, Port: 1}))(t)
	check(t, ah.Close())
	check(t, srq.Modify(uverbs.SRQAttr{Limit: 4}, uverbs.SRQMaskLimit))
	s.Set(func() { s.NetRaw, s.Raw = true, true })
	raw := good(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: cq, MaxSendWR: 10, MaxRecvWR: 20, CreateFlags: uverbs.QPCVLANStripping}))(t)
	check(t, good(raw.CreateFlow(uverbs.FlowAttr{Type: uverbs.FlowAllDefault}))(t).Close())
	wq := good(pd.CreateWQ(uverbs.WQConfig{CQ: cq, MaxWR: 30, MaxSGE: 2, Flags: uverbs.WQCVLANStripping}))(t)
	check(t, wq.Ready())
	good(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, RSS: &uverbs.RSSConfig{Table: good(c.CreateRWQIndTable(wq))(t),
		Function: uverbs.RSSToeplitz, Key: []byte("a key of Toeplitz's hash has 40 bytes..."), Fields: uverbs.RSSSrcIPv6 | uverbs.RSSDstPortTCP}}))(t)
	check(t, c.Close())
	s.Close(t)
	s.quiet()

	var hide []string
	for _, m := range s.spans {
		hide = append(hide, hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, m.addr)), "<address ... >")
	}
	replace := strings.NewReplacer(hide...)
	var out strings.Builder
	for i, d := range dumps {
		if strings.HasPrefix(names[i], "QUERY_DEVICE") || strings.HasPrefix(names[i], "DEVICE.QUERY") {
			continue
		}
		out.WriteString(replace.Replace(d))
	}
	ioctltest.Golden(t, "commands", out.String())

	slices.Sort(names)
	for _, n := range slices.Compact(names) {
		native := strings.Contains(n, ".")
		if native && !proxied[n] && refused[n] == "" {
			t.Errorf("%s is neither among what gVisor's proxy takes nor among what is known to be refused there", n)
		}
	}
}

// What the driver's part says of sizes is what the device is to have.
func TestQueueSizes(t *testing.T) {
	l := limits{sqDesc: 1024, rqDesc: 512, sqBlocks: 1 << 15, recvWR: 1 << 15, srqWR: 1 << 15}
	for _, c := range []struct {
		cfg  uverbs.QPConfig
		want sizes
	}{
		{uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 1, MaxSendSGE: 1, MaxRecvWR: 1, MaxRecvSGE: 1}, sizes{4, 1, 60, 4, 4, false, 0}},
		{uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 15, MaxSendSGE: 3, MaxInline: 48, MaxRecvWR: 15, MaxRecvSGE: 3}, sizes{64, 16, 60, 16, 6, false, 0}},
		{uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 16, MaxSendSGE: 30}, sizes{256, 23, 508, 0, 0, false, 0}},
		{uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 64, MaxSendSGE: 1, MaxInline: 812}, sizes{1024, 64, 828, 0, 0, false, 0}},
		{uverbs.QPConfig{Type: uverbs.UD, MaxSendWR: 4, MaxSendSGE: 59, MaxInline: 940}, sizes{64, 4, 940, 0, 0, false, 0}},
		{uverbs.QPConfig{Type: uverbs.UD, MaxSendWR: 100, MaxSendSGE: 1, MaxRecvWR: 5, MaxRecvSGE: 32}, sizes{256, 128, 60, 8, 9, false, 0}},
		{uverbs.QPConfig{Type: uverbs.RC, MaxRecvWR: 1 << 15, MaxRecvSGE: 1}, sizes{0, 0, 0, 1 << 15, 4, false, 0}},
		{uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 1 << 13, MaxSendSGE: 1}, sizes{1 << 15, 1 << 13, 60, 0, 0, false, 0}},
		{uverbs.QPConfig{Type: uverbs.RawPacket, MaxSendWR: 3, MaxSendSGE: 1, MaxRecvWR: 2, MaxRecvSGE: 1}, sizes{4, 4, 18, 4, 4, true, 18}},
		{uverbs.QPConfig{Type: uverbs.RawPacket, MaxSendWR: 5, MaxSendSGE: 3, MaxInline: 60}, sizes{16, 5, 110, 0, 0, true, 18}},
	} {
		l.header = 18
		got, err := l.sizesOf(&c.cfg)
		if err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v; want %+v", c.cfg, got, err, c.want)
		}
	}
	for name, cfg := range map[string]uverbs.QPConfig{
		"MaxSendWR is 8193, the device takes 8192": {MaxSendWR: 1<<13 + 1, MaxSendSGE: 1},
		"MaxSendSGE is 53, the device takes 52":    {MaxSendWR: 1, MaxSendSGE: 53},
		"MaxInline is 829, the device takes 828":   {MaxSendWR: 1, MaxSendSGE: 1, MaxInline: 829},
		"MaxSendSGE is 60, the device takes 59":    {Type: uverbs.UD, MaxSendWR: 1, MaxSendSGE: 60},
		"MaxInline is 941, the device takes 940":   {Type: uverbs.UD, MaxSendWR: 1, MaxInline: 941},
		"MaxRecvSGE is 33, the device takes 32":    {MaxRecvWR: 1, MaxRecvSGE: 33},
		"MaxRecvWR is 32769, the device takes":     {MaxRecvWR: 1<<15 + 1, MaxRecvSGE: 1},
	} {
		if cfg.Type == 0 {
			cfg.Type = uverbs.RC
		}
		if _, err := l.sizesOf(&cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Posts and polls by the API allocate nothing.
func TestNothingAllocated(t *testing.T) {
	for _, single := range []bool{false, true} {
		d := newDesk(t, standard())
		cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 255, SingleGoroutine: single}))(t)
		q := d.loop(t, uverbs.QPConfig{SendCQ: cq, SingleGoroutine: single})
		wcs := make([]uverbs.WC, 32)
		data := []byte("sixteen bytes ..")
		var failed error
		note := func(_ int, err error) {
			if err != nil {
				failed = err
			}
		}
		addr, rkey := d.mr.Addr()+100, d.mr.RKey()
		kinds := map[string]func(){
			"WRITE": func() {
				note(q.PostSend(uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: []uverbs.SGE{d.mr.SGE(0, 32)}, RemoteAddr: addr, RKey: rkey}))
			},
			"inline": func() {
				note(q.PostSend(uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, Inline: data, RemoteAddr: addr, RKey: rkey}))
			},
			"FETCH_ADD": func() {
				note(q.PostSend(uverbs.SendWR{WRID: 1, Opcode: uverbs.OpFetchAdd, Flags: uverbs.Signaled, SGL: []uverbs.SGE{d.mr.SGE(8, 8)}, RemoteAddr: d.mr.Addr() + 128, RKey: rkey}))
			},
			"batch": func() {
				b := q.StartSend()
				b.Write(1, 0, addr, rkey)
				b.SGE(d.mr.SGE(0, 32))
				b.Write(2, uverbs.Signaled, addr, rkey)
				b.Inline(data)
				note(0, b.Submit())
			},
			"receive": func() {
				note(q.PostRecv(uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{d.mr.SGE(1000, 32)}}))
				note(q.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, SGL: []uverbs.SGE{d.mr.SGE(0, 32)}}))
			},
			"empty": func() { note(q.RecvCQ().Poll(wcs)) },
		}
		for name, post := range kinds {
			if n := testing.AllocsPerRun(3, post); n != 0 || failed != nil { // four in all, as many as fit
				t.Errorf("%s: %v allocations, %v", name, n, failed)
			}
			d.s.work()
			for range 3 {
				if n := testing.AllocsPerRun(1, func() { note(cq.Poll(wcs[:1])) }); n != 0 || failed != nil {
					t.Errorf("poll after %s: %v allocations, %v", name, n, failed)
				}
			}
			d.drain(t, cq, q)
		}
		d.s.violations = nil // several doorbells were seen as one
	}
}

// drain polls until nothing is under way.
func (d *desk) drain(t *testing.T, cq *uverbs.CQ, q *uverbs.QP) {
	t.Helper()
	wcs := make([]uverbs.WC, 64)
	for q.SendsOutstanding()+q.RecvsOutstanding() > 0 {
		for _, wc := range wcs[:good(cq.Poll(wcs))(t)] {
			check(t, wc.Err())
		}
	}
}
