package mlx5

import (
	"encoding/binary"
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/connectx/engine"
	"github.com/goverbs/goverbs/internal/connectx/transport"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// Ioctl implements ioctl.Kernel. Commands that the fake kernel accepts are executed on the device in the same way as by
// mlx5_ib.
func (s *soft) Ioctl(c ioctl.Call) error {
	if s.heard != nil {
		s.heard(c)
	}
	if err := s.resized(c); err != nil {
		return err
	}
	before := s.forget(c)
	if err := s.Kernel.Ioctl(c); err != nil {
		return err
	}
	before()
	h := c.Header()
	switch [2]uint16{h.ObjectId, h.MethodId} {
	case [2]uint16{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_GET_CONTEXT}:
		answer(c, uapi.UVERBS_ATTR_UHW_OUT, &s.resp)
	case [2]uint16{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_QUERY_MR}:
		key := s.mrs[uint32(num(c, uapi.UVERBS_ATTR_QUERY_MR_HANDLE))].Key()
		answer(c, uapi.UVERBS_ATTR_QUERY_MR_RESP_LKEY, &key)
		answer(c, uapi.UVERBS_ATTR_QUERY_MR_RESP_RKEY, &key)
	case [2]uint16{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_CONTEXT}:
		answer(c, uapi.MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX, &s.resp)
	case [2]uint16{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE}:
		s.loop.Run(func() { s.makeCQ(c) })
	case [2]uint16{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE}:
		s.loop.Run(func() { s.makeQP(c) })
	case [2]uint16{uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_METHOD_WQ_CREATE}:
		s.loop.Run(func() { s.makeWQ(c) })
	case [2]uint16{uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_CREATE}:
		s.loop.Run(func() { s.makeSRQ(c) })
	case [2]uint16{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE}:
		s.loop.Run(func() { s.legacy(c) })
	}
	return nil
}

func attr(c ioctl.Call, id uint16) *uapi.IbUverbsAttr {
	for i := range c.Attrs() {
		if a := &c.Attrs()[i]; a.AttrId == id {
			return a
		}
	}
	return nil
}

func num(c ioctl.Call, id uint16) uint64 {
	if a := attr(c, id); a != nil {
		return a.Data
	}
	return 0
}

// input returns the request of a command: its driver's part, or CORE_IN.
func input[T any](c ioctl.Call, id uint16) *T {
	v := new(T)
	if a := attr(c, id); a != nil && a.Len > 8 {
		copy(ioctl.BytesOf(v), c.Memory(a.Data, int(a.Len)))
	} else if a != nil {
		copy(ioctl.BytesOf(v), binary.LittleEndian.AppendUint64(nil, a.Data)[:a.Len])
	}
	return v
}

// output returns the reply of the kernel.
func output[T any](c ioctl.Call, id uint16) *T {
	v := new(T)
	if a := attr(c, id); a != nil {
		copy(ioctl.BytesOf(v), c.Memory(a.Data, int(a.Len)))
	}
	return v
}

// answer writes an output, truncated to its size.
func answer[T any](c ioctl.Call, id uint16, v *T) {
	if a := attr(c, id); a != nil {
		copy(c.Memory(a.Data, int(a.Len)), ioctl.BytesOf(v))
	}
}

func (s *soft) share(addr, n uint64) {
	s.spansMu.Lock()
	defer s.spansMu.Unlock()
	s.spans = append(s.spans, span{addr, n})
}

func (s *soft) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Errorf("the device refuses: %v", err)
	}
}

