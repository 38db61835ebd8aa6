package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

const (
	cqe128   = 1 // cqe_sz: 128 bytes, and 2: 128 bytes with one half as padding
	cqeShift = 6

	cqOverflow = 9 // status

	cqSolicitedArmed = 6 // state
	cqArmed          = 9
	cqFired          = 10

	modifyCQ = 0 // op_mod of MODIFY_CQ
	resizeCQ = 1

	selectPeriod  = 1 << 0 // fields of MODIFY_CQ
	selectCount   = 1 << 1
	selectOverrun = 1 << 2
)

// Where a completion queue's ring is: CREATE_CQ and MODIFY_CQ have the same fields there.
var cqPlace = ringPlace{
	valid: prm.CreateCQInCQUMemValid, id: prm.CreateCQInCQUMemID, offset: prm.CreateCQInCQUMemOffset,
	list:        prm.CreateCQInPAS,
	logPageSize: prm.CQCLogPageSize.Within(prm.CreateCQInCQC), pageOffset: prm.CQCPageOffset.Within(prm.CreateCQInCQC),
}

// cqBuffer decodes the location of a completion queue's ring.
func (d *Device) cqBuffer(in, c []byte) (wide bool, logSize uint8, b engine.Buffer, err error) {
	wide, logSize = prm.CQCCQESize.Is(c), uint8(prm.CQCLogCQSize.Get(c))
	if uint64(logSize) > d.caps.general(prm.HCACapLogMaxCQSize) || prm.CQCCQESize.Get(c) > cqe128 {
		return wide, logSize, b, refuse(statusLimit, reasonSize)
	}
	n := uint64(1) << (logSize + cqeShift)
	if wide {
		n *= 2
	}
	b, err = d.ring(in, cqPlace, n)
	return wide, logSize, b, err
}

func (d *Device) createCQ(in, out []byte) error {
	c := prm.CreateCQInCQC.Bytes(in)
	wide, logSize, b, err := d.cqBuffer(in, c)
	if err != nil {
		return err
	}
	record, err := d.record(in, prm.CQCDBRAddr.Within(prm.CreateCQInCQC), prm.CQCDBRUMemValid.Within(prm.CreateCQInCQC),
		prm.CQCDBRUMemID.Within(prm.CreateCQInCQC))
	if err != nil {
		return err
	}
	a := engine.CQAttr{
		EQN:      get32(prm.CQCCEQN, c),
		UAR:      get32(prm.CQCUARPage, c),
		Wide:     wide,
		LogSize:  logSize,
		Buffer:   b,
		Record:   record,
		NoCheck:  prm.CQCOI.Is(c),
		MaxCount: uint16(prm.CQCCQMaxCount.Get(c)),
		Period:   uint16(prm.CQCCQPeriod.Get(c)),
	}
	if _, err := d.eventQueue(uint64(a.EQN)); err != nil {
		return err
	}
	if err := d.checkUAR(a.UAR); err != nil {
		return err
	}
	cq, err := d.hca.CreateCQ(a)
	if err != nil {
		return err
	}
	prm.CreateCQOutCQN.Set(out, uint64(cq.Number))
	return nil
}

func (d *Device) destroyCQ(in, out []byte) error {
	return d.hca.DestroyCQ(get32(prm.DestroyCQInCQN, in))
}

func (d *Device) queryCQ(in, out []byte) error {
	cq, err := d.hca.CQ(get32(prm.QueryCQInCQN, in))
	if err != nil {
		return err
	}
	c := prm.QueryCQOutCQC.Bytes(out)
	state, producer, consumer := cq.State()
	prm.CQCST.Set(c, cqFired)
	switch state {
	case engine.CQArmedSolicited:
		prm.CQCST.Set(c, cqSolicitedArmed)
	case engine.CQArmed:
		prm.CQCST.Set(c, cqArmed)
	case engine.CQFailed:
		prm.CQCStatus.Set(c, cqOverflow)
	}
	prm.CQCCQESize.SetBool(c, cq.Wide)
	prm.CQCOI.SetBool(c, cq.NoCheck)
	prm.CQCLogCQSize.Set(c, uint64(cq.LogSize))
	prm.CQCUARPage.Set(c, uint64(cq.UAR))
	prm.CQCCEQN.Set(c, uint64(cq.EQN))
	prm.CQCLogPageSize.Set(c, uint64(cq.Buffer.PageShift-12))
	prm.CQCPageOffset.Set(c, cq.Buffer.Offset>>(cq.Buffer.PageShift-6))
	prm.CQCDBRAddr.Set(c, cq.Record)
	prm.CQCCQPeriod.Set(c, uint64(cq.Period))
	prm.CQCCQMaxCount.Set(c, uint64(cq.MaxCount))
	prm.CQCProducerCounter.Set(c, uint64(producer))
	prm.CQCConsumerCounter.Set(c, uint64(consumer))
	return nil
}

// modifyCQ changes the moderation of a completion queue, or resizes it.
func (d *Device) modifyCQ(in, out []byte) error {
	cq, err := d.hca.CQ(get32(prm.ModifyCQInCQN, in))
	if err != nil {
		return err
	}
	c := prm.ModifyCQInCQC.Bytes(in)
	selected := prm.ModifyCQInFieldSelect.Get(in)
	switch prm.CmdOpMod.Get(in) {
	case modifyCQ:
		if selected&^(selectPeriod|selectCount|selectOverrun) != 0 {
			return refuse(statusBadParam, reasonCapability)
		}
		count, period := cq.MaxCount, cq.Period
		if selected&selectCount != 0 {
			count = uint16(prm.CQCCQMaxCount.Get(c))
		}
		if selected&selectPeriod != 0 {
			period = uint16(prm.CQCCQPeriod.Get(c))
		}
		if selected&selectOverrun != 0 {
			cq.NoCheck = prm.CQCOI.Is(c)
		}
		cq.Moderate(count, period)
		return nil
	case resizeCQ:
		wide, logSize, b, err := d.cqBuffer(in, c)
		if err != nil {
			return err
		}
		return cq.Resize(logSize, wide, b)
	}
	return refuse(statusBadParam, reasonOpMod)
}
