package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// qpCommands are the commands of queue pairs.
var qpCommands = []command{
	{0x500, "CREATE_QP", prm.CreateQPIn, prm.CreateQPOut, running, (*Device).createQP},
	{0x501, "DESTROY_QP", prm.DestroyQPIn, prm.DestroyQPOut, running, (*Device).destroyQP},
	{0x502, "RST2INIT_QP", prm.ModifyQPIn, prm.ModifyQPOut, running, modify(engine.RST2INIT)},
	{0x503, "INIT2RTR_QP", prm.ModifyQPIn, prm.ModifyQPOut, running, modify(engine.INIT2RTR)},
	{0x504, "RTR2RTS_QP", prm.ModifyQPIn, prm.ModifyQPOut, running, modify(engine.RTR2RTS)},
	{0x505, "RTS2RTS_QP", prm.ModifyQPIn, prm.ModifyQPOut, running, modify(engine.RTS2RTS)},
	{0x506, "SQERR2RTS_QP", prm.ModifyQPIn, prm.ModifyQPOut, running, modify(engine.SQERR2RTS)},
	{0x507, "2ERR_QP", prm.MoveQPIn, prm.MoveQPOut, running, move(engine.ToErr)},
	{0x50a, "2RST_QP", prm.MoveQPIn, prm.MoveQPOut, running, move(engine.ToReset)},
	{0x50b, "QUERY_QP", prm.QueryQPIn, prm.QueryQPOut, running, (*Device).queryQP},
	{0x50c, "SQD_RTS_QP", prm.ModifyQPIn, prm.ModifyQPOut, running, modify(engine.SQD2RTS)},
	{0x50e, "INIT2INIT_QP", prm.ModifyQPIn, prm.ModifyQPOut, running, modify(engine.INIT2INIT)},
	{0x806, "ATTACH_TO_MCG", prm.AttachToMCGIn, prm.AttachToMCGOut, running, (*Device).attachMulticast},
	{0x807, "DETACH_FROM_MCG", prm.DetachFromMCGIn, prm.DetachFromMCGOut, running, (*Device).detachMulticast},
}

// Codes of a queue pair's context.
const (
	strideBase = 4 // log_rq_stride: in units of 16 bytes
	sqShift    = 6 // log_sq_size: in blocks of 64 bytes
	mtuBase    = 7 // mtu: 1 means 256 bytes

	scatter32        = 1 // cs_res
	scatter64        = 2
	scatterRequest32 = 0x11 // cs_req
	scatterRequest64 = 0x22
)

// migrations maps the codes of pm_state.
var migrations = map[uint64]transport.MigrationState{0: transport.Armed, 1: transport.Rearm, 3: transport.Migrated}

// Where a queue pair's rings are.
var qpPlace = ringPlace{
	valid: prm.CreateQPInWQUMemValid, id: prm.CreateQPInWQUMemID, offset: prm.CreateQPInWQUMemOffset,
	list:        prm.CreateQPInPAS,
	logPageSize: prm.QPCLogPageSize.Within(prm.CreateQPInQPC), pageOffset: prm.QPCPageOffset.Within(prm.CreateQPInQPC),
}

func (d *Device) createQP(in, out []byte) error {
	c := prm.CreateQPInQPC.Bytes(in)
	a := d.decodeQP(c)
	n := uint64(0)
	if a.Source == engine.FromRQ {
		n += 1 << (a.LogRQSize + a.LogRQStride)
	}
	if !a.NoSQ {
		n += 1 << (a.LogSQSize + sqShift)
	}
	if a.Service == engine.ServiceRaw {
		return refuse(statusBadParam, reasonParam)
	}
	if err := d.checkDCI(&a); err != nil {
		return err
	}
	if !a.NoSQ || a.Source == engine.FromRQ {
		if err := d.checkUAR(a.UAR); err != nil {
			return err
		}
	}
	var err error
	if a.Buffer, err = d.ring(in, qpPlace, n); err != nil {
		return err
	}
	a.Record, err = d.record(in, prm.QPCDBRAddr.Within(prm.CreateQPInQPC), prm.QPCDBRUMemValid.Within(prm.CreateQPInQPC),
		prm.QPCDBRUMemID.Within(prm.CreateQPInQPC))
	if err != nil {
		return err
	}
	ece := get32(prm.CreateQPInECE, in)
	if err := d.checkECE(ece); err != nil {
		return err
	}
	qp, err := d.hca.CreateQP(a)
	if err != nil {
		return err
	}
	if ece != 0 {
		prm.CreateQPOutECE.Set(out, uint64(d.config.ECE))
	}
	prm.CreateQPOutQPN.Set(out, uint64(qp.Number))
	return nil
}

// checkECE refuses options of enhanced connection establishment if the device
// does not support them.
func (d *Device) checkECE(options uint32) error {
	if options != 0 && d.caps.general(prm.HCACapECESupport) == 0 {
		return refuse(statusBadParam, reasonCapability)
	}
	return nil
}