func (s *soft) makeCQ(c ioctl.Call) {
	u := input[uapi.Mlx5IbCreateCq](c, uapi.UVERBS_ATTR_UHW_IN)
	entries := powerOfTwo(int(num(c, uapi.UVERBS_ATTR_CREATE_CQ_CQE)) + 1)
	n := uint64(entries) * uint64(u.CqeSize)
	s.share(u.BufAddr, n)
	s.share(u.DbAddr, 8)
	uar := uint32(u.UarPageIndex)
	if large := attr(c, uapi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX); large != nil {
		if uar = uint32(large.Data); u.Flags&uapi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX != 0 || uar>>16 == 0 {
			s.t.Errorf("the number of a register page is told twice: %#x", uar)
		}
	} else if by := u.Flags&uapi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX == 0; by != (s.resp.TotBfregs > 0) {
		s.t.Errorf("the driver chooses the register page: %t", by)
	}
	if other := u.Flags &^ uapi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX; other != 0 { // timestamps count ticks of the clock
		s.t.Errorf("a CQ with flags %#x", other)
	}
	a := engine.CQAttr{UAR: uar, Wide: u.CqeSize == 128, LogSize: uint8(bits.TrailingZeros(uint(entries))),
		Buffer: pagesOf(u.BufAddr, n), Record: u.DbAddr}
	q, err := s.hca.CreateCQ(a)
	s.must(err)
	h := uint32(num(c, uapi.UVERBS_ATTR_CREATE_CQ_HANDLE))
	s.cqs[h] = &softCQ{q, h, u.BufAddr, int(a.LogSize), int(u.CqeSize)}
	made := uint32(entries - 1)
	answer(c, uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE, &made)
	answer(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.Mlx5IbCreateCqResp{Cqn: q.Number})
}

func (s *soft) makeSRQ(c ioctl.Call) {
	u := input[uapi.Mlx5IbCreateSrq](c, uapi.UVERBS_ATTR_UHW_IN)
	slots := powerOfTwo(int(num(c, uapi.UVERBS_ATTR_CREATE_SRQ_MAX_WR)) + 1)
	size := max(powerOfTwo(16+16*int(num(c, uapi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE))), 32)
	n := uint64(slots * size)
	s.share(u.BufAddr, n)
	s.share(u.DbAddr, 8)
	a := engine.SRQAttr{PD: s.pds[uint32(num(c, uapi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE))],
		LogSize: uint8(bits.TrailingZeros(uint(slots))), LogStride: uint8(bits.TrailingZeros(uint(size))),
		Buffer: pagesOf(u.BufAddr, n), Record: u.DbAddr, Limit: uint16(num(c, uapi.UVERBS_ATTR_CREATE_SRQ_LIMIT))}
	if num(c, uapi.UVERBS_ATTR_CREATE_SRQ_TYPE) == uapi.IB_UVERBS_SRQT_XRC {
		a.XRC, a.UserIndex = true, u.Uidx
		a.XRCD = s.xrcds[uint32(num(c, uapi.UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE))]
		a.CQ = s.cqs[uint32(num(c, uapi.UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE))].Number
	}
	q, err := s.hca.CreateSRQ(a)
	s.must(err)
	answer(c, uapi.UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, &q.Number)
	s.srqs[uint32(num(c, uapi.UVERBS_ATTR_CREATE_SRQ_HANDLE))] = q
	made := uint32(slots - 1)
	answer(c, uapi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, &made)
	answer(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.Mlx5IbCreateSrqResp{Srqn: q.Number})
}

