package devicetest

import (
	"errors"
	"io"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceDM moves data between host memory and device memory.
func TestDeviceDM(t *testing.T) {
	l := newLoop(t, nil)
	c := l.pd.Context()
	most := deviceMemory(t, c)
	dm := must(c.AllocDM(uverbs.DMConfig{Size: 4096 + 128, Align: 64}))(t)
	if _, err := c.AllocDM(uverbs.DMConfig{Size: most + 64}); err == nil {
		t.Error("AllocDM allocates more than the device has")
	}
	const rights = uverbs.LocalWrite | uverbs.RemoteRead | uverbs.RemoteWrite
	mr, err := l.pd.RegDM(dm, 64, 4096, rights)
	check(t, err)
	l.a.fill(1)
	l.b.fill(2)
	host := l.a.mr.Bytes()
	if _, err := dm.WriteAt(host[:4096], 64); err != nil {
		t.Fatal(err)
	}
	post(t, l.a.qp, uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{mr.SGE(100, 3000)}, RemoteAddr: l.b.mr.Addr(), RKey: l.b.mr.RKey()})
	l.success(t, l.a, 1, uverbs.WCWrite)
	same(t, l.b.mr.Bytes()[:3000], host[100:3100])
	// A peer writes to device memory and reads from it.
	post(t, l.b.qp, uverbs.SendWR{WRID: 2, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{l.b.mr.SGE(5000, 2000)}, RemoteAddr: mr.Addr() + 8, RKey: mr.RKey()})
	l.success(t, l.b, 2, uverbs.WCWrite)
	post(t, l.b.qp, uverbs.SendWR{WRID: 3, Opcode: uverbs.OpRead, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{l.b.mr.SGE(9000, 1000)}, RemoteAddr: mr.Addr() + 1008, RKey: mr.RKey()})
	l.success(t, l.b, 3, uverbs.WCRead)
	same(t, l.b.mr.Bytes()[9000:10000], l.b.mr.Bytes()[6000:7000])
	got := make([]byte, 2000)
	if _, err := dm.ReadAt(got, 64+8); err != nil {
		t.Fatal(err)
	}
	same(t, got, l.b.mr.Bytes()[5000:7000])
	if n, err := dm.ReadAt(got, 4096+64); n != 64 || !errors.Is(err, io.EOF) {
		t.Errorf("ReadAt at the end: %d, %v", n, err)
	}
	if err := dm.Close(); !errors.Is(err, uverbs.ErrBusy) {
		t.Errorf("Close of registered memory: %v", err)
	}
	check(t, mr.Close())
	check(t, dm.Close())
}
