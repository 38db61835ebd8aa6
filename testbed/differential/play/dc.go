package main

import (
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

const dcKey = 0xffeeddccbbaa9988

func (p *player) dci() (err error) {
	q := one(p, p.qps[:])
	p.kinds[q] = uverbs.DCI
	cfg := uverbs.QPConfig{Type: uverbs.DCI, SendCQ: *one(p, p.cqs[:])}
	cfg.MaxSendWR = p.nextArg()
	cfg.MaxSendSGE = p.nextArg()
	cfg.MaxInline = p.nextArg()
	cfg.SignalAll = p.nextArg()&signalAll != 0
	if p.nextArg() != 0 {
		cfg.DCIStreams = uverbs.DCIStreams{Concurrent: 8, Errored: 4}
	}
	if *q, err = p.pd.CreateQP(cfg); err != nil {
		return err
	}
	c := (*q).Cap()
	fmt.Printf("qp %d %d %d\n", c.MaxSendWR, c.MaxSendSGE, c.MaxInline)
	return nil
}

func (p *player) dct() (err error) {
	q := one(p, p.qps[:])
	p.kinds[q] = uverbs.DCT
	cfg := uverbs.QPConfig{Type: uverbs.DCT, RecvCQ: *one(p, p.cqs[:]), DCKey: dcKey}
	cfg.SRQ = *one(p, p.srqs[:])
	if *q, err = p.pd.CreateQP(cfg); err != nil {
		return err
	}
	return walk(*q,
		change{uverbs.MaskState | uverbs.MaskPKeyIndex | uverbs.MaskPort | uverbs.MaskAccess,
			uverbs.QPAttr{State: uverbs.StateInit, Port: 1,
				Access: uverbs.RemoteWrite | uverbs.RemoteRead | uverbs.RemoteAtomic}},
		change{uverbs.MaskState | uverbs.MaskAV | uverbs.MaskPathMTU | uverbs.MaskMinRNRTimer,
			uverbs.QPAttr{State: uverbs.StateRTR, PathMTU: uverbs.MTU1024, MinRNRTimer: 12, AV: p.loopbackAddr()}})
}

func (p *player) dcReady() error {
	return walk(*one(p, p.qps[:]),
		change{uverbs.MaskState | uverbs.MaskPKeyIndex | uverbs.MaskPort, uverbs.QPAttr{State: uverbs.StateInit, Port: 1}},
		change{uverbs.MaskState | uverbs.MaskPathMTU, uverbs.QPAttr{State: uverbs.StateRTR, PathMTU: uverbs.MTU1024}},
		change{uverbs.MaskState | uverbs.MaskSQPSN | uverbs.MaskTimeout | uverbs.MaskRetryCount | uverbs.MaskRNRRetryCount |
			uverbs.MaskMaxRdAtomic, uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: 5, Timeout: 18, RetryCount: 7, RNRRetryCount: 7,
			MaxRdAtomic: 4}})
}

func (p *player) dcwr() error {
	ah, dct, stream := *one(p, p.ahs[:]), *one(p, p.qps[:]), p.nextArg()
	err := p.wr()
	if err == nil {
		w := &p.batch[len(p.batch)-1]
		w.AH, w.QPN, w.DCKey, w.DCStream = ah, dct.QPN(), dcKey, uint16(stream)
	}
	return err
}
