package fakemlx5

import (
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// An mr is a memory region.
type mr struct {
	*engine.MKey
	spans []span
	inner *engine.MKey       // the key of the pages of device memory
	reg   uapi.IbUverbsRegMr // what is registered now
}

func rightsOf(access uverbs.Access) engine.Rights {
	rights := engine.LocalRead
	for flag, x := range map[uverbs.Access]engine.Rights{
		uverbs.LocalWrite:   engine.LocalWrite,
		uverbs.RemoteWrite:  engine.RemoteWrite,
		uverbs.RemoteRead:   engine.RemoteRead,
		uverbs.RemoteAtomic: engine.RemoteAtomic,
	} {
		if access&flag != 0 {
			rights |= x
		}
	}
	return rights
}

func (k *Kernel) regMR(c ioctl.Call) error {
	const in, out = uapi.UVERBS_ATTR_CORE_IN, uapi.UVERBS_ATTR_CORE_OUT
	r, resp := call.In[uapi.IbUverbsRegMr](c, in), call.Out[uapi.IbUverbsRegMrResp](c, out)
	k.locate(&r.Start)
	spans, err := k.pin(registered(r))
	if err != nil {
		k.Forget(resp.MrHandle)
		return err
	}
	key, err := k.createKey(r)
	if err != nil {
		k.unpin(spans)
		k.Forget(resp.MrHandle)
		return refused
	}
	k.mrs[resp.MrHandle] = &mr{MKey: key, spans: spans, reg: *r}
	resp.Lkey, resp.Rkey = key.Key(), key.Key()
	call.Reply(c, out, resp)
	return nil
}

// registered returns the memory of a region.
func registered(r *uapi.IbUverbsRegMr) span {
	s := pages(r.Start, r.Length)
	s.readOnly = uverbs.Access(r.AccessFlags)&uverbs.LocalWrite == 0
	return s
}

// createKey creates the key of a region.
func (k *Kernel) createKey(r *uapi.IbUverbsRegMr) (*engine.MKey, error) {
	b := pagesOf(r.Start, r.Length)
	return k.adapter.HCA.CreateMKey(engine.MKeyAttr{Mode: engine.MTT, Rights: rightsOf(uverbs.Access(r.AccessFlags)),
		Bind: uverbs.Access(r.AccessFlags)&uverbs.MWBindAccess != 0,
		QPN:  engine.AnyQPN, PD: k.PDs[r.PdHandle], Start: r.HcaVa, Length: r.Length, PageShift: 12,
		Octowords: uint32(len(b.Pages)+1) / 2, Translations: translations(b)})
}

// reregMR replaces the key of a region, unless only its rights change.
func (k *Kernel) reregMR(c ioctl.Call) error {
	const in, out = uapi.UVERBS_ATTR_CORE_IN, uapi.UVERBS_ATTR_CORE_OUT
	r, resp := call.In[uapi.IbUverbsReregMr](c, in), call.Out[uapi.IbUverbsReregMrResp](c, out)
	m := k.mrs[r.MrHandle]
	next := m.reg
	f := uverbs.ReregFlags(r.Flags)
	if f&uverbs.ReregTranslation != 0 {
		next.Start, next.Length, next.HcaVa = r.Start, r.Length, r.HcaVa
		k.locate(&next.Start)
	}
	if f&uverbs.ReregPD != 0 {
		next.PdHandle = r.PdHandle
	}
	if f&uverbs.ReregAccess != 0 {
		next.AccessFlags = r.AccessFlags
	}
	if f == uverbs.ReregAccess && m.inner == nil {
		m.reg = next
		m.Rights, m.Bind = rightsOf(uverbs.Access(next.AccessFlags)), uverbs.Access(next.AccessFlags)&uverbs.MWBindAccess != 0
		resp.Lkey, resp.Rkey = m.Key(), m.Key()
		call.Reply(c, out, resp)
		return nil
	}
	spans, err := k.pin(registered(&next))
	if err != nil {
		return err
	}
	key, err := k.createKey(&next)
	if err != nil {
		k.unpin(spans)
		return refused
	}
	k.adapter.HCA.Replaced(m.MKey, key.Key())
	k.check(k.adapter.HCA.DestroyMKey(m.Index))
	k.unpin(m.spans)
	*m = mr{MKey: key, spans: spans, reg: next}
	resp.Lkey, resp.Rkey = key.Key(), key.Key()
	call.Reply(c, out, resp)
	return nil
}

func (k *Kernel) queryMR(c ioctl.Call) {
	key := k.mrs[call.Handle(c, uapi.UVERBS_ATTR_QUERY_MR_HANDLE)].Key()
	call.Reply(c, uapi.UVERBS_ATTR_QUERY_MR_RESP_LKEY, &key)
	call.Reply(c, uapi.UVERBS_ATTR_QUERY_MR_RESP_RKEY, &key)
}

// bound reports whether a command deregisters a region to which a window is bound. ibv_dereg_mr(3) forbids it, and rxe
// refuses it.
func (k *Kernel) bound(c ioctl.Call) bool {
	if !k.adapter.cfg.Program || !k.adapter.kernels[k] {
		return false
	}
	m := k.mrs[call.Handle(c, uapi.UVERBS_ATTR_DESTROY_MR_HANDLE)]
	return m != nil && k.adapter.HCA.Bound(m.MKey)
}

func (k *Kernel) deregMR(h uint32) error {
	m := k.mrs[h]
	if m == nil {
		return nil // of a dma-buf, for which the device has no key
	}
	delete(k.mrs, h)
	k.unpin(m.spans)
	if m.inner != nil {
		k.check(k.adapter.HCA.DestroyMKey(m.inner.Index))
	}
	return k.adapter.HCA.DestroyMKey(m.Index)
}

func (k *Kernel) allocMW(c ioctl.Call) error {
	const in, out = uapi.UVERBS_ATTR_CORE_IN, uapi.UVERBS_ATTR_CORE_OUT
	r, resp := call.In[uapi.IbUverbsAllocMw](c, in), call.Out[uapi.IbUverbsAllocMwResp](c, out)
	key, err := k.adapter.HCA.CreateMKey(engine.MKeyAttr{Mode: engine.KLM, Rights: engine.LocalRead,
		Free: r.MwType == 2, UMR: true, RemoteInval: true, QPN: engine.AnyQPN, PD: k.PDs[r.PdHandle],
		Octowords: 8})
	if err != nil {
		k.Forget(resp.MwHandle)
		return refused
	}
	k.mws[resp.MwHandle] = key
	resp.Rkey = key.Key()
	call.Reply(c, out, resp)
	return nil
}

func (k *Kernel) deallocMW(h uint32) error {
	key := k.mws[h]
	delete(k.mws, h)
	return k.adapter.HCA.DestroyMKey(key.Index)
}
