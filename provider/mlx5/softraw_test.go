package mlx5

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/connectx/engine"
	"github.com/goverbs/goverbs/internal/connectx/prm"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// softEthernet has the device's objects of raw packet QPs, WQs, tables and flows, by handle.
type softEthernet struct {
	qps    map[uint32]*softRaw
	wqs    map[uint32]*engine.RQ
	rqts   map[uint32]*engine.RQT
	places map[uint32]uint32 // of flows, each in a separate group
	groups map[uint32]uint32
	root   uint32
	next   uint32
}

// softRaw has the device's objects of a raw packet QP.
type softRaw struct {
	sq  *engine.SQ
	tis *engine.TIS
	rq  *engine.RQ
	tir *engine.TIR
}

const softDomain = 1

// flowPlaces is the maximum number of flows. Flows without specifications come after all others.
const flowPlaces = 64

// ethernet creates the device's flow tables, once. The device receives the frames that the host sends.
func (s *soft) ethernet() *softEthernet {
	e := &s.eth
	if e.qps != nil {
		return e
	}
	*e = softEthernet{qps: map[uint32]*softRaw{}, wqs: map[uint32]*engine.RQ{}, rqts: map[uint32]*engine.RQT{},
		places: map[uint32]uint32{}, groups: map[uint32]uint32{}}
	s.hca.SetLocalLoopback(true, true)
	var err error
	e.root, err = s.hca.CreateFlowTable(engine.FlowTableAttr{Level: 1, LogSize: 6})
	s.must(err)
	s.must(s.hca.SetFlowTableRoot(engine.NICReceive, e.root))
	return e
}

func (s *soft) makeRaw(c ioctl.Call) {
	q := &softRaw{}
	s.ethernet().qps[uint32(num(c, uapi.UVERBS_ATTR_CREATE_QP_HANDLE))] = q
	var err error
	if t := attr(c, uapi.UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE); t != nil {
		q.tir, err = s.hca.CreateTIR(rssTIR(input[uapi.Mlx5IbCreateQpRss](c, uapi.UVERBS_ATTR_UHW_IN),
			s.eth.rqts[uint32(t.Data)].Number))
		s.must(err)
		answer(c, uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, new(uint32))
		return
	}
	u := input[uapi.Mlx5IbCreateQp](c, uapi.UVERBS_ATTR_UHW_IN)
	pd := s.pds[uint32(num(c, uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE))]
	s.share(u.DbAddr, 8)
	if n := uint64(u.RqWqeCount) << u.RqWqeShift; n > 0 {
		s.share(u.BufAddr, n)
		strip := uverbs.QPCreateFlags(num(c, uapi.UVERBS_ATTR_CREATE_QP_FLAGS))&uverbs.QPCVLANStripping != 0
		q.rq, err = s.hca.CreateRQ(engine.RQAttr{CQ: s.cqs[uint32(num(c, uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE))].Number,
			UserIndex: u.Uidx, PD: pd, LogSize: log2(u.RqWqeCount), LogStride: uint8(u.RqWqeShift),
			Buffer: pagesOf(u.BufAddr, n), Record: u.DbAddr, StripVLAN: strip})
		s.must(err)
		q.tir, err = s.hca.CreateTIR(engine.TIRAttr{RQ: q.rq.Number, TransportDomain: softDomain})
		s.must(err)
		answer(c, uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &q.rq.Number)
	}
	if n := uint64(u.SqWqeCount) * blockSize; n > 0 {
		s.share(u.SqBufAddr, n)
		q.tis, err = s.hca.CreateTIS(softDomain)
		s.must(err)
		q.sq, err = s.hca.CreateSQ(engine.SQAttr{CQ: s.cqs[uint32(num(c, uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE))].Number,
			UserIndex: u.Uidx, PD: pd, TIS: q.tis.Number, UAR: u.BfregIndex, LogSize: log2(u.SqWqeCount),
			Buffer: pagesOf(u.SqBufAddr, n), Record: u.DbAddr})
		s.must(err)
		answer(c, uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &q.sq.Number)
	}
	answer(c, uapi.UVERBS_ATTR_UHW_OUT, &uapi.Mlx5IbCreateQpResp{BfregIndex: ^uint32(0)})
}

