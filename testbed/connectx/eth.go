package connectx

import (
	"bytes"

	"github.com/goverbs/goverbs/testbed/connectx/engine"
	"github.com/goverbs/goverbs/testbed/connectx/prm"
	"github.com/goverbs/goverbs/testbed/connectx/roce"
)

// ethCommands are those of raw Ethernet: its queues and where packets are spread
// to.
var ethCommands = []command{
	{0x760, "QUERY_ROCE_ADDRESS", prm.QueryRoCEAddressIn, prm.QueryRoCEAddressOut, inEth, (*Device).queryRoCEAddress},
	{0x761, "SET_ROCE_ADDRESS", prm.SetRoCEAddressIn, prm.SetRoCEAddressOut, inEth, (*Device).setRoCEAddress},
	{0x900, "CREATE_TIR", prm.CreateTIRIn, prm.CreateTIROut, inEth, keep(tirs, prm.CreateTIRInTIRC, prm.CreateTIROutTIRN)},
	{0x901, "MODIFY_TIR", prm.ModifyTIRIn, prm.ModifyTIROut, inEth, change(tirs, prm.ModifyTIRInTIRC, prm.ModifyTIRInTIRN)},
	{0x902, "DESTROY_TIR", prm.DestroyTIRIn, prm.DestroyTIROut, inEth, drop(tirs, prm.DestroyTIRInTIRN)},
	{0x903, "QUERY_TIR", prm.QueryTIRIn, prm.QueryTIROut, inEth, show(tirs, prm.QueryTIRInTIRN, prm.QueryTIROutTIRC)},
	{0x904, "CREATE_SQ", prm.CreateSQIn, prm.CreateSQOut, inEth, keep(sqs, prm.CreateSQInSQC, prm.CreateSQOutSQN)},
	{0x905, "MODIFY_SQ", prm.ModifySQIn, prm.ModifySQOut, inEth, change(sqs, prm.ModifySQInSQC, prm.ModifySQInSQN)},
	{0x906, "DESTROY_SQ", prm.DestroySQIn, prm.DestroySQOut, inEth, drop(sqs, prm.DestroySQInSQN)},
	{0x907, "QUERY_SQ", prm.QuerySQIn, prm.QuerySQOut, inEth, show(sqs, prm.QuerySQInSQN, prm.QuerySQOutSQC)},
	{0x908, "CREATE_RQ", prm.CreateRQIn, prm.CreateRQOut, inEth, keep(rqs, prm.CreateRQInRQC, prm.CreateRQOutRQN)},
	{0x909, "MODIFY_RQ", prm.ModifyRQIn, prm.ModifyRQOut, inEth, change(rqs, prm.ModifyRQInRQC, prm.ModifyRQInRQN)},
	{0x90a, "DESTROY_RQ", prm.DestroyRQIn, prm.DestroyRQOut, inEth, drop(rqs, prm.DestroyRQInRQN)},
	{0x90b, "QUERY_RQ", prm.QueryRQIn, prm.QueryRQOut, inEth, show(rqs, prm.QueryRQInRQN, prm.QueryRQOutRQC)},
	{0x912, "CREATE_TIS", prm.CreateTISIn, prm.CreateTISOut, inEth, keep(tiss, prm.CreateTISInTISC, prm.CreateTISOutTISN)},
	{0x913, "MODIFY_TIS", prm.ModifyTISIn, prm.ModifyTISOut, inEth, change(tiss, prm.ModifyTISInTISC, prm.ModifyTISInTISN)},
	{0x914, "DESTROY_TIS", prm.DestroyTISIn, prm.DestroyTISOut, inEth, drop(tiss, prm.DestroyTISInTISN)},
	{0x915, "QUERY_TIS", prm.QueryTISIn, prm.QueryTISOut, inEth, show(tiss, prm.QueryTISInTISN, prm.QueryTISOutTISC)},
	{0x916, "CREATE_RQT", prm.CreateRQTIn, prm.CreateRQTOut, inEth, keep(rqts, prm.CreateRQTInRQTC, prm.CreateRQTOutRQTN)},
	{0x917, "MODIFY_RQT", prm.ModifyRQTIn, prm.ModifyRQTOut, inEth, change(rqts, prm.ModifyRQTInRQTC, prm.ModifyRQTInRQTN)},
	{0x918, "DESTROY_RQT", prm.DestroyRQTIn, prm.DestroyRQTOut, inEth, drop(rqts, prm.DestroyRQTInRQTN)},
	{0x919, "QUERY_RQT", prm.QueryRQTIn, prm.QueryRQTOut, inEth, show(rqts, prm.QueryRQTInRQTN, prm.QueryRQTOutRQTC)},
}

