package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

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