func (s *soft) makeQP(c ioctl.Call) {
	if uverbs.QPType(num(c, uapi.UVERBS_ATTR_CREATE_QP_TYPE)) == uverbs.RawPacket {
		s.makeRaw(c)
		return
	}
	u := input[uapi.Mlx5IbCreateQp](c, uapi.UVERBS_ATTR_UHW_IN)
	n := uint64(u.RqWqeCount)<<u.RqWqeShift + uint64(u.SqWqeCount)*blockSize
	s.share(u.BufAddr, n)
	s.share(u.DbAddr, 8)
	a := engine.QPAttr{PD: s.pds[uint32(num(c, uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE))], UAR: u.BfregIndex,
		UserIndex: u.Uidx, NoSQ: u.SqWqeCount == 0, LogSQSize: log2(u.SqWqeCount), LogRQSize: log2(u.RqWqeCount),
		LogRQStride: uint8(u.RqWqeShift), Buffer: pagesOf(u.BufAddr, n), Record: u.DbAddr}
	chosen := s.choose(&a.UAR)
	for id, number := range map[uint16]*uint32{uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE: &a.SendCQ,
		uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE: &a.RecvCQ} {
		if cq := attr(c, id); cq != nil {
			*number = s.cqs[uint32(cq.Data)].Number
		}
	}
	switch uverbs.QPType(num(c, uapi.UVERBS_ATTR_CREATE_QP_TYPE)) {
	case uverbs.XRCSend:
		a.Service = engine.ServiceXRC
	case uverbs.XRCRecv:
		a.Service, a.XRCD, a.PD = engine.ServiceXRC, s.xrcds[uint32(num(c, uapi.UVERBS_ATTR_CREATE_QP_XRCD_HANDLE))],
			s.kernelPD()
	case uverbs.UC:
		a.Service = engine.ServiceUC
	case uverbs.UD:
		a.Service = engine.ServiceUD
	}
	s.scatter(c, u.Flags, &a)
	if a.Service == engine.ServiceXRC {
		a.Source = engine.FromNone
		if a.NoSQ {
			a.Source = engine.FromSRQ
		}
	} else if srq := attr(c, uapi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE); srq != nil {
		a.Source, a.SRQ = engine.FromSRQ, s.srqs[uint32(srq.Data)].Number
	} else if u.RqWqeCount == 0 {
		a.Source = engine.FromNone
	}
	q, err := s.hca.CreateQP(a)
	s.must(err)
	s.qps[uint32(num(c, uapi.UVERBS_ATTR_CREATE_QP_HANDLE))] = &softQP{QP: q}
	answer(c, uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &q.Number)
	answer(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.Mlx5IbCreateQpResp{BfregIndex: chosen,
		EceOptions: softECE * (u.EceOptions >> 28)})
}

// choose returns the register that an old kernel chooses for a QP, and its page: one after the
// other, except the first. A newer kernel uses the page in the request.
func (s *soft) choose(page *uint32) (register uint32) {
	if s.resp.TotBfregs == 0 {
		return ^uint32(0)
	}
	n := 1 + uint32(len(s.qps))%(s.resp.TotBfregs-1)
	*page = n / uarUsable
	return *page*uarRegisters + n%uarUsable
}

// scatter enables short messages and results in completions if the QP's flags request them.
func (s *soft) scatter(c ioctl.Call, flags uint32, a *engine.QPAttr) {
	size := func(cq uint16) uint8 {
		if s.cqs[uint32(num(c, cq))].Wide {
			return 64
		}
		return 32
	}
	if flags&uapi.MLX5_QP_FLAG_SCATTER_CQE == 0 || a.Service != engine.ServiceRC && a.Service != engine.ServiceUC {
		return
	}
	a.ScatterResponse = size(uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE)
	if a.Service == engine.ServiceRC && num(c, uapi.UVERBS_ATTR_CREATE_QP_FLAGS)&uapi.IB_UVERBS_QP_CREATE_SQ_SIG_ALL != 0 {
		a.ScatterRequest = size(uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE)
	}
}

// softECE are the ECE options of the device.
const softECE = 0x14

// kernelPD returns the PD of the kernel's own objects.
func (s *soft) kernelPD() uint32 {
	if s.ownPD == 0 {
		var err error
		s.ownPD, err = s.hca.CreatePD()
		s.must(err)
	}
	return s.ownPD
}

func log2(n uint32) uint8 { return uint8(bits.TrailingZeros32(max(n, 1))) }