// checkDCI checks what is particular to initiators of dynamic connections.
func (d *Device) checkDCI(a *engine.QPAttr) error {
	if a.Service != engine.ServiceDCI {
		return nil
	}
	if d.caps.general(prm.HCACapDCT) == 0 || uint64(a.LogStreams) > d.caps.general(prm.HCACapLogMaxDCIStreamChannels) ||
		uint64(a.LogErrored) > d.caps.general(prm.HCACapLogMaxDCIErroredStreams) {
		return refuse(statusBadParam, reasonCapability)
	}
	return nil
}

// decodeQP decodes a queue pair's context.
func (d *Device) decodeQP(c []byte) engine.QPAttr {
	a := engine.QPAttr{
		Service:       engine.Service(prm.QPCST.Get(c)),
		PD:            get32(prm.QPCPD, c),
		UAR:           get32(prm.QPCUARPage, c),
		UserIndex:     get32(prm.QPCUserIndex, c),
		SendCQ:        get32(prm.QPCCQNSnd, c),
		RecvCQ:        get32(prm.QPCCQNRcv, c),
		XRCD:          get32(prm.QPCXRCD, c),
		Source:        engine.Source(prm.QPCRQType.Get(c)),
		SRQ:           get32(prm.QPCSRQNRMPNXRQN, c),
		NoSQ:          prm.QPCNoSQ.Is(c),
		LogSQSize:     uint8(prm.QPCLogSQSize.Get(c)),
		LogRQSize:     uint8(prm.QPCLogRQSize.Get(c)),
		LogRQStride:   uint8(prm.QPCLogRQStride.Get(c)) + strideBase,
		Record:        prm.QPCDBRAddr.Get(c),
		ReservedLKey:  prm.QPCRLKY.Is(c),
		SourceQPN:     get32(prm.QPCDethSqpn, c),
		BlockLoopback: prm.QPCBlockLBMC.Is(c),
		LogStreams:    uint8(prm.QPCLogNumDCIStreamChannels.Get(c)),
		LogErrored:    uint8(prm.QPCLogNumDCIErroredStreams.Get(c)),

		MTU:          1 << (prm.QPCMTU.Get(c) + mtuBase),
		RemoteQPN:    get32(prm.QPCRemoteQPN, c),
		Primary:      d.decodePath(prm.QPCPrimary.Bytes(c)),
		Alternate:    d.decodePath(prm.QPCSecondary.Bytes(c)),
		Migration:    migrations[prm.QPCPMState.Get(c)],
		SendPSN:      get32(prm.QPCNextSendPSN, c),
		RecvPSN:      get32(prm.QPCNextRcvPSN, c),
		AckTimeout:   uint8(prm.ADSAckTimeout.Get(prm.QPCPrimary.Bytes(c))),
		RetryCount:   uint8(prm.QPCRetryCount.Get(c)),
		RNRRetry:     uint8(prm.QPCRNRRetry.Get(c)),
		MinRNRTimer:  uint8(prm.QPCMinRNRNak.Get(c)),
		MaxInitiate:  1 << prm.QPCLogSRAMax.Get(c),
		MaxRespond:   1 << prm.QPCLogRRAMax.Get(c),
		QKey:         get32(prm.QPCQKey, c),
		RemoteRead:   prm.QPCRRE.Is(c),
		RemoteWrite:  prm.QPCRWE.Is(c),
		RemoteAtomic: prm.QPCRAE.Is(c),
	}
	switch prm.QPCCSRes.Get(c) {
	case scatter32:
		a.ScatterResponse = 32
	case scatter64:
		a.ScatterResponse = 64
	}
	switch prm.QPCCSReq.Get(c) {
	case scatterRequest32:
		a.ScatterRequest = 32
	case scatterRequest64:
		a.ScatterRequest = 64
	}
	return a
}

// decodePath decodes an address path.
func (d *Device) decodePath(p []byte) transport.Path {
	path := transport.Path{
		PathBits:     uint8(prm.ADSMLID.Get(p)),
		DLID:         uint16(prm.ADSRLID.Get(p)),
		GRH:          prm.ADSGRH.Is(p) || d.config.LinkLayer == Ethernet,
		SGIDIndex:    uint8(prm.ADSSrcAddrIndex.Get(p)),
		DGID:         [16]byte(prm.ADSRGID.Bytes(p)),
		FlowLabel:    get32(prm.ADSFlowLabel, p),
		HopLimit:     uint8(prm.ADSHopLimit.Get(p)),
		TrafficClass: uint8(prm.ADSTclass.Get(p)),
		SL:           uint8(prm.ADSSL.Get(p)),
		DMAC:         [6]byte(prm.ADSRMAC.Bytes(p)),
		UDPSport:     uint16(prm.ADSUDPSport.Get(p)),
		PKeyIndex:    uint16(prm.ADSPKeyIndex.Get(p)),
	}
	if d.config.LinkLayer == Ethernet {
		path.PathBits, path.SL = 0, uint8(prm.ADSEthPrio.Get(p))
	}
	return path
}

