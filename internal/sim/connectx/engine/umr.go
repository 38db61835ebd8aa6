package engine

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// update executes a UMR: it changes a memory key's context, its list, or both.
func (w *sendWQE) update() transport.Syndrome {
	qp, h := w.qp, w.qp.hca
	if len(w.umr) < prm.WQEUMR.Size+umrContext {
		w.violate(RuleDS, "a UMR without its segments")
		return transport.LocalQPOp
	}
	ctrl, ctx, rest := w.umr[:prm.WQEUMR.Size], w.umr[prm.WQEUMR.Size:prm.WQEUMR.Size+umrContext],
		w.umr[prm.WQEUMR.Size+umrContext:]
	w.checkZero(prm.UMRReservedFlags, ctrl)
	mask := prm.UMRMask.Get(ctrl)
	if mask&^prm.UMRMaskKnown != 0 {
		w.violate(RuleReserved, "mask "+hex(mask))
	}
	k := h.mkeys.objects[w.request.Imm>>8]
	switch {
	case k == nil || !k.UMR:
		return transport.BindError
	case k.PD != qp.PD && qp.Service != ServiceUMR:
		return transport.BindError
	case prm.UMRCheckFree.Is(ctrl) && k.Free, prm.UMRCheckNotFree.Is(ctrl) && !k.Free:
		if w.why = "the window is not bound"; !k.Free {
			w.why = "the window is bound: invalidate its key " + hex(k.Key()) + " first"
		}
		return transport.BindError
	case prm.UMRCheckQPN.Is(ctrl) && k.QPN != qp.Number && (k.QPN != AnyQPN || k.Free):
		return transport.BindError
	}
	list, s := w.list(k, ctrl, rest)
	if s != transport.OK {
		return s
	}
	list = w.needed(k, mask, ctrl, ctx, list)
	if k.Mode != MTT && qp.Service != ServiceUMR {
		if !w.mayBind(k, mask, ctx, list) {
			return transport.BindError
		}
		h.windows[k] = true
	}
	return w.apply(k, mask, ctrl, ctx, list)
}

// umrContext is the size of the memory key context in a UMR.
const umrContext = 64

// list returns the new part of the key's list, inline or from a data segment.
func (w *sendWQE) list(k *MKey, ctrl, rest []byte) ([]byte, transport.Syndrome) {
	n := int(prm.UMROctowords.Get(ctrl)) * 16
	if n == 0 {
		return nil, transport.OK
	}
	if prm.UMRInline.Is(ctrl) {
		if n > len(rest) {
			// An inline list is padded to a block, in the ring if not in the size.
			w.violate(RuleDS, "an inline list of "+hex(uint(n))+" bytes is longer than its WQE")
			return nil, transport.LocalQPOp
		}
		return rest[:n], transport.OK
	}
	if len(rest) < 16 {
		w.violate(RuleDS, "a UMR without its list")
		return nil, transport.LocalQPOp
	}
	p := decodePiece(w.qp.hca, rest, w.qp.user(), LocalRead)
	list := make([]byte, min(uint64(n), p.n))
	if !p.span.ok() || p.span.read(0, list, newBudget()) != granted {
		return nil, transport.LocalProtection
	}
	return list, transport.OK
}

// needed returns the pieces of a new list that the key's length needs. The kernel rounds the size of an inline list up
// to a block, and does not write the rest of the block: it has what was in the ring before.
func (w *sendWQE) needed(k *MKey, mask uint64, ctrl, ctx, list []byte) []byte {
	a := k.MKeyAttr
	a.merge(mask, ctx)
	if a.Mode != KLM || a.Length64 || listOffset(ctrl) != 0 {
		return list
	}
	n := 0
	for left := a.Length; left > 0 && n+prm.KLM.Size <= len(list); n += prm.KLM.Size {
		left -= min(left, prm.KLMLength.Get(list[n:]))
	}
	return list[:n]
}

// listOffset returns the offset of the new part in the key's list, in bytes.
func listOffset(ctrl []byte) uint64 {
	if !prm.UMROffsetEnable.Is(ctrl) {
		return 0
	}
	return (prm.UMROffset.Get(ctrl) | prm.UMROffsetHigh.Get(ctrl)<<16) * 16
}

// apply changes the key.
func (w *sendWQE) apply(k *MKey, mask uint64, ctrl, ctx, list []byte) transport.Syndrome {
	a := k.MKeyAttr
	a.merge(mask, ctx)
	if mask&prm.UMRMaskPD != 0 {
		pd := w.qp.hca.pds.objects[a.PD]
		if pd == nil {
			return transport.BindError
		}
		k.pd.users--
		pd.users++
		k.pd = pd
	}
	a.Translations, a.OnDemand = k.Translations, k.OnDemand
	w.replace(k, &a)
	k.MKeyAttr = a
	if len(list) == 0 {
		return transport.OK
	}
	if !w.qp.hca.updateList(k, listOffset(ctrl), list) {
		return transport.BindError
	}
	// The driver's own updates write entries with rights. Entries without
	// rights are missing pages.
	k.OnDemand = k.OnDemand || k.Mode == MTT && w.qp.Service == ServiceUMR && w.qp.hca.config.Pager != nil
	return transport.OK
}

