package pingpong

import "github.com/goverbs/goverbs/uverbs"

// Queues holds the queues of one end.
type Queues struct {
	CQ       *uverbs.CQ   // of all QPs
	QPs      []*uverbs.QP // each with room for one send
	PostRecv func(...uverbs.RecvWR) (int, error)
	Memory   *Memory
	Records  int // number of addresses to exchange, if larger than len(QPs)
}

// OneQP creates one QP of type t, without an SRQ.
func (o *Options) OneQP(dev *uverbs.Context, t uverbs.QPType, l Layout) (*Queues, error) {
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, err
	}
	memory, err := o.Alloc(pd, l)
	if err != nil {
		return nil, err
	}
	cq, err := dev.CreateCQ(uverbs.CQConfig{Entries: o.RxDepth + 1, NoEvents: !o.Events, SingleGoroutine: true})
	if err != nil {
		return nil, err
	}
	qp, err := pd.CreateQP(uverbs.QPConfig{Type: t, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: o.RxDepth, SingleGoroutine: true})
	if err != nil {
		return nil, err
	}
	return &Queues{CQ: cq, QPs: []*uverbs.QP{qp}, PostRecv: qp.PostRecv, Memory: memory}, nil
}

// Init moves a QP of a connected service from RESET to INIT, in which receives can
// be posted.
func (o *Options) Init(qp *uverbs.QP) error {
	return qp.Modify(uverbs.QPAttr{State: uverbs.StateInit, Port: uint8(o.IBPort)},
		uverbs.MaskState|uverbs.MaskPKeyIndex|uverbs.MaskPort|uverbs.MaskAccess)
}

// ConnectRC moves an RC QP from INIT to RTS, with the attributes that the C
// programs use.
func (o *Options) ConnectRC(qp *uverbs.QP, local, remote Address, av uverbs.AHAttr) error {
	err := qp.Modify(uverbs.QPAttr{State: uverbs.StateRTR, PathMTU: o.MTU, DestQPN: remote.QPN, RQPSN: remote.PSN,
		MaxDestRdAtomic: 1, MinRNRTimer: 12, AV: av},
		uverbs.MaskState|uverbs.MaskAV|uverbs.MaskPathMTU|uverbs.MaskDestQPN|uverbs.MaskRQPSN|
			uverbs.MaskMaxDestRdAtomic|uverbs.MaskMinRNRTimer)
	if err != nil {
		return err
	}
	return qp.Modify(uverbs.QPAttr{State: uverbs.StateRTS, Timeout: 14, RetryCount: 7, RNRRetryCount: 7,
		SQPSN: local.PSN, MaxRdAtomic: 1},
		uverbs.MaskState|uverbs.MaskTimeout|uverbs.MaskRetryCount|uverbs.MaskRNRRetryCount|uverbs.MaskSQPSN|
			uverbs.MaskMaxRdAtomic)
}

// PostSend posts the message on a QP of a connected service.
func (m *Memory) PostSend(qp *uverbs.QP) error {
	wr := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled}
	wr.Inline, wr.SGL = m.Payload(qp)
	_, err := qp.PostSend(wr)
	return err
}
