package engine

import "github.com/goverbs/goverbs/internal/sim/connectx/transport"

// A Transition is a state transition of a queue pair. Each has its own command.
type Transition uint8

const (
	RST2INIT Transition = iota
	INIT2INIT
	INIT2RTR
	RTR2RTS
	RTS2RTS
	RTS2SQD
	SQD2SQD
	SQD2RTS
	SQERR2RTS
	ToErr
	ToReset
)

// A Param is a bit of the mask of optional parameters.
type Param uint64

const (
	ParamAlternate   Param = 1 << 0
	ParamRemoteRead  Param = 1 << 1
	ParamAtomic      Param = 1 << 2
	ParamRemoteWrite Param = 1 << 3
	ParamPKeyIndex   Param = 1 << 4
	ParamQKey        Param = 1 << 5
	ParamRNRTimer    Param = 1 << 6
	ParamPrimary     Param = 1 << 7
	ParamMaxInitiate Param = 1 << 8
	ParamMaxRespond  Param = 1 << 9
	ParamMigration   Param = 1 << 10
	ParamRetryCount  Param = 1 << 12
	ParamRNRRetry    Param = 1 << 13
	ParamAckTimeout  Param = 1 << 14
	ParamLAGPort     Param = 1 << 15
	ParamSRQ         Param = 1 << 18
	ParamRecvCQ      Param = 1 << 19

	paramRights = ParamRemoteRead | ParamAtomic | ParamRemoteWrite
	// ParamECE is not a bit of the command's mask. All transitions with
	// attributes may have it.
	ParamECE Param = 1 << 28
	// Not in the mask: INIT2RTR and RTR2RTS always set these.
	paramMTU     Param = 1 << 29
	paramRecvPSN Param = 1 << 30
	paramSendPSN Param = 1 << 31

	// ParamUDPSport is in the second mask, whose bits begin at 32.
	ParamUDPSport Param = 1 << (32 + 2)
)

// whileDrained are the optional parameters of a drained send queue.
const whileDrained = ^Param(0) &^ (paramMTU | paramRecvPSN | paramSendPSN | ParamUDPSport | ParamLAGPort)

// transitions has, for each transition, the states where it may start, the
// resulting state, and the required and optional parameters.
var transitions = map[Transition]struct {
	from             []QPState
	to               QPState
	needs, may       Param
	ownState, server bool
}{
	RST2INIT:  {from: []QPState{Reset}, to: Init, needs: paramRights | ParamPKeyIndex | ParamQKey | ParamLAGPort},
	INIT2INIT: {from: []QPState{Init}, to: Init, may: paramRights | ParamPKeyIndex | ParamQKey | ParamLAGPort},
	INIT2RTR: {from: []QPState{Init}, to: RTR, needs: ParamPrimary | paramMTU | paramRecvPSN | ParamMaxRespond |
		ParamRNRTimer,
		may: ParamAlternate | paramRights | ParamPKeyIndex | ParamQKey | ParamLAGPort},
	RTR2RTS: {from: []QPState{RTR}, to: RTS, needs: paramSendPSN | ParamMaxInitiate | ParamRetryCount | ParamRNRRetry |
		ParamAckTimeout,
		may: ParamAlternate | paramRights | ParamMigration | ParamRNRTimer | ParamQKey | ParamMaxRespond},
	RTS2RTS: {from: []QPState{RTS}, to: RTS, may: paramRights | ParamRNRTimer | ParamMigration | ParamAlternate |
		ParamQKey | ParamMaxRespond | ParamUDPSport | ParamLAGPort},
	RTS2SQD:   {from: []QPState{RTS}, to: SQD},
	SQD2SQD:   {from: []QPState{SQD}, to: SQD, may: whileDrained},
	SQD2RTS:   {from: []QPState{SQD}, to: RTS, may: whileDrained},
	SQERR2RTS: {from: []QPState{SQE}, to: RTS, may: paramRights | ParamQKey | ParamRNRTimer},
	ToErr:     {from: []QPState{Reset, Init, RTR, RTS, SQE, SQD, Err}, to: Err},
	ToReset:   {from: []QPState{Reset, Init, RTR, RTS, SQE, SQD, Err}, to: Reset},
}

// ModifyQP changes the state of a queue pair, and sets the attributes that the
// transition requires, and the optional ones in the mask.
func (h *HCA) ModifyQP(number uint32, t Transition, mask Param, a QPAttr) error {
	qp, err := h.QP(number)
	if err != nil {
		return err
	}
	h.endBursts(number)
	way, ok := transitions[t]
	if !ok {
		return failf(ErrParam, "transition %d", t)
	}
	from := qp.state
	found := false
	for _, s := range way.from {
		found = found || s == from
	}
	if !found {
		return failf(ErrState, "transition %d of QP %#x in state %d", t, number, from)
	}
	set := way.needs | (way.may|ParamECE)&mask
	if err := qp.check(set, &a); err != nil {
		return err
	}
	now := qp.endpoint.Config() // a migration may have changed the paths
	qp.Primary, qp.Alternate, qp.Migration = now.Path, now.AltPath, now.Migration
	qp.set(set, &a)
	qp.DrainEvent = t == RTS2SQD && a.DrainEvent
	qp.enter(way.to)
	return nil
}