// replace records what an update does to the key's validity.
func (w *sendWQE) replace(k *MKey, a *MKeyAttr) {
	h, key := w.queue.hca, k.Index<<8|uint32(a.Variant)
	switch {
	case !h.config.Program || k.Mode == MTT:
	case a.Free:
		h.ended(k.Key(), invalidated)
	case key != k.Key():
		h.ended(k.Key(), "the window was bound again with key "+hex(key))
		h.begun(key)
	default:
		h.begun(key)
	}
}

// invalidated describes the end of a window's binding.
const invalidated = "the window was invalidated"

// merge sets the fields of a context selected by the mask.
func (a *MKeyAttr) merge(mask uint64, ctx []byte) {
	if mask&prm.UMRMaskLen != 0 {
		a.Length = prm.MKCLen.Get(ctx)
		a.Length64 = prm.MKCLength64.Is(ctx)
	}
	if mask&prm.UMRMaskPageSize != 0 {
		a.PageShift = uint8(prm.MKCLogPageSize.Get(ctx))
	}
	if mask&prm.UMRMaskStart != 0 {
		a.Start = prm.MKCStartAddr.Get(ctx)
	}
	if mask&prm.UMRMaskPD != 0 {
		a.PD = uint32(prm.MKCPD.Get(ctx))
	}
	if mask&prm.UMRMaskRemoteInval != 0 {
		a.RemoteInval = prm.MKCEnRinval.Is(ctx)
	}
	if mask&prm.UMRMaskKey != 0 {
		a.Variant = uint8(prm.MKCMKey70.Get(ctx))
	}
	if mask&prm.UMRMaskQPN != 0 {
		a.QPN = uint32(prm.MKCQPN.Get(ctx))
	}
	if mask&prm.UMRMaskFree != 0 {
		a.Free = prm.MKCFree.Is(ctx)
	}
	for bit, r := range map[uint64]Rights{
		prm.UMRMaskLocalRead: LocalRead, prm.UMRMaskLocalWrite: LocalWrite, prm.UMRMaskRemoteRead: RemoteRead,
		prm.UMRMaskRemoteWrite: RemoteWrite, prm.UMRMaskAtomic: RemoteAtomic,
	} {
		if mask&bit == 0 {
			continue
		}
		a.Rights &^= r
		if rightsOf(ctx)&r != 0 {
			a.Rights |= r
		}
	}
}

// rightsOf returns the rights in a memory key context.
func rightsOf(ctx []byte) Rights {
	var all Rights
	for f, r := range map[prm.Field]Rights{
		prm.MKCLR: LocalRead, prm.MKCLW: LocalWrite, prm.MKCRR: RemoteRead, prm.MKCRW: RemoteWrite, prm.MKCA: RemoteAtomic,
	} {
		if f.Is(ctx) {
			all |= r
		}
	}
	return all
}

// Bound reports whether a window of the key's memory is bound.
func (h *HCA) Bound(k *MKey) bool {
	for w := range h.windows {
		list := w.Translations
		for ; !w.Free && len(list) >= prm.KLM.Size; list = list[prm.KLM.Size:] {
			if prm.KLMLength.Get(list) > 0 && uint32(prm.KLMKey.Get(list)) == k.Key() {
				return true
			}
		}
	}
	return false
}

// mayBind reports whether a user's queue pair may create a window of the memory
// in the list: memory of the same protection domain, with local write if the
// window has remote write. A program's region needs MWBindAccess, which the
// kernel refuses for memory that cannot be written to.
func (w *sendWQE) mayBind(k *MKey, mask uint64, ctx, list []byte) bool {
	h := w.qp.hca
	a := k.MKeyAttr
	a.merge(mask, ctx)
	need := LocalRead
	if a.Rights&(RemoteWrite|RemoteAtomic) != 0 {
		need |= LocalWrite
	}
	for ; len(list) >= prm.KLM.Size; list = list[prm.KLM.Size:] {
		n := prm.KLMLength.Get(list)
		if n == 0 {
			continue
		}
		part := span{hca: h, key: uint32(prm.KLMKey.Get(list)), va: prm.KLMAddress.Get(list), n: n, rights: need,
			as: w.qp.user()}
		if !part.ok() {
			w.why, w.places = part.refusal("LKey")
			return false
		}
		if k := h.mkeys.objects[part.key>>8]; h.config.Program && k != nil && !k.Bind && k.Rights&LocalWrite != 0 {
			w.why = "the region of LKey " + hex(part.key) + " lacks MWBindAccess"
			return false
		}
	}
	return true
}
