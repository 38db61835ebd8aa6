package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// srqCommands are the commands of shared receive queues. Basic SRQs are receive
// memory pools (RMP). Without interface versions there is only one kind, for
// basic and XRC use; its context is that of XRC SRQs, without a user index.
var srqCommands = []command{
	{0x700, "CREATE_SRQ", prm.CreateSRQIn, prm.CreateSRQOut, atFirst, (*Device).createSRQ},
	{0x701, "DESTROY_SRQ", prm.DestroySRQIn, prm.DestroySRQOut, atFirst, (*Device).destroyFirstSRQ},
	{0x702, "QUERY_SRQ", prm.QuerySRQIn, prm.QuerySRQOut, atFirst, (*Device).querySRQ},
	{0x703, "ARM_RQ", prm.ArmRQIn, prm.ArmRQOut, atFirst, (*Device).armRQ},
	{0x705, "CREATE_XRC_SRQ", prm.CreateXRCSRQIn, prm.CreateXRCSRQOut, running, (*Device).createXRCSRQ},
	{0x706, "DESTROY_XRC_SRQ", prm.DestroyXRCSRQIn, prm.DestroyXRCSRQOut, running, (*Device).destroyXRCSRQ},
	{0x707, "QUERY_XRC_SRQ", prm.QueryXRCSRQIn, prm.QueryXRCSRQOut, running, (*Device).queryXRCSRQ},
	{0x708, "ARM_XRC_SRQ", prm.ArmXRCSRQIn, prm.ArmXRCSRQOut, running, (*Device).armXRCSRQ},
	{0x90c, "CREATE_RMP", prm.CreateRMPIn, prm.CreateRMPOut, running, (*Device).createRMP},
	{0x90d, "MODIFY_RMP", prm.ModifyRMPIn, prm.ModifyRMPOut, running, (*Device).modifyRMP},
	{0x90e, "DESTROY_RMP", prm.DestroyRMPIn, prm.DestroyRMPOut, running, (*Device).destroyRMP},
	{0x90f, "QUERY_RMP", prm.QueryRMPIn, prm.QueryRMPOut, running, (*Device).queryRMP},
}

const (
	wqLinkedList = 0 // wq_type
	rmpReady     = 1 // state of an RMP
	armForLimit  = 1 // op_mod of ARM_XRC_SRQ and ARM_RQ
)

// sharedQueue returns an SRQ of one of the two kinds.
func (d *Device) sharedQueue(number uint32, xrc bool) (*engine.SRQ, error) {
	s, err := d.hca.SRQ(number)
	if err == nil && s.XRC != xrc {
		return nil, refuse(statusBadResource, reasonUnknown)
	}
	return s, err
}

func (d *Device) createRMP(in, out []byte) error {
	c := prm.RMPCWQ.Bytes(prm.CreateRMPInRMPC.Bytes(in))
	a := engine.SRQAttr{
		PD:        get32(prm.WQPD, c),
		LogSize:   uint8(prm.WQLogWQSize.Get(c)),
		LogStride: uint8(prm.WQLogWQStride.Get(c)),
		Limit:     uint16(prm.WQLWM.Get(c)),
	}
	switch {
	case prm.WQWQType.Get(c) != wqLinkedList || prm.WQWQSignature.Is(c):
		return refuse(statusBadParam, reasonCapability)
	case uint64(a.LogSize) > d.caps.general(prm.HCACapLogMaxSRQSize):
		return refuse(statusLimit, reasonSize)
	}
	var err error
	wq := prm.RMPCWQ.Within(prm.CreateRMPInRMPC)
	if a.Buffer, err = d.ring(in, wqPlace(wq), 1<<(a.LogSize+a.LogStride)); err != nil {
		return err
	}
	if a.Record, err = d.wqRecord(in, wq); err != nil {
		return err
	}
	s, err := d.hca.CreateSRQ(a)
	if err != nil {
		return err
	}
	prm.CreateRMPOutRMPN.Set(out, uint64(s.Number))
	return nil
}

func (d *Device) modifyRMP(in, out []byte) error {
	s, err := d.sharedQueue(get32(prm.ModifyRMPInRMPN, in), false)
	if err != nil {
		return err
	}
	if !prm.RMPBitmaskLWM.Is(prm.ModifyRMPInRMPBitmask.Bytes(in)) {
		return nil
	}
	return d.hca.ArmSRQ(s.Number, uint16(prm.WQLWM.Get(prm.RMPCWQ.Bytes(prm.ModifyRMPInRMPC.Bytes(in)))))
}

func (d *Device) queryRMP(in, out []byte) error {
	s, err := d.sharedQueue(get32(prm.QueryRMPInRMPN, in), false)
	if err != nil {
		return err
	}
	c := prm.QueryRMPOutRMPC.Bytes(out)
	prm.RMPCState.Set(c, rmpReady)
	c = prm.RMPCWQ.Bytes(c)
	prm.WQPD.Set(c, uint64(s.PD))
	prm.WQLogWQSize.Set(c, uint64(s.LogSize))
	prm.WQLogWQStride.Set(c, uint64(s.LogStride))
	prm.WQLogWQPGSize.Set(c, uint64(s.Buffer.PageShift-12))
	prm.WQPageOffset.Set(c, s.Buffer.Offset>>(s.Buffer.PageShift-6))
	prm.WQDBRAddr.Set(c, s.Record)
	prm.WQLWM.Set(c, uint64(s.Limit))
	return nil
}