// An ethKind is a kind of raw Ethernet's objects.
type ethKind int

const (
	tirs ethKind = iota
	sqs
	rqs
	tiss
	rqts
	ethKinds
)

// Where the numbers of queues begin: behind those of queue pairs, which ring the
// same doorbells.
const firstEthQueue = 1 << 20

// ethObjects are objects of one kind by number.
type ethObjects struct {
	numbers
	contexts map[uint32][]byte
}

// newEthObjects are all kinds, with as many of each as the capabilities say.
func (d *Device) newEthObjects() (all [ethKinds]ethObjects) {
	for kind, f := range [ethKinds]prm.Field{prm.HCACapLogMaxTIR, prm.HCACapLogMaxSQ, prm.HCACapLogMaxRQ, prm.HCACapLogMaxTIS, prm.HCACapLogMaxRQT} {
		first := uint32(1)
		if kind := ethKind(kind); kind == sqs || kind == rqs {
			first = firstEthQueue * uint32(kind)
		}
		all[kind] = ethObjects{newNumbers("object", first, uint32(d.number(f))), make(map[uint32][]byte)}
	}
	return all
}

// keep makes an object of a context: what of the command is from the context on.
func keep(kind ethKind, context, number prm.Field) func(d *Device, in, out []byte) error {
	return func(d *Device, in, out []byte) error {
		o := &d.eth[kind]
		if err := o.alloc(number, out); err != nil {
			return err
		}
		o.contexts[get32(number, out)] = bytes.Clone(context.Rest(in))
		return nil
	}
}

// change replaces an object's context.
func change(kind ethKind, context, number prm.Field) func(d *Device, in, out []byte) error {
	return func(d *Device, in, out []byte) error {
		o := &d.eth[kind]
		if !o.has(get32(number, in)) {
			return refuse(statusBadResource, reasonUnknown)
		}
		o.contexts[get32(number, in)] = bytes.Clone(context.Rest(in))
		return nil
	}
}

func show(kind ethKind, number, context prm.Field) func(d *Device, in, out []byte) error {
	return func(d *Device, in, out []byte) error {
		c, ok := d.eth[kind].contexts[get32(number, in)]
		if !ok {
			return refuse(statusBadResource, reasonUnknown)
		}
		copy(context.Rest(out), c)
		return nil
	}
}

func drop(kind ethKind, number prm.Field) func(d *Device, in, out []byte) error {
	return func(d *Device, in, out []byte) error {
		o := &d.eth[kind]
		delete(o.contexts, get32(number, in))
		return o.remove(get32(number, in))
	}
}

// Codes of roce_version.
const (
	roceV1 = 0
	roceV2 = 2
)

func (d *Device) setRoCEAddress(in, out []byte) error {
	a := prm.SetRoCEAddressInRoCEAddr.Bytes(in)
	e := engine.GIDEntry{
		GID:    [16]byte(prm.RoCEAddrSourceL3Address.Bytes(a)),
		MAC:    [6]byte(prm.RoCEAddrSourceMAC.Bytes(a)),
		Tagged: prm.RoCEAddrVLANValid.Is(a),
		VLAN:   uint16(prm.RoCEAddrVLANID.Get(a)),
	}
	switch prm.RoCEAddrRoCEVersion.Get(a) {
	case roceV1:
		e.Version = roce.V1
	case roceV2:
		e.Version = roce.V2
	default:
		return refuse(statusBadParam, reasonCapability)
	}
	return d.hca.SetGID(int(prm.SetRoCEAddressInRoCEAddressIndex.Get(in)), e)
}

func (d *Device) queryRoCEAddress(in, out []byte) error {
	index := prm.QueryRoCEAddressInRoCEAddressIndex.Get(in)
	if index >= prm.RoCECapRoCEAddressTableSize.Get(d.caps.page(CapRoCE, true)) {
		return refuse(statusBadParam, reasonIndex)
	}
	e := d.hca.GID(int(index))
	a := prm.QueryRoCEAddressOutRoCEAddr.Bytes(out)
	copy(prm.RoCEAddrSourceL3Address.Bytes(a), e.GID[:])
	copy(prm.RoCEAddrSourceMAC.Bytes(a), e.MAC[:])
	prm.RoCEAddrVLANValid.SetBool(a, e.Tagged)
	prm.RoCEAddrVLANID.Set(a, uint64(e.VLAN))
	if e.Version == roce.V2 {
		prm.RoCEAddrRoCEVersion.Set(a, roceV2)
	}
	return nil
}
