package verbstest_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestDeviceMemory checks that programs on two machines write to the device memory of each other.
func TestDeviceMemory(t *testing.T) {
	for name, options := range map[string][]verbstest.Option{"Ethernet": nil, "InfiniBand": {verbstest.InfiniBand()}} {
		t.Run(name, func(t *testing.T) {
			n := verbstest.NewNetwork(t, options...)
			var ends [2]dmEnd
			for i := range ends {
				n.Machine().Run(func() { ends[i] = newDMEnd(t) })
			}
			a, b := ends[0], ends[1]
			check(t, a.q.Connect(must(b.q.Endpoint())(t)))
			check(t, b.q.Connect(must(a.q.Endpoint())(t)))
			want := bytes.Repeat([]byte("from a's device. "), 4)
			must(a.dm.WriteAt(want, 64))(t)
			must(a.q.PostSend(uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
				SGL: []uverbs.SGE{a.mr.SGE(0, len(want))}, RemoteAddr: b.mr.Addr() + 4, RKey: b.mr.RKey()}))(t)
			var wcs [1]uverbs.WC
			must(a.cq.PollWait(context.Background(), wcs[:]))(t)
			check(t, wcs[0].Err())
			got := make([]byte, len(want))
			if must(b.dm.ReadAt(got, 64+4))(t); !bytes.Equal(got, want) {
				t.Errorf("%q arrived", got)
			}
			if must(b.dm.ReadAt(got[:64], 0))(t); !bytes.Equal(got[:64], make([]byte, 64)) {
				t.Errorf("before the region: %q", got[:64])
			}
		})
	}
}

// A dmEnd is a QP with a region of device memory.
type dmEnd struct {
	cq *uverbs.CQ
	q  *uverbs.QP
	dm *uverbs.DM
	mr *uverbs.MR
}

func newDMEnd(t *testing.T) (e dmEnd) {
	t.Helper()
	c := must(uverbs.Open(""))(t)
	t.Cleanup(func() { check(t, c.Close()) })
	pd := must(c.AllocPD())(t)
	e.dm = must(c.AllocDM(uverbs.DMConfig{Size: 4096 + 64}))(t)
	e.mr = must(pd.RegDM(e.dm, 64, 4096, uverbs.LocalWrite|uverbs.RemoteWrite))(t)
	e.cq = must(c.CreateCQ(uverbs.CQConfig{Entries: 16}))(t)
	e.q = must(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: e.cq, MaxSendWR: 1, Access: uverbs.RemoteWrite}))(t)
	return e
}

// TestDeviceMemoryShared checks that all contexts of a machine share its device memory, and that other machines have
// their own.
func TestDeviceMemoryShared(t *testing.T) {
	n := verbstest.NewNetwork(t)
	m, other := n.Machine(), n.Machine()
	open := func(m *verbstest.Machine) (c *uverbs.Context) {
		m.Run(func() { c = must(uverbs.Open(m.Device()))(t) })
		t.Cleanup(func() { check(t, c.Close()) })
		return c
	}
	c, d, e := open(m), open(m), open(other)
	most := int(must(c.QueryDevice())(t).MaxDMSize)
	half := uverbs.DMConfig{Size: most / 2}
	must(c.AllocDM(half))(t)
	second := must(d.AllocDM(half))(t)
	if _, err := c.AllocDM(uverbs.DMConfig{Size: 4}); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("more than the machine has: %v", err)
	}
	must(e.AllocDM(uverbs.DMConfig{Size: most}))(t)
	check(t, second.Close())
	must(c.AllocDM(half))(t)
}

// TestDeviceMemoryRemoved checks that copies report the removal of the device, after a command has.
func TestDeviceMemoryRemoved(t *testing.T) {
	m := verbstest.New(t)
	c := must(uverbs.Open(m.Device()))(t)
	dm := must(c.AllocDM(uverbs.DMConfig{Size: 64}))(t)
	m.RemoveDevice()
	if _, err := c.AllocPD(); !errors.Is(err, uverbs.ErrDeviceGone) {
		t.Errorf("AllocPD: %v", err)
	}
	if _, err := dm.ReadAt(make([]byte, 64), 0); !errors.Is(err, uverbs.ErrDeviceGone) {
		t.Errorf("ReadAt: %v", err)
	}
	if _, err := dm.WriteAt(make([]byte, 64), 0); !errors.Is(err, uverbs.ErrDeviceGone) {
		t.Errorf("WriteAt: %v", err)
	}
	check(t, c.Close())
}