func rssTIR(u *uapi.Mlx5IbCreateQpRss, rqt uint32) engine.TIRAttr {
	a := engine.TIRAttr{Indirect: true, RQT: rqt, Hash: engine.HashToeplitz, Key: [40]byte(u.RxHashKey[:40]),
		TransportDomain: softDomain}
	f := uverbs.RSSFields(u.RxHashFieldsMask)
	a.IPv6 = f&(uverbs.RSSSrcIPv6|uverbs.RSSDstIPv6) != 0
	a.UDP = f&(uverbs.RSSSrcPortUDP|uverbs.RSSDstPortUDP) != 0
	for bits, field := range map[uverbs.RSSFields]engine.HashFields{
		uverbs.RSSSrcIPv4 | uverbs.RSSSrcIPv6:       engine.HashSrcIP,
		uverbs.RSSDstIPv4 | uverbs.RSSDstIPv6:       engine.HashDstIP,
		uverbs.RSSSrcPortTCP | uverbs.RSSSrcPortUDP: engine.HashSrcPort,
		uverbs.RSSDstPortTCP | uverbs.RSSDstPortUDP: engine.HashDstPort,
	} {
		if f&bits != 0 {
			a.Fields |= field
		}
	}
	return a
}

// modifyRaw changes the state of the queues. The receive queue is ready from INIT on, the send
// queue in RTS.
func (s *soft) modifyRaw(q *softRaw, state uverbs.QPState) {
	recv, send := engine.QueueReady, engine.QueueReset
	switch state {
	case uverbs.StateReset:
		recv = engine.QueueReset
	case uverbs.StateRTS:
		send = engine.QueueReady
	case uverbs.StateErr:
		recv, send = engine.QueueError, engine.QueueError
	}
	if q.rq != nil && q.rq.State() != recv {
		s.must(s.hca.ModifyRQ(q.rq.Number, q.rq.State(), recv))
	}
	if q.sq != nil && q.sq.State() != send {
		s.must(s.hca.ModifySQ(q.sq.Number, q.sq.State(), send))
	}
}

func (s *soft) destroyRaw(q *softRaw) error {
	if q.tir != nil {
		s.must(s.hca.DestroyTIR(q.tir.Number))
	}
	if q.rq != nil {
		s.must(s.hca.DestroyRQ(q.rq.Number))
	}
	if q.sq != nil {
		s.must(s.hca.DestroySQ(q.sq.Number))
		s.must(s.hca.DestroyTIS(q.tis.Number))
	}
	return nil
}

func (s *soft) makeWQ(c ioctl.Call) {
	u := input[uapi.Mlx5IbCreateWq](c, uapi.UVERBS_ATTR_UHW_IN)
	n := uint64(u.RqWqeCount) << u.RqWqeShift
	s.share(u.BufAddr, n)
	s.share(u.DbAddr, 8)
	q, err := s.hca.CreateRQ(engine.RQAttr{CQ: s.cqs[uint32(num(c, uapi.UVERBS_ATTR_CREATE_WQ_CQ_HANDLE))].Number,
		UserIndex: u.UserIndex, PD: s.pds[uint32(num(c, uapi.UVERBS_ATTR_CREATE_WQ_PD_HANDLE))], LogSize: log2(u.RqWqeCount),
		LogStride: uint8(u.RqWqeShift), Buffer: pagesOf(u.BufAddr, n), Record: u.DbAddr,
		StripVLAN: uverbs.WQFlags(num(c, uapi.UVERBS_ATTR_CREATE_WQ_FLAGS))&uverbs.WQCVLANStripping != 0})
	s.must(err)
	s.ethernet().wqs[uint32(num(c, uapi.UVERBS_ATTR_CREATE_WQ_HANDLE))] = q
	answer(c, uapi.UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM, &q.Number)
}

