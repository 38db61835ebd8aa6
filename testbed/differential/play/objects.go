package main

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/uverbs"
)

func (p *player) cq() (err error) {
	q := one(p, p.cqs[:])
	if *q, err = p.dev.CreateCQ(uverbs.CQConfig{Entries: p.nextArg()}); err != nil {
		return err
	}
	fmt.Printf("cq %d\n", (*q).Entries())
	return nil
}

func (p *player) srq() (err error) {
	s := one(p, p.srqs[:])
	cfg := uverbs.SRQConfig{MaxWR: p.nextArg()}
	cfg.MaxSGE = p.nextArg()
	*s, err = p.pd.CreateSRQ(cfg)
	return err
}

func (p *player) mw() (err error) {
	i := p.nextArg()
	if p.mws[i], err = p.pd.AllocMW(uverbs.MWType(p.nextArg())); err != nil {
		return err
	}
	p.keys[i] = p.mws[i].RKey()
	return nil
}

func (p *player) ah() (err error) {
	a := one(p, p.ahs[:])
	*a, err = p.pd.CreateAH(p.loopbackAddr())
	return err
}

// loopbackAddr returns the address of the device.
func (p *player) loopbackAddr() uverbs.AHAttr {
	if p.port.LinkLayer != uverbs.LinkEthernet {
		return uverbs.AHAttr{Port: 1, DLID: p.port.LID}
	}
	return uverbs.AHAttr{Port: 1, IsGlobal: true, DGID: p.gid.GID, SGIDIndex: uint8(p.gid.Index), HopLimit: 1}
}

const (
	signalAll  = 1
	silent     = 4
	outOfOrder = 8
	noScatter  = 16
	allScatter = 32
	tso        = 64
)

const mostHeaders = 100 // of TSO

var types = []uverbs.QPType{uverbs.RC, uverbs.UC, uverbs.UD, uverbs.XRCSend, uverbs.RawPacket}

func (p *player) qp() (err error) {
	q := one(p, p.qps[:])
	cfg := uverbs.QPConfig{Type: *one(p, types)}
	p.kinds[q] = cfg.Type
	cfg.SendCQ = *one(p, p.cqs[:])
	if i := p.nextArg(); i >= 0 {
		cfg.SRQ = p.srqs[i]
	}
	cfg.MaxSendWR = p.nextArg()
	cfg.MaxRecvWR = p.nextArg()
	cfg.MaxSendSGE = p.nextArg()
	cfg.MaxRecvSGE = p.nextArg()
	cfg.MaxInline = p.nextArg()
	flags := p.nextArg()
	cfg.SignalAll = flags&signalAll != 0
	if flags&tso != 0 {
		cfg.MaxTSOHeader = mostHeaders
	}
	options := &mlx5.QPOptions{OutOfOrder: flags&outOfOrder != 0}
	switch {
	case flags&noScatter != 0:
		options.ScatterToCQE = mlx5.ScatterDisabled
	case flags&allScatter != 0:
		options.ScatterToCQE = mlx5.ScatterAllowed
	}
	cfg.Options = options
	if *q, err = p.pd.CreateQP(cfg); err != nil {
		return err
	}
	if flags&silent != 0 {
		return nil
	}
	c := (*q).Cap()
	fmt.Printf("qp %d %d %d %d %d\n", c.MaxSendWR, c.MaxRecvWR, c.MaxSendSGE, c.MaxRecvSGE, c.MaxInline)
	return nil
}

// A change is a state change of a queue pair.
type change struct {
	m uverbs.QPMask
	a uverbs.QPAttr
}

func walk(q *uverbs.QP, changes ...change) error {
	for _, c := range changes {
		if err := q.Modify(c.a, c.m); err != nil {
			return err
		}
	}
	return nil
}