// legacy executes the commands that INVOKE_WRITE carries.
func (s *soft) legacy(c ioctl.Call) {
	const in, out = uapi.UVERBS_ATTR_CORE_IN, uapi.UVERBS_ATTR_CORE_OUT
	s.rawLegacy(c)
	switch num(c, uapi.UVERBS_ATTR_WRITE_CMD) {
	case uapi.IB_USER_VERBS_CMD_ALLOC_PD:
		pd, err := s.hca.CreatePD()
		s.must(err)
		s.pds[output[uapi.IbUverbsAllocPdResp](c, out).PdHandle] = pd
		answer(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.Mlx5IbAllocPdResp{Pdn: pd})
	case uapi.IB_USER_VERBS_CMD_OPEN_XRCD:
		x, err := s.hca.CreateXRCD()
		s.must(err)
		s.xrcds[output[uapi.IbUverbsOpenXrcdResp](c, out).XrcdHandle] = x
	case uapi.IB_USER_VERBS_CMD_REG_MR:
		s.makeMR(c)
	case uapi.IB_USER_VERBS_CMD_ALLOC_MW:
		r, a := input[uapi.IbUverbsAllocMw](c, in), output[uapi.IbUverbsAllocMwResp](c, out)
		k, err := s.hca.CreateMKey(engine.MKeyAttr{Mode: engine.KLM, Rights: engine.LocalRead, Free: r.MwType == 2, UMR: true,
			RemoteInval: true, QPN: engine.AnyQPN, PD: s.pds[r.PdHandle], Octowords: 8})
		s.must(err)
		s.mws[a.MwHandle] = k
		a.Rkey = k.Key()
		answer(c, out, a)
	case uapi.IB_USER_VERBS_CMD_RESIZE_CQ:
		entries := powerOfTwo(int(input[uapi.IbUverbsResizeCq](c, in).Cqe) + 1)
		answer(c, out, &uapi.IbUverbsResizeCqResp{Cqe: uint32(entries) - 1})
	case uapi.IB_USER_VERBS_CMD_MODIFY_QP:
		s.modifyQP(input[uapi.IbUverbsModifyQp](c, in))
	case uapi.IB_USER_VERBS_EX_CMD_MODIFY_QP | uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED:
		s.modifyQP(&input[uapi.IbUverbsExModifyQp](c, in).Base)
		answer(c, uapi.UVERBS_ATTR_UHW_OUT,
			&uapi.Mlx5IbModifyQpResp{EceOptions: input[uapi.Mlx5IbModifyQp](c, uapi.UVERBS_ATTR_UHW_IN).EceOptions & softECE})
	case uapi.IB_USER_VERBS_CMD_MODIFY_SRQ:
		r := input[uapi.IbUverbsModifySrq](c, in)
		s.must(s.hca.ArmSRQ(s.srqs[r.SrqHandle].Number, uint16(r.SrqLimit)))
	case uapi.IB_USER_VERBS_CMD_CREATE_AH:
		answer(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.Mlx5IbCreateAhResp{ResponseLength: 10, Dmac: s.hca.MAC()})
	}
}

func (s *soft) makeMR(c ioctl.Call) {
	r, a := input[uapi.IbUverbsRegMr](c, uapi.UVERBS_ATTR_CORE_IN),
		output[uapi.IbUverbsRegMrResp](c, uapi.UVERBS_ATTR_CORE_OUT)
	rights := engine.LocalRead
	for flag, x := range map[uverbs.Access]engine.Rights{uverbs.LocalWrite: engine.LocalWrite,
		uverbs.RemoteWrite: engine.RemoteWrite, uverbs.RemoteRead: engine.RemoteRead,
		uverbs.RemoteAtomic: engine.RemoteAtomic} {
		if uverbs.Access(r.AccessFlags)&flag != 0 {
			rights |= x
		}
	}
	s.share(r.Start, r.Length)
	b := pagesOf(r.Start, r.Length)
	k, err := s.hca.CreateMKey(engine.MKeyAttr{Mode: engine.MTT, Rights: rights, QPN: engine.AnyQPN, PD: s.pds[r.PdHandle],
		Start: r.HcaVa, Length: r.Length, PageShift: 12, Octowords: uint32(len(b.Pages)+1) / 2,
		Translations: translations(b)})
	s.must(err)
	s.mrs[a.MrHandle] = k
	a.Lkey, a.Rkey = k.Key(), k.Key()
	answer(c, uapi.UVERBS_ATTR_CORE_OUT, a)
}