// encodePath encodes an address path.
func (d *Device) encodePath(p []byte, path *transport.Path, ackTimeout uint8) {
	prm.ADSMLID.Set(p, uint64(path.PathBits))
	prm.ADSRLID.Set(p, uint64(path.DLID))
	prm.ADSGRH.SetBool(p, path.GRH)
	prm.ADSSrcAddrIndex.Set(p, uint64(path.SGIDIndex))
	copy(prm.ADSRGID.Bytes(p), path.DGID[:])
	prm.ADSFlowLabel.Set(p, uint64(path.FlowLabel))
	prm.ADSHopLimit.Set(p, uint64(path.HopLimit))
	prm.ADSTclass.Set(p, uint64(path.TrafficClass))
	prm.ADSPKeyIndex.Set(p, uint64(path.PKeyIndex))
	prm.ADSAckTimeout.Set(p, uint64(ackTimeout))
	prm.ADSVHCAPortNum.Set(p, 1)
	if d.config.LinkLayer == Ethernet {
		prm.ADSEthPrio.Set(p, uint64(path.SL))
		prm.ADSUDPSport.Set(p, uint64(path.UDPSport))
		copy(prm.ADSRMAC.Bytes(p), path.DMAC[:])
		return
	}
	prm.ADSSL.Set(p, uint64(path.SL))
}

// modify returns the function for a transition with a context.
func modify(t engine.Transition) func(d *Device, in, out []byte) error {
	return func(d *Device, in, out []byte) error {
		if prm.ModifyQPInQPCExt.Is(in) {
			return d.modifyExtension(t, in)
		}
		a := d.decodeQP(prm.ModifyQPInQPC.Bytes(in))
		mask := engine.Param(prm.ModifyQPInOptParamMask.Get(in) & (1<<28 - 1))
		if t == engine.RTS2RTS {
			more, err := d.secondMask(in)
			if err != nil {
				return err
			}
			mask |= more
		}
		if t == engine.INIT2RTR {
			if err := d.decodeOrder(in, &a); err != nil {
				return err
			}
		}
		if err := d.decodeLAGPort(t, mask, in, &a); err != nil {
			return err
		}
		ece := get32(prm.ModifyQPInECE, in)
		if err := d.checkECE(ece); err != nil {
			return err
		}
		if a.ECE = ece & d.config.ECE; ece != 0 {
			mask |= engine.ParamECE
		}
		if err := d.hca.ModifyQP(get32(prm.ModifyQPInQPN, in), t, mask, a); err != nil {
			return err
		}
		prm.ModifyQPOutECE.Set(out, uint64(a.ECE))
		return nil
	}
}

// secondMask decodes the second mask of optional parameters of RTS2RTS_QP.
func (d *Device) secondMask(in []byte) (engine.Param, error) {
	mask := prm.ModifyQPInOptMask9532.Get(in)
	if mask&^(uint64(engine.ParamUDPSport)>>32) != 0 || mask != 0 && d.caps.general(prm.HCACapRTS2RTSQPUDPSport) == 0 {
		return 0, refuse(statusBadParam, reasonCapability)
	}
	return engine.Param(mask) << 32, nil
}

// resetStreamParam is the parameter of the context's extension that resets a stream of a DCI.
const resetStreamParam = 1 << 0

// modifyExtension changes a parameter of the context's extension.
func (d *Device) modifyExtension(t engine.Transition, in []byte) error {
	if d.caps.general(prm.HCACapQPCExtension) == 0 {
		return refuse(statusBadParam, reasonCapability)
	}
	e := prm.ModifyQPInQPCDataExt.Rest(in)
	if len(e) < prm.QPCExt.Size {
		return refuse(statusBadInputLength, reasonLength)
	}
	if t != engine.RTS2RTS || prm.ModifyQPInOptMask9532.Get(in) != resetStreamParam ||
		prm.ModifyQPInOptParamMask.Is(in) {
		return refuse(statusBadParam, reasonParam)
	}
	return d.hca.ResetStream(get32(prm.ModifyQPInQPN, in), uint16(prm.QPCExtDCIStreamChannelID.Get(e)))
}

// move returns the function for a transition without a context.
func move(t engine.Transition) func(d *Device, in, out []byte) error {
	return func(d *Device, in, out []byte) error {
		return d.hca.ModifyQP(get32(prm.MoveQPInQPN, in), t, 0, engine.QPAttr{})
	}
}

func (d *Device) destroyQP(in, out []byte) error {
	return d.hca.DestroyQP(get32(prm.DestroyQPInQPN, in))
}

func (d *Device) attachMulticast(in, out []byte) error {
	return d.hca.AttachMulticast(get32(prm.AttachToMCGInQPN, in), [16]byte(prm.AttachToMCGInMulticastGID.Bytes(in)))
}

func (d *Device) detachMulticast(in, out []byte) error {
	return d.hca.DetachMulticast(get32(prm.DetachFromMCGInQPN, in), [16]byte(prm.DetachFromMCGInMulticastGID.Bytes(in)))
}