func (p *player) connect() error {
	at, peer := one(p, p.qps[:]), *one(p, p.qps[:])
	init := change{uverbs.MaskState | uverbs.MaskPKeyIndex | uverbs.MaskPort | uverbs.MaskAccess,
		uverbs.QPAttr{State: uverbs.StateInit, Port: 1, Access: uverbs.RemoteWrite}}
	rtr := change{uverbs.MaskState | uverbs.MaskAV | uverbs.MaskPathMTU | uverbs.MaskDestQPN | uverbs.MaskRQPSN,
		uverbs.QPAttr{State: uverbs.StateRTR, PathMTU: uverbs.MTU1024, DestQPN: peer.QPN(), RQPSN: 5, AV: p.loopbackAddr()}}
	rts := change{uverbs.MaskState | uverbs.MaskSQPSN, uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: 5}}
	kind := p.kinds[at]
	if kind != uverbs.UC {
		init.a.Access |= uverbs.RemoteRead | uverbs.RemoteAtomic
		rts.m |= uverbs.MaskTimeout
		rts.a.Timeout = 18
	}
	if kind != uverbs.UC && kind != uverbs.XRCSend {
		rtr.m |= uverbs.MaskMaxDestRdAtomic | uverbs.MaskMinRNRTimer
		rtr.a.MaxDestRdAtomic, rtr.a.MinRNRTimer = 4, 12
	}
	if kind != uverbs.UC && kind != uverbs.XRCRecv {
		rts.m |= uverbs.MaskRetryCount | uverbs.MaskRNRRetryCount | uverbs.MaskMaxRdAtomic
		rts.a.RetryCount, rts.a.RNRRetryCount, rts.a.MaxRdAtomic = 7, 7, 4
	}
	return walk(*at, init, rtr, rts)
}

func (p *player) openXRCD() (err error) {
	p.xrcd, err = p.dev.OpenXRCD(nil, uverbs.XRCDCreate)
	return err
}

func (p *player) xsrq() (err error) {
	s := one(p, p.srqs[:])
	cfg := uverbs.SRQConfig{XRCD: p.xrcd, CQ: *one(p, p.cqs[:])}
	cfg.MaxWR = p.nextArg()
	cfg.MaxSGE = p.nextArg()
	*s, err = p.pd.CreateSRQ(cfg)
	return err
}

func (p *player) target() (err error) {
	q := one(p, p.qps[:])
	p.kinds[q] = uverbs.XRCRecv
	*q, err = p.xrcd.CreateQP(uverbs.QPConfig{Type: uverbs.XRCRecv})
	return err
}

func (p *player) raw() error {
	return walk(*one(p, p.qps[:]),
		change{uverbs.MaskState | uverbs.MaskPort, uverbs.QPAttr{State: uverbs.StateInit, Port: 1}},
		change{uverbs.MaskState, uverbs.QPAttr{State: uverbs.StateRTR}},
		change{uverbs.MaskState, uverbs.QPAttr{State: uverbs.StateRTS}})
}

func (p *player) domain() (err error) {
	if p.td, err = p.dev.AllocTD(); err != nil {
		return err
	}
	p.pd, err = p.base.AllocParentDomain(uverbs.ParentDomainConfig{TD: p.td})
	return err
}

func (p *player) closeDomain() error {
	err := errors.Join(p.pd.Close(), p.td.Close())
	p.pd = p.base
	return err
}

const udKey = 0x11111

func (p *player) ready() error {
	return walk(*one(p, p.qps[:]),
		change{uverbs.MaskState | uverbs.MaskPKeyIndex | uverbs.MaskPort | uverbs.MaskQKey,
			uverbs.QPAttr{State: uverbs.StateInit, Port: 1, QKey: udKey}},
		change{uverbs.MaskState, uverbs.QPAttr{State: uverbs.StateRTR}},
		change{uverbs.MaskState | uverbs.MaskSQPSN, uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: 5}})
}

func (p *player) state(s uverbs.QPState) error {
	return (*one(p, p.qps[:])).Modify(uverbs.QPAttr{State: s}, uverbs.MaskState)
}
