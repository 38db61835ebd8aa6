package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// ethCommands are the commands of raw Ethernet queues.
var ethCommands = []command{
	{0x760, "QUERY_ROCE_ADDRESS", prm.QueryRoCEAddressIn, prm.QueryRoCEAddressOut, inEth, (*Device).queryRoCEAddress},
	{0x761, "SET_ROCE_ADDRESS", prm.SetRoCEAddressIn, prm.SetRoCEAddressOut, inEth, (*Device).setRoCEAddress},
	{0x900, "CREATE_TIR", prm.CreateTIRIn, prm.CreateTIROut, inEth, (*Device).createTIR},
	{0x901, "MODIFY_TIR", prm.ModifyTIRIn, prm.ModifyTIROut, inEth, (*Device).modifyTIR},
	{0x902, "DESTROY_TIR", prm.DestroyTIRIn, prm.DestroyTIROut, inEth, (*Device).destroyTIR},
	{0x904, "CREATE_SQ", prm.CreateSQIn, prm.CreateSQOut, inEth, (*Device).createSQ},
	{0x905, "MODIFY_SQ", prm.ModifySQIn, prm.ModifySQOut, inEth, (*Device).modifySQ},
	{0x906, "DESTROY_SQ", prm.DestroySQIn, prm.DestroySQOut, inEth, (*Device).destroySQ},
	{0x907, "QUERY_SQ", prm.QuerySQIn, prm.QuerySQOut, inEth, (*Device).querySQ},
	{0x908, "CREATE_RQ", prm.CreateRQIn, prm.CreateRQOut, inEth, (*Device).createRQ},
	{0x909, "MODIFY_RQ", prm.ModifyRQIn, prm.ModifyRQOut, inEth, (*Device).modifyRQ},
	{0x90a, "DESTROY_RQ", prm.DestroyRQIn, prm.DestroyRQOut, inEth, (*Device).destroyRQ},
	{0x90b, "QUERY_RQ", prm.QueryRQIn, prm.QueryRQOut, inEth, (*Device).queryRQ},
	{0x912, "CREATE_TIS", prm.CreateTISIn, prm.CreateTISOut, inEth, (*Device).createTIS},
	{0x913, "MODIFY_TIS", prm.ModifyTISIn, prm.ModifyTISOut, inEth, (*Device).modifyTIS},
	{0x914, "DESTROY_TIS", prm.DestroyTISIn, prm.DestroyTISOut, inEth, (*Device).destroyTIS},
	{0x915, "QUERY_TIS", prm.QueryTISIn, prm.QueryTISOut, inEth, (*Device).queryTIS},
	{0x916, "CREATE_RQT", prm.CreateRQTIn, prm.CreateRQTOut, inEth, (*Device).createRQT},
	{0x917, "MODIFY_RQT", prm.ModifyRQTIn, prm.ModifyRQTOut, inEth, (*Device).modifyRQT},
	{0x918, "DESTROY_RQT", prm.DestroyRQTIn, prm.DestroyRQTOut, inEth, (*Device).destroyRQT},
}

const (
	wqCyclic = 1 // wq_type

	selectRate       = 1 << 0 // modify_bitmask of MODIFY_SQ
	selectVSD        = 1 << 1 // modify_bitmask of MODIFY_RQ
	selectScatterFCS = 1 << 2
)

// wqBuffer decodes the ring of a work queue whose context is at wq.
func (d *Device) wqBuffer(in []byte, wq prm.Field) (engine.Buffer, uint8, uint8, error) {
	c := wq.Bytes(in)
	size, stride := uint8(prm.WQLogWQSize.Get(c)), uint8(prm.WQLogWQStride.Get(c))
	switch {
	case prm.WQWQType.Get(c) != wqCyclic || prm.WQWQSignature.Is(c):
		return engine.Buffer{}, 0, 0, refuse(statusBadParam, reasonCapability)
	case uint64(size) > d.caps.general(prm.HCACapLogMaxWQSize):
		return engine.Buffer{}, 0, 0, refuse(statusLimit, reasonSize)
	}
	b, err := d.ring(in, wqPlace(wq), 1<<(size+stride))
	return b, size, stride, err
}

// wqPlace returns where the ring of a work queue is whose context is at wq.
func wqPlace(wq prm.Field) ringPlace {
	return ringPlace{
		valid: prm.WQWQUMemValid.Within(wq), id: prm.WQWQUMemID.Within(wq), offset: prm.WQWQUMemOffset.Within(wq),
		list: prm.WQPAS.Within(wq), logPageSize: prm.WQLogWQPGSize.Within(wq), pageOffset: prm.WQPageOffset.Within(wq),
	}
}

// wqRecord decodes the address of the doorbell record of a work queue whose context is at wq.
func (d *Device) wqRecord(in []byte, wq prm.Field) (uint64, error) {
	return d.record(in, prm.WQDBRAddr.Within(wq), prm.WQDBRUMemValid.Within(wq), prm.WQDBRUMemID.Within(wq))
}

func (d *Device) createSQ(in, out []byte) error {
	wq := prm.SQCWQ.Within(prm.CreateSQInSQC)
	b, size, stride, err := d.wqBuffer(in, wq)
	if err != nil {
		return err
	}
	record, err := d.wqRecord(in, wq)
	if err != nil {
		return err
	}
	c := prm.CreateSQInSQC.Bytes(in)
	a := engine.SQAttr{
		CQ:           get32(prm.SQCCQN, c),
		UserIndex:    get32(prm.SQCUserIndex, c),
		TIS:          get32(prm.SQCTISNum0, c),
		PD:           get32(prm.WQPD, wq.Bytes(in)),
		UAR:          get32(prm.WQUARPage, wq.Bytes(in)),
		Record:       record,
		LogSize:      size,
		Buffer:       b,
		ReservedLKey: prm.SQCRLKY.Is(c),
	}
	if a.RateIndex, err = d.rateIndex(userOf(in), c); err != nil {
		return err
	}
	switch {
	case stride != sqShift:
		return refuse(statusBadParam, reasonSize)
	case prm.SQCTISLstSize.Get(c) > 1:
		return refuse(statusBadParam, reasonCapability)
	}
	if err := d.checkUAR(a.UAR); err != nil {
		return err
	}
	q, err := d.hca.CreateSQ(a)
	if err != nil {
		return err
	}
	prm.CreateSQOutSQN.Set(out, uint64(q.Number))
	return nil
}

