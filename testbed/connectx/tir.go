package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// Codes of a TIR's context.
const (
	dispDirect   = 0
	dispIndirect = 1

	ownUnicast   = 1 << 0 // self_lb_block
	ownMulticast = 1 << 1
)

func (d *Device) createTIS(in, out []byte) error {
	c := prm.CreateTISInTISC.Bytes(in)
	port, err := d.lagPort(prm.TISCLAGTXPortAffinity, c)
	if err != nil {
		return err
	}
	t, err := d.hca.CreateTIS(get32(prm.TISCTransportDomain, c))
	if err != nil {
		return err
	}
	t.LAGPort, t.StrictLAGPort = port, prm.TISCStrictLAGTXPortAffinity.Is(c)
	t.Priority = uint8(prm.TISCPrio.Get(c))
	prm.CreateTISOutTISN.Set(out, uint64(t.Number))
	return nil
}

// modifyTIS changes the priority or the port of the LAG, without effect on frames.
func (d *Device) modifyTIS(in, out []byte) error {
	t, err := d.hca.TIS(get32(prm.ModifyTISInTISN, in))
	if err != nil {
		return err
	}
	c := prm.ModifyTISInTISC.Bytes(in)
	if prm.ModifyTISInBitmaskLAGTXPortAffinity.Is(in) {
		if t.LAGPort, err = d.lagPort(prm.TISCLAGTXPortAffinity, c); err != nil {
			return err
		}
	}
	if prm.ModifyTISInBitmaskStrictLAGTXPortAffinity.Is(in) {
		t.StrictLAGPort = prm.TISCStrictLAGTXPortAffinity.Is(c)
	}
	if prm.ModifyTISInBitmaskPrio.Is(in) {
		t.Priority = uint8(prm.TISCPrio.Get(c))
	}
	return nil
}

func (d *Device) queryTIS(in, out []byte) error {
	t, err := d.hca.TIS(get32(prm.QueryTISInTISN, in))
	if err != nil {
		return err
	}
	c := prm.QueryTISOutTISC.Bytes(out)
	prm.TISCTransportDomain.Set(c, uint64(t.TransportDomain))
	prm.TISCLAGTXPortAffinity.Set(c, uint64(t.LAGPort))
	prm.TISCStrictLAGTXPortAffinity.SetBool(c, t.StrictLAGPort)
	prm.TISCPrio.Set(c, uint64(t.Priority))
	return nil
}

func (d *Device) destroyTIS(in, out []byte) error {
	return d.hca.DestroyTIS(get32(prm.DestroyTISInTISN, in))
}

// decodeTIR decodes a TIR's context.
func decodeTIR(c []byte) (engine.TIRAttr, error) {
	hash := prm.TIRCRXHashFieldSelectorOuterSelectedFields.Get(c)
	a := engine.TIRAttr{
		Indirect:        prm.TIRCDispType.Get(c) == dispIndirect,
		RQ:              get32(prm.TIRCInlineRQN, c),
		RQT:             get32(prm.TIRCIndirectTable, c),
		Hash:            engine.HashFunction(prm.TIRCRXHashFn.Get(c)),
		Symmetric:       prm.TIRCRXHashSymmetric.Is(c),
		IPv6:            prm.TIRCRXHashFieldSelectorOuterL3ProtType.Is(c),
		UDP:             prm.TIRCRXHashFieldSelectorOuterL4ProtType.Is(c),
		Fields:          engine.HashFields(hash),
		TransportDomain: get32(prm.TIRCTransportDomain, c),
		OwnUnicast:      prm.TIRCSelfLBBlock.Get(c)&ownUnicast != 0,
		OwnMulticast:    prm.TIRCSelfLBBlock.Get(c)&ownMulticast != 0,
	}
	copy(a.Key[:], prm.TIRCRXHashToeplitzKey.Rest(c))
	if prm.TIRCDispType.Get(c) > dispIndirect || prm.TIRCPacketMergeMask.Is(c) || prm.TIRCTlsEn.Is(c) {
		return a, refuse(statusBadParam, reasonCapability)
	}
	return a, nil
}

func (d *Device) createTIR(in, out []byte) error {
	a, err := decodeTIR(prm.CreateTIRInTIRC.Bytes(in))
	if err != nil {
		return err
	}
	t, err := d.hca.CreateTIR(a)
	if err != nil {
		return err
	}
	prm.CreateTIROutTIRN.Set(out, uint64(t.Number))
	return nil
}

// modifyTIR changes the hash or the loopback of a TIR.
func (d *Device) modifyTIR(in, out []byte) error {
	number := get32(prm.ModifyTIRInTIRN, in)
	t, err := d.hca.TIR(number)
	if err != nil {
		return err
	}
	a := t.TIRAttr
	b, err := decodeTIR(prm.ModifyTIRInTIRC.Bytes(in))
	switch {
	case err != nil:
		return err
	case prm.ModifyTIRInBitmaskPacketMerge.Is(in):
		return refuse(statusBadParam, reasonCapability)
	}
	if prm.ModifyTIRInBitmaskHash.Is(in) {
		a.Hash, a.Key, a.Symmetric, a.IPv6, a.UDP, a.Fields = b.Hash, b.Key, b.Symmetric, b.IPv6, b.UDP, b.Fields
	}
	if prm.ModifyTIRInBitmaskSelfLBEn.Is(in) {
		a.OwnUnicast, a.OwnMulticast = b.OwnUnicast, b.OwnMulticast
	}
	return d.hca.ModifyTIR(number, a)
}

func (d *Device) destroyTIR(in, out []byte) error {
	return d.hca.DestroyTIR(get32(prm.DestroyTIRInTIRN, in))
}

// rqList decodes the receive queues of an RQT's context.
func (d *Device) rqList(in []byte, context prm.Field) ([]uint32, error) {
	n := int(prm.RQTCRQTActualSize.Get(context.Bytes(in)))
	entries := prm.RQTCRQNum.Within(context)
	switch {
	case n > 1<<d.caps.general(prm.HCACapLogMaxRQTSize):
		return nil, refuse(statusLimit, reasonSize)
	case n > len(entries.Rest(in))/4:
		return nil, refuse(statusBadInputLength, reasonLength)
	}
	list := make([]uint32, n)
	for i := range list {
		list[i] = get32(entries.At(i), in) & 0xffffff
	}
	return list, nil
}

func (d *Device) createRQT(in, out []byte) error {
	list, err := d.rqList(in, prm.CreateRQTInRQTC)
	if err != nil {
		return err
	}
	t, err := d.hca.CreateRQT(list)
	if err != nil {
		return err
	}
	prm.CreateRQTOutRQTN.Set(out, uint64(t.Number))
	return nil
}

func (d *Device) modifyRQT(in, out []byte) error {
	if !prm.ModifyRQTInBitmaskRQNList.Is(in) {
		return nil
	}
	list, err := d.rqList(in, prm.ModifyRQTInRQTC)
	if err != nil {
		return err
	}
	return d.hca.ModifyRQT(get32(prm.ModifyRQTInRQTN, in), list)
}

func (d *Device) destroyRQT(in, out []byte) error {
	return d.hca.DestroyRQT(get32(prm.DestroyRQTInRQTN, in))
}