// rawLegacy executes the commands for raw packets that INVOKE_WRITE carries.
func (s *soft) rawLegacy(c ioctl.Call) {
	const in, out = uapi.UVERBS_ATTR_CORE_IN, uapi.UVERBS_ATTR_CORE_OUT
	switch num(c, uapi.UVERBS_ATTR_WRITE_CMD) &^ uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED {
	case uapi.IB_USER_VERBS_EX_CMD_MODIFY_WQ:
		r := input[uapi.IbUverbsExModifyWq](c, in)
		q := s.eth.wqs[r.WqHandle]
		if r.AttrMask&uint32(uverbs.WQMaskState) != 0 {
			to := map[uverbs.WQState]engine.QueueState{uverbs.WQStateRdy: engine.QueueReady,
				uverbs.WQStateErr: engine.QueueError}[uverbs.WQState(r.WqState)]
			s.must(s.hca.ModifyRQ(q.Number, q.State(), to))
		}
	case uapi.IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL:
		a := attr(c, in)
		var rqs []uint32
		for b := c.Memory(a.Data, int(a.Len))[8:]; len(b) > 0; b = b[4:] {
			rqs = append(rqs, s.eth.wqs[binary.LittleEndian.Uint32(b)].Number)
		}
		t, err := s.hca.CreateRQT(rqs)
		s.must(err)
		s.eth.rqts[output[uapi.IbUverbsExCreateRwqIndTableResp](c, out).IndTblHandle] = t
	case uapi.IB_USER_VERBS_EX_CMD_CREATE_FLOW:
		a := attr(c, in)
		s.makeFlow(c.Memory(a.Data, int(a.Len)), output[uapi.IbUverbsCreateFlowResp](c, out).FlowHandle)
	}
}

func (s *soft) makeFlow(req []byte, handle uint32) {
	e := s.ethernet()
	r := ioctl.SliceOf[uapi.IbUverbsCreateFlow](req[:24])[0]
	g, f := engine.FlowGroup{Criteria: 1}, engine.Flow{Forward: true}
	for specs := req[24:]; len(specs) > 0; specs = specs[binary.LittleEndian.Uint16(specs[4:]):] {
		takeSpec(specs, prm.FlowMatchOuter.Bytes(g.Mask[:]), prm.FlowMatchOuter.Bytes(f.Match[:]), &f)
	}
	e.next++
	place := e.next
	if r.FlowAttr.NumOfSpecs == 0 {
		place = flowPlaces - e.next
	}
	g.First, g.Last = place, place
	group, err := s.hca.CreateFlowGroup(e.root, g)
	s.must(err)
	f.Group = group
	f.Dests = []engine.FlowDest{{Type: engine.FlowToTIR, Number: e.qps[r.QpHandle].tir.Number}}
	s.must(s.hca.SetFlow(e.root, place, f))
	e.places[handle], e.groups[handle] = place, group
}

// takeSpec adds a specification to the match of a flow.
func takeSpec(b, mask, match []byte, f *engine.Flow) {
	be16 := binary.BigEndian.Uint16
	half := (int(binary.LittleEndian.Uint16(b[4:])) - 8) / 2
	for i, m := range [][]byte{match, mask} {
		v := b[8+i*half:]
		switch binary.LittleEndian.Uint32(b) {
		case 0x20:
			copy(prm.FlowHeadersDMAC.Bytes(m), v[:6])
			copy(prm.FlowHeadersSMAC.Bytes(m), v[6:12])
			prm.FlowHeadersEthertype.Set(m, uint64(be16(v[12:])))
		case 0x30:
			prm.FlowHeadersIPVersion.Set(m, uint64(4|11*i))
			copy(prm.FlowHeadersSrcIP.Bytes(m)[12:], v[:4])
			copy(prm.FlowHeadersDstIP.Bytes(m)[12:], v[4:8])
		case 0x41:
			prm.FlowHeadersIPProtocol.Set(m, uint64(17|0xff*i))
			prm.FlowHeadersUDPDport.Set(m, uint64(be16(v)))
			prm.FlowHeadersUDPSport.Set(m, uint64(be16(v[2:])))
		case 0x1000:
			f.Tag = binary.LittleEndian.Uint32(b[8:])
		}
	}
}

func (s *soft) destroyFlow(handle uint32) error {
	if err := s.hca.DeleteFlow(s.eth.root, s.eth.places[handle]); err != nil {
		return err
	}
	return s.hca.DestroyFlowGroup(s.eth.root, s.eth.groups[handle])
}
