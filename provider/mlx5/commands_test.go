package mlx5

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestQueueSizes checks that the sizes in the driver's part of the commands are those that the device needs.
func TestQueueSizes(t *testing.T) {
	l := limits{sqDesc: 1024, rqDesc: 512, sqBlocks: 1 << 15, recvWR: 1 << 15, srqWR: 1 << 15}
	for _, c := range []struct {
		cfg  uverbs.QPConfig
		want sizes
	}{
		{uverbs.QPConfig{Type: uverbs.RC, MaxRecvWR: 1, MaxRecvSGE: 1, Options: &QPOptions{OutOfOrder: true}},
			sizes{0, 0, 0, 4, 2, 4, false, 0}},
		{uverbs.QPConfig{Type: uverbs.RC, MaxRecvWR: 1, MaxRecvSGE: 32, Options: &QPOptions{OutOfOrder: true}},
			sizes{0, 0, 0, 1, 1, 9, false, 0}},
		{uverbs.QPConfig{Type: uverbs.RC, MaxRecvWR: 15, MaxRecvSGE: 3, Options: &QPOptions{OutOfOrder: true}},
			sizes{0, 0, 0, 32, 16, 6, false, 0}},
		{uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 1, MaxSendSGE: 1, MaxRecvWR: 1, MaxRecvSGE: 1},
			sizes{4, 1, 60, 4, 4, 4, false, 0}},
		{uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 15, MaxSendSGE: 3, MaxInline: 48, MaxRecvWR: 15, MaxRecvSGE: 3},
			sizes{64, 16, 60, 16, 16, 6, false, 0}},
		{uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 16, MaxSendSGE: 30}, sizes{256, 23, 508, 0, 0, 0, false, 0}},
		{uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 64, MaxSendSGE: 1, MaxInline: 812},
			sizes{1024, 64, 828, 0, 0, 0, false, 0}},
		{uverbs.QPConfig{Type: uverbs.UD, MaxSendWR: 4, MaxSendSGE: 59, MaxInline: 940},
			sizes{64, 4, 940, 0, 0, 0, false, 0}},
		{uverbs.QPConfig{Type: uverbs.UD, MaxSendWR: 100, MaxSendSGE: 1, MaxRecvWR: 5, MaxRecvSGE: 32},
			sizes{256, 128, 60, 8, 8, 9, false, 0}},
		{uverbs.QPConfig{Type: uverbs.RC, MaxRecvWR: 1 << 15, MaxRecvSGE: 1}, sizes{0, 0, 0, 1 << 15, 1 << 15, 4, false, 0}},
		{uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 1 << 13, MaxSendSGE: 1}, sizes{1 << 15, 1 << 13, 60, 0, 0, 0, false, 0}},
		{uverbs.QPConfig{Type: uverbs.RawPacket, MaxSendWR: 3, MaxSendSGE: 1, MaxRecvWR: 2, MaxRecvSGE: 1},
			sizes{4, 4, 18, 4, 4, 4, true, 18}},
		{uverbs.QPConfig{Type: uverbs.RawPacket, MaxSendWR: 5, MaxSendSGE: 3, MaxInline: 60},
			sizes{16, 5, 110, 0, 0, 0, true, 18}},
		{uverbs.QPConfig{Type: uverbs.RawPacket, MaxSendWR: 5, MaxSendSGE: 3, MaxTSOHeader: 98},
			sizes{32, 8, 174, 0, 0, 0, true, 18}},
		{uverbs.QPConfig{Type: uverbs.RawPacket, MaxSendWR: 1, MaxSendSGE: 1, MaxTSOHeader: 944},
			sizes{16, 1, 958, 0, 0, 0, true, 18}},
	} {
		l.header = 18
		got, err := l.sizesOf(&c.cfg, c.cfg.Options != nil)
		if err != nil || got != c.want {
			t.Errorf("%+v: %+v, %v; want %+v", c.cfg, got, err, c.want)
		}
	}
	for name, cfg := range map[string]uverbs.QPConfig{
		"MaxSendWR is 8193, the device accepts 8192": {MaxSendWR: 1<<13 + 1, MaxSendSGE: 1},
		"MaxSendSGE is 53, the device accepts 52":    {MaxSendWR: 1, MaxSendSGE: 53},
		"MaxInline is 829, the device accepts 828":   {MaxSendWR: 1, MaxSendSGE: 1, MaxInline: 829},
		"MaxSendSGE is 60, the device accepts 59":    {Type: uverbs.UD, MaxSendWR: 1, MaxSendSGE: 60},
		"MaxInline is 941, the device accepts 940":   {Type: uverbs.UD, MaxSendWR: 1, MaxInline: 941},
		"MaxTSOHeader is 945, the device accepts 944": {Type: uverbs.RawPacket, MaxSendWR: 1, MaxSendSGE: 1,
			MaxTSOHeader: 945},
		"MaxRecvSGE is 33, the device accepts 32": {MaxRecvWR: 1, MaxRecvSGE: 33},
		"MaxRecvWR is 32769, the device accepts":  {MaxRecvWR: 1<<15 + 1, MaxRecvSGE: 1},
	} {
		if cfg.Type == 0 {
			cfg.Type = uverbs.RC
		}
		if _, err := l.sizesOf(&cfg, false); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestNothingAllocated checks that posts and polls through the API do not allocate.
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
				note(q.PostSend(uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
					SGL: []uverbs.SGE{d.mr.SGE(0, 32)}, RemoteAddr: addr, RKey: rkey}))
			},
			"inline": func() {
				note(q.PostSend(uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, Inline: data,
					RemoteAddr: addr, RKey: rkey}))
			},
			"FETCH_ADD": func() {
				note(q.PostSend(uverbs.SendWR{WRID: 1, Opcode: uverbs.OpFetchAdd, Flags: uverbs.Signaled,
					SGL: []uverbs.SGE{d.mr.SGE(8, 8)}, RemoteAddr: d.mr.Addr() + 128, RKey: rkey}))
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
		d.s.deferred, d.s.stores = true, make([]store, 0, 16) // the device allocates
		for name, post := range kinds {
			if n := testing.AllocsPerRun(3, post); n != 0 || failed != nil { // four calls in all, as many as fit
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
	}
}

// drain polls until no request is outstanding.
func (d *desk) drain(t *testing.T, cq *uverbs.CQ, q *uverbs.QP) {
	t.Helper()
	wcs := make([]uverbs.WC, 64)
	for q.SendsOutstanding()+q.RecvsOutstanding() > 0 {
		for _, wc := range wcs[:good(cq.Poll(wcs))(t)] {
			check(t, wc.Err())
		}
	}
}