// resized resizes the device's CQ, which the device may reject.
func (s *soft) resized(c ioctl.Call) (err error) {
	h := c.Header()
	if h.ObjectId != uapi.UVERBS_OBJECT_DEVICE || h.MethodId != uapi.UVERBS_METHOD_INVOKE_WRITE ||
		num(c, uapi.UVERBS_ATTR_WRITE_CMD) != uapi.IB_USER_VERBS_CMD_RESIZE_CQ {
		return nil
	}
	r, u := input[uapi.IbUverbsResizeCq](c, uapi.UVERBS_ATTR_CORE_IN),
		input[uapi.Mlx5IbResizeCq](c, uapi.UVERBS_ATTR_UHW_IN)
	entries := powerOfTwo(int(r.Cqe) + 1)
	n := uint64(entries) * uint64(u.CqeSize)
	s.share(u.BufAddr, n)
	s.loop.Run(func() {
		if s.cqs[r.CqHandle].Resize(log2(uint32(entries)), u.CqeSize == 128, pagesOf(u.BufAddr, n)) != nil {
			err = unix.EINVAL
		}
	})
	return err
}

// modifyQP sets the attributes of a transition and executes it.
func (s *soft) modifyQP(r *uapi.IbUverbsModifyQp) {
	if q := s.eth.qps[r.QpHandle]; q != nil {
		if uverbs.QPMask(r.AttrMask)&uverbs.MaskState != 0 {
			s.modifyRaw(q, uverbs.QPState(r.QpState))
		}
		return
	}
	q := s.qps[r.QpHandle]
	a, m := &q.attr, uverbs.QPMask(r.AttrMask)
	if m&uverbs.MaskAccess != 0 {
		x := uverbs.Access(r.QpAccessFlags)
		a.RemoteRead, a.RemoteWrite, a.RemoteAtomic = x&uverbs.RemoteRead != 0, x&uverbs.RemoteWrite != 0,
			x&uverbs.RemoteAtomic != 0
	}
	if m&uverbs.MaskAV != 0 {
		g := s.hca.GID(int(r.Dest.SgidIndex))
		a.Primary = transport.Path{DLID: r.Dest.Dlid, GRH: r.Dest.IsGlobal != 0, SGIDIndex: r.Dest.SgidIndex, DGID: g.GID,
			DMAC: g.MAC, HopLimit: r.Dest.HopLimit, UDPSport: 0xc123}
	}
	for mask, set := range map[uverbs.QPMask]func(){
		uverbs.MaskPathMTU: func() { a.MTU = 128 << r.PathMtu }, uverbs.MaskDestQPN: func() { a.RemoteQPN = r.DestQpNum },
		uverbs.MaskRQPSN: func() { a.RecvPSN = r.RqPsn }, uverbs.MaskSQPSN: func() { a.SendPSN = r.SqPsn },
		uverbs.MaskMaxDestRdAtomic: func() { a.MaxRespond = int(r.MaxDestRdAtomic) },
		uverbs.MaskMaxRdAtomic:     func() { a.MaxInitiate = int(r.MaxRdAtomic) },
		uverbs.MaskMinRNRTimer:     func() { a.MinRNRTimer = r.MinRnrTimer },
		uverbs.MaskTimeout:         func() { a.AckTimeout = r.Timeout },
		uverbs.MaskRetryCnt:        func() { a.RetryCount = r.RetryCnt },
		uverbs.MaskRNRRetry:        func() { a.RNRRetry = r.RnrRetry }, uverbs.MaskQKey: func() { a.QKey = r.Qkey },
	} {
		if m&mask != 0 {
			set()
		}
	}
	if m&uverbs.MaskState == 0 {
		return
	}
	if t, ok := map[uverbs.QPState]engine.Transition{uverbs.StateReset: engine.ToReset, uverbs.StateInit: engine.RST2INIT,
		uverbs.StateRTR: engine.INIT2RTR, uverbs.StateRTS: engine.RTR2RTS,
		uverbs.StateErr: engine.ToErr}[uverbs.QPState(r.QpState)]; ok {
		s.must(s.hca.ModifyQP(q.Number, t, 0, *a))
	}
}