func (d *Device) destroyRMP(in, out []byte) error {
	return d.destroySRQ(get32(prm.DestroyRMPInRMPN, in), false)
}

func (d *Device) destroyXRCSRQ(in, out []byte) error {
	return d.destroySRQ(get32(prm.DestroyXRCSRQInXRCSRQN, in), true)
}

func (d *Device) destroySRQ(number uint32, xrc bool) error {
	if _, err := d.sharedQueue(number, xrc); err != nil {
		return err
	}
	return d.hca.DestroySRQ(number)
}

func (d *Device) destroyFirstSRQ(in, out []byte) error {
	return d.destroySRQ(get32(prm.DestroySRQInSRQN, in), true)
}

func (d *Device) createXRCSRQ(in, out []byte) error {
	n, err := d.newXRCSRQ(in, prm.CreateXRCSRQInXRCSRQC, prm.CreateXRCSRQInPAS)
	prm.CreateXRCSRQOutXRCSRQN.Set(out, uint64(n))
	return err
}

func (d *Device) createSRQ(in, out []byte) error {
	n, err := d.newXRCSRQ(in, prm.CreateSRQInSRQC, prm.CreateSRQInPAS)
	prm.CreateSRQOutSRQN.Set(out, uint64(n))
	return err
}

// newXRCSRQ creates an SRQ from a context and a list of pages.
func (d *Device) newXRCSRQ(in []byte, context, list prm.Field) (number uint32, err error) {
	c := context.Bytes(in)
	a := engine.SRQAttr{
		XRC:          true,
		PD:           get32(prm.XRCSRQCPD, c),
		XRCD:         get32(prm.XRCSRQCXRCD, c),
		CQ:           get32(prm.XRCSRQCCQN, c),
		UserIndex:    get32(prm.XRCSRQCUserIndex, c),
		LogSize:      uint8(prm.XRCSRQCLogXRCSRQSize.Get(c)),
		LogStride:    uint8(prm.XRCSRQCLogRQStride.Get(c)) + strideBase,
		Record:       prm.XRCSRQCDBRAddr.Get(c),
		Limit:        uint16(prm.XRCSRQCLWM.Get(c)),
		ReservedLKey: prm.XRCSRQCRLKY.Is(c),
	}
	if prm.XRCSRQCWQSignature.Is(c) || prm.XRCSRQCDBRUMemValid.Is(c) || prm.CreateXRCSRQInXRCSRQUMemValid.Is(in) {
		return 0, refuse(statusBadParam, reasonCapability)
	}
	a.Buffer, err = buffer(in, list, prm.XRCSRQCLogPageSize.Get(c), prm.XRCSRQCPageOffset.Get(c),
		1<<(a.LogSize+a.LogStride))
	if err != nil {
		return 0, err
	}
	s, err := d.hca.CreateSRQ(a)
	if err != nil {
		return 0, err
	}
	return s.Number, nil
}

func (d *Device) queryXRCSRQ(in, out []byte) error {
	return d.fillXRCSRQ(get32(prm.QueryXRCSRQInXRCSRQN, in), prm.QueryXRCSRQOutXRCSRQC.Bytes(out))
}

func (d *Device) querySRQ(in, out []byte) error {
	return d.fillXRCSRQ(get32(prm.QuerySRQInSRQN, in), prm.QuerySRQOutSRQC.Bytes(out))
}

// fillXRCSRQ encodes the context of an SRQ.
func (d *Device) fillXRCSRQ(number uint32, c []byte) error {
	s, err := d.sharedQueue(number, true)
	if err != nil {
		return err
	}
	prm.XRCSRQCPD.Set(c, uint64(s.PD))
	prm.XRCSRQCXRCD.Set(c, uint64(s.XRCD))
	prm.XRCSRQCCQN.Set(c, uint64(s.CQ))
	prm.XRCSRQCUserIndex.Set(c, uint64(s.UserIndex))
	prm.XRCSRQCLogXRCSRQSize.Set(c, uint64(s.LogSize))
	prm.XRCSRQCLogRQStride.Set(c, uint64(s.LogStride-strideBase))
	prm.XRCSRQCLogPageSize.Set(c, uint64(s.Buffer.PageShift-12))
	prm.XRCSRQCPageOffset.Set(c, s.Buffer.Offset>>(s.Buffer.PageShift-6))
	prm.XRCSRQCDBRAddr.Set(c, s.Record)
	prm.XRCSRQCLWM.Set(c, uint64(s.Limit))
	return nil
}

func (d *Device) armXRCSRQ(in, out []byte) error {
	return d.arm(in, prm.ArmXRCSRQInXRCSRQN, prm.ArmXRCSRQInLWM)
}

func (d *Device) armRQ(in, out []byte) error { return d.arm(in, prm.ArmRQInSRQNumber, prm.ArmRQInLWM) }

func (d *Device) arm(in []byte, number, limit prm.Field) error {
	if prm.CmdOpMod.Get(in) != armForLimit {
		return refuse(statusBadParam, reasonOpMod)
	}
	s, err := d.sharedQueue(get32(number, in), true)
	if err != nil {
		return err
	}
	return d.hca.ArmSRQ(s.Number, uint16(limit.Get(in)))
}