// check checks attributes.
func (qp *QP) check(set Param, a *QPAttr) error {
	if set&paramMTU != 0 && qp.connected() {
		switch a.MTU {
		case 256, 512, 1024, 2048, 4096:
		default:
			return failf(ErrParam, "a path MTU of %d", a.MTU)
		}
	}
	if set&ParamRetryCount != 0 && a.RetryCount > 7 || set&ParamRNRRetry != 0 && a.RNRRetry > 7 {
		return failf(ErrParam, "retry counts %d and %d", a.RetryCount, a.RNRRetry)
	}
	if set&ParamAckTimeout != 0 && a.AckTimeout > 31 || set&ParamRNRTimer != 0 && a.MinRNRTimer > 31 {
		return failf(ErrParam, "timers %d and %d", a.AckTimeout, a.MinRNRTimer)
	}
	if set&ParamMaxInitiate != 0 && uint(a.MaxInitiate) > 128 || set&ParamMaxRespond != 0 && uint(a.MaxRespond) > 128 {
		return failf(ErrLimit, "%d and %d READs and atomics", a.MaxInitiate, a.MaxRespond)
	}
	hasPort := qp.hca.config.LinkLayer == Ethernet && (qp.Service == ServiceRC || qp.Service == ServiceUC)
	if set&ParamUDPSport != 0 && !hasPort {
		return failf(ErrParam, "a UDP source port of service %#x", uint8(qp.Service))
	}
	if set&ParamPKeyIndex != 0 && int(a.Primary.PKeyIndex) >= qp.hca.limits.PKeys {
		return failf(ErrParam, "P_Key index %d", a.Primary.PKeyIndex)
	}
	return nil
}

func (qp *QP) connected() bool {
	switch qp.Service {
	case ServiceRC, ServiceUC, ServiceXRC, ServiceDCI, ServiceDCT:
		return true
	}
	return false
}

// set sets the attributes selected by which.
func (qp *QP) set(which Param, a *QPAttr) {
	q := &qp.QPAttr
	pkey := q.Primary.PKeyIndex
	if which&ParamPrimary != 0 {
		q.Primary = a.Primary
		q.Primary.PKeyIndex = pkey
	}
	for p, do := range map[Param]func(){
		ParamPKeyIndex:   func() { q.Primary.PKeyIndex = a.Primary.PKeyIndex },
		ParamAlternate:   func() { q.Alternate = a.Alternate },
		ParamLAGPort:     func() { q.LAGPort = a.LAGPort },
		ParamUDPSport:    func() { q.Primary.UDPSport = a.Primary.UDPSport },
		ParamRemoteRead:  func() { q.RemoteRead = a.RemoteRead },
		ParamRemoteWrite: func() { q.RemoteWrite = a.RemoteWrite },
		ParamAtomic:      func() { q.RemoteAtomic = a.RemoteAtomic },
		ParamQKey:        func() { q.QKey = a.QKey },
		ParamRNRTimer:    func() { q.MinRNRTimer = a.MinRNRTimer },
		ParamMaxInitiate: func() { q.MaxInitiate = a.MaxInitiate },
		ParamMaxRespond:  func() { q.MaxRespond = a.MaxRespond },
		ParamMigration:   func() { q.Migration = a.Migration },
		ParamRetryCount:  func() { q.RetryCount = a.RetryCount },
		ParamRNRRetry:    func() { q.RNRRetry = a.RNRRetry },
		ParamECE:         func() { q.ECE = a.ECE },
		ParamAckTimeout:  func() { q.AckTimeout = a.AckTimeout },
		paramMTU: func() {
			q.MTU, q.RemoteQPN, q.OutOfOrder, q.Ordering = a.MTU, a.RemoteQPN&0xffffff, a.OutOfOrder, a.Ordering
		},
		paramRecvPSN: func() { q.RecvPSN = a.RecvPSN & 0xffffff },
		paramSendPSN: func() { q.SendPSN = a.SendPSN & 0xffffff },
	} {
		if which&p != 0 {
			do()
		}
	}
}

// transport returns the endpoint's configuration for the attributes.
func (qp *QP) transport() transport.Config {
	c := transport.Config{
		QPN: qp.Number, SourceQPN: qp.source(), DestQPN: qp.RemoteQPN, PKey: qp.hca.port.pkey(qp.Primary.PKeyIndex),
		QKey: qp.QKey,
		MTU:  qp.MTU, Path: qp.Primary, AltPath: qp.Alternate, Migration: qp.Migration,
		SendPSN: qp.SendPSN, RecvPSN: qp.RecvPSN,
		RetryCount: qp.RetryCount, RNRRetry: qp.RNRRetry, AckTimeout: qp.AckTimeout, MinRNRTimer: qp.MinRNRTimer,
		MaxInitiate: qp.MaxInitiate, MaxRespond: qp.MaxRespond,
		OutOfOrder: qp.OutOfOrder, Reorder: qp.hca.config.Reorder,
	}
	switch qp.Service {
	case ServiceUC:
		c.Type = transport.UC
	case ServiceUD, ServiceQP0, ServiceQP1:
		c.Type = transport.UD
		c.MTU = maxMTU
		if qp.Service == ServiceQP1 {
			c.QKey = qp1Key
		}
	case ServiceUMR: // sends no packets
		c.MTU = maxMTU
	case ServiceXRC:
		c.Type = transport.XRCInitiator
		if qp.NoSQ {
			c.Type = transport.XRCTarget
		}
	case ServiceDCI:
		c.Type, c.Connect = transport.DCInitiator, qp.hca.connect
	case ServiceDCT:
		c.Type = transport.DCTarget
	}
	return c
}

// maxMTU is the maximum payload of a packet.
const maxMTU = 4096

// qp1Key is the Q_Key of management queue pairs.
const qp1Key = 0x80010000

// source returns the source QP number of the queue pair's datagrams.
func (qp *QP) source() uint32 {
	switch {
	case qp.Service == ServiceQP1:
		return 1
	case qp.SourceQPN != 0:
		return qp.SourceQPN
	}
	return qp.Number
}