// forget returns the function that executes a destroy command on the device, to be called once
// the kernel has accepted the command.
func (s *soft) forget(c ioctl.Call) func() {
	h := c.Header()
	handle := func(id uint16) uint32 { return uint32(num(c, id)) }
	var gone func() error
	switch [2]uint16{h.ObjectId, h.MethodId} {
	case [2]uint16{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_DESTROY}:
		gone = func() error { return s.hca.DestroyCQ(s.cqs[handle(uapi.UVERBS_ATTR_DESTROY_CQ_HANDLE)].Number) }
	case [2]uint16{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_DESTROY}:
		gone = func() error {
			h := handle(uapi.UVERBS_ATTR_DESTROY_QP_HANDLE)
			if q := s.eth.qps[h]; q != nil {
				delete(s.eth.qps, h)
				return s.destroyRaw(q)
			}
			return s.hca.DestroyQP(s.qps[h].Number)
		}
	case [2]uint16{uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_METHOD_WQ_DESTROY}:
		gone = func() error { return s.hca.DestroyRQ(s.eth.wqs[handle(uapi.UVERBS_ATTR_DESTROY_WQ_HANDLE)].Number) }
	case [2]uint16{uapi.UVERBS_OBJECT_RWQ_IND_TBL, uapi.UVERBS_METHOD_RWQ_IND_TBL_DESTROY}:
		gone = func() error {
			return s.hca.DestroyRQT(s.eth.rqts[handle(uapi.UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE)].Number)
		}
	case [2]uint16{uapi.UVERBS_OBJECT_FLOW, uapi.UVERBS_METHOD_FLOW_DESTROY}:
		gone = func() error { return s.destroyFlow(handle(uapi.UVERBS_ATTR_DESTROY_FLOW_HANDLE)) }
	case [2]uint16{uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_DESTROY}:
		gone = func() error { return s.hca.DestroySRQ(s.srqs[handle(uapi.UVERBS_ATTR_DESTROY_SRQ_HANDLE)].Number) }
	case [2]uint16{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_MR_DESTROY}:
		gone = func() error {
			k := s.mrs[handle(uapi.UVERBS_ATTR_DESTROY_MR_HANDLE)]
			if k == nil {
				return nil // the device has no key of a dma-buf
			}
			delete(s.mrs, handle(uapi.UVERBS_ATTR_DESTROY_MR_HANDLE))
			return s.hca.DestroyMKey(k.Index)
		}
	case [2]uint16{uapi.UVERBS_OBJECT_MW, uapi.UVERBS_METHOD_MW_DESTROY}:
		gone = func() error { return s.hca.DestroyMKey(s.mws[handle(uapi.UVERBS_ATTR_DESTROY_MW_HANDLE)].Index) }
	case [2]uint16{uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY}:
		gone = func() error { return s.hca.DestroyPD(s.pds[handle(uapi.UVERBS_ATTR_DESTROY_PD_HANDLE)]) }
	case [2]uint16{uapi.UVERBS_OBJECT_XRCD, uapi.UVERBS_METHOD_XRCD_DESTROY}:
		gone = func() error { return s.hca.DestroyXRCD(s.xrcds[handle(uapi.UVERBS_ATTR_DESTROY_XRCD_HANDLE)]) }
	default:
		return func() {}
	}
	return func() { s.loop.Run(func() { s.must(gone()) }) }
}

// Write implements ioctl.Kernel.
func (s *soft) Write([]byte) error { return unix.EACCES }
