package connectx

import (
	"math/bits"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// dctCommands are the commands of targets of dynamic connections (DCTs).
var dctCommands = []command{
	{0x710, "CREATE_DCT", prm.CreateDCTIn, prm.CreateDCTOut, running, (*Device).createDCT},
	{0x711, "DESTROY_DCT", prm.DCTIn, prm.DCTOut, running, dct((*engine.HCA).DestroyDCT)},
	{0x712, "DRAIN_DCT", prm.DCTIn, prm.DCTOut, running, dct((*engine.HCA).DrainDCT)},
	{0x713, "QUERY_DCT", prm.DCTIn, prm.QueryDCTOut, running, (*Device).queryDCT},
	{0x714, "ARM_DCT", prm.DCTIn, prm.DCTOut, running, dct((*engine.HCA).ArmDCT)},
}

// Maximum values of DC.
const (
	logDCResources = 4 // READs and atomics of a connection
	logDCIStreams  = 8
)

// offeredDC are capabilities of dynamically connected transport. A device with dct=0 has none.
var offeredDC = []Capability{
	{CapGeneral, prm.HCACapDCT, 1},
	{CapGeneral, prm.HCACapMaxWQESizeSQDc, 1024},
	{CapGeneral, prm.HCACapLogMaxRAReqDc, logDCResources},
	{CapGeneral, prm.HCACapLogMaxRAResDc, logDCResources},
	{CapGeneral, prm.HCACapDCReqScatDataCQE, 1},
	{CapGeneral, prm.HCACapLogMaxDCIStreamChannels, logDCIStreams},
	{CapGeneral, prm.HCACapLogMaxDCIErroredStreams, logDCIStreams},
	{CapGeneral, prm.HCACapQPCExtension, 1}, // streams are reset by it
	{CapAtomic, prm.AtomicCapAtomicSizeDc, 8},
}

// checkDC checks that the device offers DC.
func (d *Device) checkDC() error {
	if d.caps.general(prm.HCACapDCT) == 0 {
		return refuse(statusBadOpcode, reasonOpcode)
	}
	return nil
}

// dct returns the function for a command with no other parameter than a DCT.
func dct(f func(h *engine.HCA, number uint32) error) func(d *Device, in, out []byte) error {
	return func(d *Device, in, out []byte) error {
		if err := d.checkDC(); err != nil {
			return err
		}
		return f(d.hca, get32(prm.DCTInDCTN, in))
	}
}

const dctScatter64 = 2 // cs_res

func (d *Device) createDCT(in, out []byte) error {
	if err := d.checkDC(); err != nil {
		return err
	}
	c := prm.CreateDCTInDCTC.Bytes(in)
	ece := get32(prm.DCTCECE, c)
	if err := d.checkECE(ece); err != nil {
		return err
	}
	a := engine.QPAttr{
		PD:           get32(prm.DCTCPD, c),
		SRQ:          get32(prm.DCTCSRQN, c),
		RecvCQ:       get32(prm.DCTCCQN, c),
		UserIndex:    get32(prm.DCTCUserIndex, c),
		ReservedLKey: prm.DCTCRLKY.Is(c),
		DCKey:        prm.DCTCAccessKey.Get(c),
		MTU:          1 << (prm.DCTCMTU.Get(c) + mtuBase),
		MinRNRTimer:  uint8(prm.DCTCMinRNRNak.Get(c)),
		RemoteRead:   prm.DCTCRRE.Is(c),
		RemoteWrite:  prm.DCTCRWE.Is(c),
		RemoteAtomic: prm.DCTCRAE.Is(c),
		Primary: transport.Path{
			SGIDIndex:    uint8(prm.DCTCMyAddrIndex.Get(c)),
			FlowLabel:    get32(prm.DCTCFlowLabel, c),
			HopLimit:     uint8(prm.DCTCHopLimit.Get(c)),
			TrafficClass: uint8(prm.DCTCTclass.Get(c)),
			SL:           uint8(prm.DCTCEthPrio.Get(c)),
			PKeyIndex:    uint16(prm.DCTCPKeyIndex.Get(c)),
		},
		ECE: ece & d.config.ECE,
	}
	if prm.DCTCCSRes.Get(c) == dctScatter64 {
		a.ScatterResponse = 64
	}
	if err := d.order(engine.ServiceDCT, dctOrder.get(c), &a); err != nil {
		return err
	}
	t, err := d.hca.CreateDCT(a)
	if err != nil {
		return err
	}
	prm.CreateDCTOutDCTN.Set(out, uint64(t.Number))
	prm.CreateDCTOutECE.Set(out, uint64(a.ECE))
	return nil
}

func (d *Device) queryDCT(in, out []byte) error {
	if err := d.checkDC(); err != nil {
		return err
	}
	a, err := d.hca.QueryDCT(get32(prm.DCTInDCTN, in))
	if err != nil {
		return err
	}
	c := prm.QueryDCTOutDCTC.Bytes(out)
	prm.DCTCState.Set(c, uint64(a.State))
	prm.DCTCViolationCount.Set(c, uint64(a.Violations))
	prm.DCTCPD.Set(c, uint64(a.PD))
	prm.DCTCSRQN.Set(c, uint64(a.SRQ))
	prm.DCTCCQN.Set(c, uint64(a.RecvCQ))
	prm.DCTCUserIndex.Set(c, uint64(a.UserIndex))
	prm.DCTCRLKY.SetBool(c, a.ReservedLKey)
	prm.DCTCAccessKey.Set(c, a.DCKey)
	prm.DCTCMTU.Set(c, uint64(bits.Len(uint(a.MTU))-1-mtuBase))
	prm.DCTCMinRNRNak.Set(c, uint64(a.MinRNRTimer))
	prm.DCTCRRE.SetBool(c, a.RemoteRead)
	prm.DCTCRWE.SetBool(c, a.RemoteWrite)
	prm.DCTCRAE.SetBool(c, a.RemoteAtomic)
	prm.DCTCMyAddrIndex.Set(c, uint64(a.Primary.SGIDIndex))
	prm.DCTCFlowLabel.Set(c, uint64(a.Primary.FlowLabel))
	prm.DCTCHopLimit.Set(c, uint64(a.Primary.HopLimit))
	prm.DCTCTclass.Set(c, uint64(a.Primary.TrafficClass))
	prm.DCTCEthPrio.Set(c, uint64(a.Primary.SL))
	prm.DCTCPKeyIndex.Set(c, uint64(a.Primary.PKeyIndex))
	prm.DCTCPort.Set(c, 1)
	prm.DCTCECE.Set(c, uint64(a.ECE))
	dctOrder.set(c, ordering(a.Ordering))
	if a.ScatterResponse == 64 {
		prm.DCTCCSRes.Set(c, dctScatter64)
	}
	return nil
}
