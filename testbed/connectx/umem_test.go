package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// createUMem creates a umem of n pages in reverse order, with an offset in the first.
func (u user) createUMem(n int, offset uint64) (id uint64, pages []uint64) {
	u.t.Helper()
	base := u.host.alloc(n)
	out := u.list(0xa08, 0, 8*n, 0, u.as(func(in []byte) {
		c := prm.CreateUMemInUMem.Bytes(in)
		prm.UMemPageOffset.Set(c, offset)
		prm.UMemNumOfMTT.Set(c, uint64(n))
		for i := range n {
			page := base + uint64(n-1-i)*pageSize
			pages = append(pages, page)
			prm.UMemMTT.Within(prm.CreateUMemInUMem).At(i).Set(in, page|3)
		}
	}))
	return prm.CreateUMemOutUMemID.Get(out), pages
}

// A devx is a user with the objects that a queue pair needs, all created by its commands.
type devx struct {
	user
	pd, uar, eqn, cqn, qpn uint64
	rings, records         uint64 // umems
	pages                  []uint64
}

// Offsets in the umems.
const (
	cqOffset   = 0x40
	qpOffset   = 0xfc0 // its rings cross a page
	cqRecord   = 0x28
	qpRecord   = 0x40
	pageOffset = 0x10 // of the umem of records
)

func newDevX(t *testing.T) *devx {
	t.Helper()
	v := newDriver(t, nil)
	v.boot()
	x := &devx{user: v.newUser()}
	ring := v.host.alloc(1)
	x.eqn = prm.CreateEQOutEQNumber.Get(v.list(0x301, 0, 8, 0, user{v, sharedUser}.as(func(in []byte) {
		prm.EQCLogEQSize.Set(prm.CreateEQInEQC.Bytes(in), 4)
		prm.EQCUARPage.Set(prm.CreateEQInEQC.Bytes(in), uint64(v.uar))
		prm.CreateEQInPAS.Set(in, ring)
	})))
	x.pd, x.uar = x.number(0x800, prm.AllocPDOutPD, nil), x.number(0x802, prm.AllocUAROutUAR, nil)
	x.rings, x.pages = x.createUMem(4, 0)
	for _, page := range x.pages {
		for b, at := x.host.bytes(page, pageSize), 63; at < pageSize; at += 64 {
			b[at] = 0xf1
		}
	}
	var records []uint64
	x.records, records = x.createUMem(1, pageOffset)
	x.pages = append(x.pages, records...)
	x.cqn = x.number(0x400, prm.CreateCQOutCQN, x.cq)
	x.qpn = x.number(0x500, prm.CreateQPOutQPN, x.qp)
	return x
}

func (x *devx) cq(in []byte) {
	c := prm.CreateCQInCQC.Bytes(in)
	prm.CQCLogCQSize.Set(c, 4)
	prm.CQCUARPage.Set(c, x.uar)
	prm.CQCCEQN.Set(c, x.eqn)
	prm.CQCDBRAddr.Set(c, cqRecord)
	prm.CQCDBRUMemValid.Set(c, 1)
	prm.CQCDBRUMemID.Set(c, x.records)
	prm.CreateCQInCQUMemValid.Set(in, 1)
	prm.CreateCQInCQUMemID.Set(in, x.rings)
	prm.CreateCQInCQUMemOffset.Set(in, cqOffset)
}

func (x *devx) qp(in []byte) {
	c := prm.CreateQPInQPC.Bytes(in)
	prm.QPCPD.Set(c, x.pd)
	prm.QPCUARPage.Set(c, x.uar)
	prm.QPCCQNSnd.Set(c, x.cqn)
	prm.QPCCQNRcv.Set(c, x.cqn)
	prm.QPCLogSQSize.Set(c, 4)
	prm.QPCLogRQSize.Set(c, 4)
	prm.QPCPMState.Set(c, 3)
	prm.QPCDBRAddr.Set(c, qpRecord)
	prm.QPCDBRUMemValid.Set(c, 1)
	prm.QPCDBRUMemID.Set(c, x.records)
	prm.CreateQPInWQUMemValid.Set(in, 1)
	prm.CreateQPInWQUMemID.Set(in, x.rings)
	prm.CreateQPInWQUMemOffset.Set(in, qpOffset)
}

// TestUMemObjects checks where the rings and records of objects in umems are, and that a umem can
// be destroyed only when no object uses it.
func TestUMemObjects(t *testing.T) {
	x := newDevX(t)
	cq, err := x.device.hca.CQ(uint32(x.cqn))
	if err != nil {
		t.Fatal(err)
	}
	if cq.Record != x.pages[4]+pageOffset+cqRecord || cq.Buffer.Offset != cqOffset || cq.Buffer.Pages[0] != x.pages[0] {
		t.Errorf("the CQ has its record at %#x and %+v", cq.Record, cq.Buffer)
	}
	a, err := x.device.hca.QueryQP(uint32(x.qpn))
	if err != nil {
		t.Fatal(err)
	}
	if a.Record != x.pages[4]+pageOffset+qpRecord || a.Buffer.Offset != qpOffset || len(a.Buffer.Pages) != 2 ||
		a.Buffer.Pages[1] != x.pages[1] {
		t.Errorf("the QP has its record at %#x and %+v", a.Record, a.Buffer)
	}
	destroy := func(id uint64) func([]byte) { return x.as(set(prm.DestroyUMemInUMemID, id)) }
	x.refused(0xa0a, 0, statusBusy, reasonInUse, destroy(x.rings))
	x.run(0x501, 0, x.as(set(prm.DestroyQPInQPN, x.qpn)))
	x.refused(0xa0a, 0, statusBusy, reasonInUse, destroy(x.records))
	x.run(0x401, 0, x.as(set(prm.DestroyCQInCQN, x.cqn)))
	x.run(0xa0a, 0, destroy(x.rings))
	x.run(0xa0a, 0, destroy(x.records))
	x.refused(0xa0a, 0, statusBadResource, reasonOwner, destroy(x.records))
}