func (d *Device) modifySQ(in, out []byte) error {
	number, c := get32(prm.ModifySQInSQN, in), prm.ModifySQInSQC.Bytes(in)
	from, to := engine.QueueState(prm.ModifySQInSQState.Get(in)), engine.QueueState(prm.SQCState.Get(c))
	if prm.ModifySQInModifyBitmask.Get(in)&selectRate == 0 {
		return d.hca.ModifySQ(number, from, to)
	}
	index, err := d.rateIndex(userOf(in), c)
	if err != nil {
		return err
	}
	if err := d.hca.ModifySQ(number, from, to); err != nil {
		return err
	}
	return d.hca.SetSQRate(number, index)
}

func (d *Device) destroySQ(in, out []byte) error {
	return d.hca.DestroySQ(get32(prm.DestroySQInSQN, in))
}

func (d *Device) querySQ(in, out []byte) error {
	q, err := d.hca.SQ(get32(prm.QuerySQInSQN, in))
	if err != nil {
		return err
	}
	c := prm.QuerySQOutSQC.Bytes(out)
	prm.SQCState.Set(c, uint64(q.State()))
	prm.SQCCQN.Set(c, uint64(q.CQ))
	prm.SQCUserIndex.Set(c, uint64(q.UserIndex))
	prm.SQCTISNum0.Set(c, uint64(q.TIS))
	prm.SQCTISLstSize.Set(c, 1)
	prm.SQCPacketPacingRateLimitIndex.Set(c, uint64(q.RateIndex))
	showWQ(prm.SQCWQ.Bytes(c), q.PD, q.LogSize, sqShift, &q.Buffer, q.Record)
	return nil
}

// showWQ encodes the context of a work queue.
func showWQ(c []byte, pd uint32, size, stride uint8, b *engine.Buffer, record uint64) {
	prm.WQWQType.Set(c, wqCyclic)
	prm.WQPD.Set(c, uint64(pd))
	prm.WQLogWQSize.Set(c, uint64(size))
	prm.WQLogWQStride.Set(c, uint64(stride))
	prm.WQLogWQPGSize.Set(c, uint64(b.PageShift-12))
	prm.WQPageOffset.Set(c, b.Offset>>(b.PageShift-6))
	prm.WQDBRAddr.Set(c, record)
}

func (d *Device) createRQ(in, out []byte) error {
	wq := prm.RQCWQ.Within(prm.CreateRQInRQC)
	b, size, stride, err := d.wqBuffer(in, wq)
	if err != nil {
		return err
	}
	record, err := d.wqRecord(in, wq)
	if err != nil {
		return err
	}
	c := prm.CreateRQInRQC.Bytes(in)
	if prm.RQCMemRQType.Is(c) || prm.RQCScatterFcs.Is(c) {
		return refuse(statusBadParam, reasonCapability)
	}
	q, err := d.hca.CreateRQ(engine.RQAttr{
		CQ:           get32(prm.RQCCQN, c),
		UserIndex:    get32(prm.RQCUserIndex, c),
		PD:           get32(prm.WQPD, wq.Bytes(in)),
		Record:       record,
		LogSize:      size,
		LogStride:    stride,
		Buffer:       b,
		StripVLAN:    !prm.RQCVSD.Is(c),
		ReservedLKey: prm.RQCRLKY.Is(c),
	})
	if err != nil {
		return err
	}
	prm.CreateRQOutRQN.Set(out, uint64(q.Number))
	return nil
}

func (d *Device) modifyRQ(in, out []byte) error {
	number, c := get32(prm.ModifyRQInRQN, in), prm.ModifyRQInRQC.Bytes(in)
	selected := prm.ModifyRQInModifyBitmask.Get(in)
	if selected&selectScatterFCS != 0 && prm.RQCScatterFcs.Is(c) {
		return refuse(statusBadParam, reasonCapability)
	}
	err := d.hca.ModifyRQ(number, engine.QueueState(prm.ModifyRQInRQState.Get(in)), engine.QueueState(prm.RQCState.Get(c)))
	if err != nil || selected&selectVSD == 0 {
		return err
	}
	q, err := d.hca.RQ(number)
	if err == nil {
		q.StripVLAN = !prm.RQCVSD.Is(c)
	}
	return err
}

func (d *Device) destroyRQ(in, out []byte) error {
	return d.hca.DestroyRQ(get32(prm.DestroyRQInRQN, in))
}

func (d *Device) queryRQ(in, out []byte) error {
	q, err := d.hca.RQ(get32(prm.QueryRQInRQN, in))
	if err != nil {
		return err
	}
	c := prm.QueryRQOutRQC.Bytes(out)
	prm.RQCState.Set(c, uint64(q.State()))
	prm.RQCCQN.Set(c, uint64(q.CQ))
	prm.RQCUserIndex.Set(c, uint64(q.UserIndex))
	prm.RQCVSD.SetBool(c, !q.StripVLAN)
	showWQ(prm.RQCWQ.Bytes(c), q.PD, q.LogSize, q.LogStride, &q.Buffer, q.Record)
	return nil
}
