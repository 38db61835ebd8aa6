package fakedev

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/sim/devfile"
	"github.com/goverbs/goverbs/internal/uapi"
)

// An AH is the address of another device.
type AH struct {
	Number uint32
	PD     uint32
	Path   transport.Path
}

// An MR is a memory region.
type MR struct {
	devfile.Region
	PD  uint32
	Key uint32
}

// AllocPD gives the PD of a command a number, and returns it.
func (k *Kernel) AllocPD(c ioctl.Call) (number uint32) {
	number = k.Dev.Next("PD")
	k.PDs[call.Out[uapi.IbUverbsAllocPdResp](c, uapi.UVERBS_ATTR_CORE_OUT).PdHandle] = number
	return number
}

// RegMR registers memory.
func (k *Kernel) RegMR(c ioctl.Call) error {
	const in, out = uapi.UVERBS_ATTR_CORE_IN, uapi.UVERBS_ATTR_CORE_OUT
	r, resp := call.In[uapi.IbUverbsRegMr](c, in), call.Out[uapi.IbUverbsRegMrResp](c, out)
	if err := k.admit(r); err != nil {
		k.Forget(resp.MrHandle)
		return err
	}
	lkey, rkey := k.driver.Keys(k.Dev.Next("MR"))
	m := &MR{devfile.Region{Memory: k.Memory, Start: r.Start, IOVA: r.HcaVa, Length: r.Length, Access: r.AccessFlags},
		k.PDs[r.PdHandle], lkey}
	k.mrs[resp.MrHandle], k.Dev.MRs[lkey] = m, m
	resp.Lkey, resp.Rkey = lkey, rkey
	call.Reply(c, out, resp)
	return nil
}

// admit checks the rights and the memory of a region.
func (k *Kernel) admit(r *uapi.IbUverbsRegMr) error {
	const optional = uapi.IB_UVERBS_ACCESS_OPTIONAL_RANGE
	if a := k.driver.Access; a != 0 && r.AccessFlags&^(a|optional) != 0 {
		return unix.EOPNOTSUPP
	}
	return k.Pin(r.Start, r.Length, r.AccessFlags&uapi.IB_UVERBS_ACCESS_LOCAL_WRITE != 0)
}

// Pin admits n bytes of the program, to which the device may write. Unpin follows.
func (k *Kernel) Pin(addr, n uint64, write bool) error {
	if err := k.Memory.Admit(addr, n, k.pinned, write); err != nil {
		return err
	}
	k.pinned += n
	return nil
}

// Unpin ends the use of n bytes.
func (k *Kernel) Unpin(n uint64) { k.pinned -= n }

func (k *Kernel) destroyMR(m *MR) {
	k.Unpin(m.Length)
	delete(k.Dev.MRs, m.Key)
}

// CreateAH creates the address handle of a command.
func (k *Kernel) CreateAH(c ioctl.Call) *AH {
	r := call.In[uapi.IbUverbsCreateAh](c, uapi.UVERBS_ATTR_CORE_IN)
	g := &r.Attr.Grh
	a := &AH{Number: Free(k.Dev.AHs, 1), PD: k.PDs[r.PdHandle],
		Path: PathOf(g.SgidIndex, g.Dgid, g.FlowLabel, g.HopLimit, g.TrafficClass)}
	k.ahs[call.Out[uapi.IbUverbsCreateAhResp](c, uapi.UVERBS_ATTR_CORE_OUT).AhHandle], k.Dev.AHs[a.Number] = a, a
	return a
}

func (k *Kernel) destroyAH(a *AH) { delete(k.Dev.AHs, a.Number) }

// PathOf returns the path of an address.
func PathOf(sgid uint8, dgid [16]byte, flow uint32, hops, class uint8) transport.Path {
	return transport.Path{GRH: true, SGIDIndex: sgid, DGID: dgid, FlowLabel: flow, HopLimit: hops, TrafficClass: class}
}