// TestResizeInUMem checks that a CQ that was resized into another umem no longer uses the first.
func TestResizeInUMem(t *testing.T) {
	x := newDevX(t)
	x.run(0x501, 0, x.as(set(prm.DestroyQPInQPN, x.qpn)))
	next, _ := x.createUMem(1, 0)
	x.run(0x403, resizeCQ, x.as(func(in []byte) {
		prm.ModifyCQInCQN.Set(in, x.cqn)
		prm.CQCLogCQSize.Set(prm.ModifyCQInCQC.Bytes(in), 5)
		prm.ModifyCQInCQUMemValid.Set(in, 1)
		prm.ModifyCQInCQUMemID.Set(in, next)
	}))
	x.run(0xa0a, 0, x.as(set(prm.DestroyUMemInUMemID, x.rings)))
	x.refused(0xa0a, 0, statusBusy, reasonInUse, x.as(set(prm.DestroyUMemInUMemID, next)))
}

// TestUMemRefusals checks umems of other users, places that are not in the umem, and alignment.
func TestUMemRefusals(t *testing.T) {
	x := newDevX(t)
	other := x.newUser()
	foreign, _ := other.createUMem(4, 0)
	for name, c := range map[string]struct {
		status status
		reason reason
		set    func(in []byte)
	}{
		"another user's umem":      {statusBadResource, reasonUMem, set(prm.CreateCQInCQUMemID, foreign)},
		"no umem":                  {statusBadResource, reasonUMem, set(prm.CreateCQInCQUMemID, 999)},
		"past the end":             {statusBadParam, reasonBuffer, set(prm.CreateCQInCQUMemOffset, 0x3fc0)},
		"far past the end":         {statusBadParam, reasonBuffer, set(prm.CreateCQInCQUMemOffset, 1<<63)},
		"between blocks":           {statusBadParam, reasonBuffer, set(prm.CreateCQInCQUMemOffset, 8)},
		"a record past the end":    {statusBadParam, reasonBuffer, set(prm.CQCDBRAddr.Within(prm.CreateCQInCQC), 0xff0)},
		"a record between words":   {statusBadParam, reasonBuffer, set(prm.CQCDBRAddr.Within(prm.CreateCQInCQC), 4)},
		"a record of another user": {statusBadResource, reasonUMem, set(prm.CQCDBRUMemID.Within(prm.CreateCQInCQC), foreign)},
	} {
		t.Run(name, func(t *testing.T) {
			x.t = t
			x.refused(0x400, 0, c.status, c.reason, x.as(func(in []byte) { x.cq(in); c.set(in) }))
		})
	}
	x.t = t
	x.refused(0xa08, 0, statusBadInputLength, reasonBuffer,
		x.as(set(prm.UMemNumOfMTT.Within(prm.CreateUMemInUMem), 1<<40)))
	x.refused(0xa08, 0, statusBadParam, reasonBuffer, x.as(nil))
	x.run(0xa0a, 0, other.as(set(prm.DestroyUMemInUMemID, foreign)))
}

// TestUMemKey checks the list of a memory key whose data is in a umem.
func TestUMemKey(t *testing.T) {
	x := newDevX(t)
	key := func(mode, offset, n uint64) func([]byte) {
		return x.as(func(in []byte) {
			c := prm.CreateMKeyInMKC.Bytes(in)
			prm.MKCAccessMode10.Set(c, mode)
			prm.MKCLogPageSize.Set(c, 12)
			prm.MKCPD.Set(c, x.pd)
			prm.MKCQPN.Set(c, engine.AnyQPN)
			prm.MKCLen.Set(c, n)
			prm.CreateMKeyInMKeyUMemValid.Set(in, 1)
			prm.CreateMKeyInMKeyUMemID.Set(in, x.rings)
			prm.CreateMKeyInMKeyUMemOffset.Set(in, offset)
		})
	}
	index := prm.CreateMKeyOutMKeyIndex.Get(x.run(0x200, 0, key(1, 0x1800, 0x1000)))
	k, err := x.device.hca.QueryMKey(uint32(index))
	if err != nil {
		t.Fatal(err)
	}
	if want := engine.MTT; k.Mode != want || len(k.Translations) != 16 {
		t.Fatalf("the key has mode %d and %d bytes of translations", k.Mode, len(k.Translations))
	}
	for i, page := range x.pages[1:3] {
		if got := prm.UMemMTT.At(i).Get(append(make([]byte, prm.UMem.Size), k.Translations...)); got != page {
			t.Errorf("page %d is at %#x, want %#x", i, got, page)
		}
	}
	x.refused(0x200, 0, statusBadParam, reasonBuffer, key(1, 0x1800, 0x4000))
	x.refused(0x200, 0, statusBadParam, reasonCapability, key(2, 0, 0x1000))
	x.run(0x202, 0, x.as(set(prm.DestroyMKeyInMKeyIndex, index)))
}
