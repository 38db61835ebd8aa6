package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

const (
	stateUp     = 1 // of a vport: administrative and actual
	ethernetMTU = 1500
	maxMTU      = 9216 // including headers
)

// Types of lists of a NIC vport.
const (
	listUnicast   = 0
	listMulticast = 1
	listVLAN      = 2
)

func (d *Device) queryVportState(in, out []byte) error {
	if prm.QueryVportStateInOtherVport.Is(in) {
		return refuse(statusBadParam, reasonPort)
	}
	prm.QueryVportStateOutAdminState.Set(out, uint64(d.port.admin))
	prm.QueryVportStateOutState.SetBool(out, d.hca.Up())
	return nil
}

func (d *Device) modifyVportState(in, out []byte) error {
	if prm.ModifyVportStateInOtherVport.Is(in) {
		return refuse(statusBadParam, reasonPort)
	}
	d.port.admin = uint8(prm.ModifyVportStateInAdminState.Get(in))
	return nil
}

// listRoom returns how many addresses a list of a vport may have.
func (d *Device) listRoom(kind uint64) int {
	f := map[uint64]prm.Field{
		listUnicast: prm.HCACapLogMaxCurrentUCList, listMulticast: prm.HCACapLogMaxCurrentMCList,
		listVLAN: prm.HCACapLogMaxVLANList,
	}[kind]
	if f.Width == 0 {
		return -1
	}
	return 1 << d.caps.general(f)
}

func (d *Device) queryNICVport(in, out []byte) error {
	kind := prm.QueryNICVportContextInAllowedListType.Get(in)
	if prm.QueryNICVportContextInOtherVport.Is(in) {
		return refuse(statusBadParam, reasonPort)
	}
	if d.listRoom(kind) < 0 {
		return refuse(statusBadParam, reasonIndex)
	}
	context := prm.QueryNICVportContextOutNICVport.Bytes(out)
	copy(context, d.port.nic)
	list := d.port.lists[kind]
	rest := prm.NICVportCurrentUCMACAddress.Within(prm.QueryNICVportContextOutNICVport)
	list = list[:min(len(list), len(rest.Rest(out))/8)]
	prm.NICVportAllowedListType.Set(context, kind)
	prm.NICVportAllowedListSize.Set(context, uint64(len(list)))
	for i, v := range list {
		rest.At(i).Set(out, v)
	}
	return nil
}

// modifyNICVport changes the selected fields of the vport's context.
func (d *Device) modifyNICVport(in, out []byte) error {
	if prm.ModifyNICVportContextInOtherVport.Is(in) {
		return refuse(statusBadParam, reasonPort)
	}
	selected := prm.ModifyNICVportContextInNICVportSelect.Bytes(in)
	context := prm.ModifyNICVportContextInNICVport.Bytes(in)
	if prm.NICVportSelectMTU.Is(selected) && prm.NICVportMTU.Get(context) > maxMTU {
		return refuse(statusBadParam, reasonSize)
	}
	if prm.NICVportSelectAddressesList.Is(selected) {
		if err := d.setList(in, context); err != nil {
			return err
		}
	}
	for _, f := range []struct {
		selected prm.Field
		fields   []prm.Field
	}{
		{prm.NICVportSelectRoCEEn, []prm.Field{prm.NICVportRoCEEn}},
		{prm.NICVportSelectMTU, []prm.Field{prm.NICVportMTU}},
		{prm.NICVportSelectPermanentAddress, []prm.Field{prm.NICVportPermanentAddress}},
		{prm.NICVportSelectPromisc, []prm.Field{prm.NICVportPromiscUC, prm.NICVportPromiscMC, prm.NICVportPromiscAll}},
		{prm.NICVportSelectMinInline, []prm.Field{prm.NICVportMinWQEInlineMode}},
		{prm.NICVportSelectDisableUCLocalLB, []prm.Field{prm.NICVportDisableUCLocalLB}},
		{prm.NICVportSelectDisableMCLocalLB, []prm.Field{prm.NICVportDisableMCLocalLB}},
		{prm.NICVportSelectNodeGUID, []prm.Field{prm.NICVportNodeGUID}},
		{prm.NICVportSelectPortGUID, []prm.Field{prm.NICVportPortGUID}},
	} {
		if !f.selected.Is(selected) {
			continue
		}
		for _, field := range f.fields {
			field.Set(d.port.nic, field.Get(context))
		}
	}
	d.setLoopback()
	return nil
}

// setLoopback sets local loopback according to the vport's context.
func (d *Device) setLoopback() {
	d.hca.SetLocalLoopback(!prm.NICVportDisableUCLocalLB.Is(d.port.nic), !prm.NICVportDisableMCLocalLB.Is(d.port.nic))
}

// setList replaces a list of addresses, which follows the context.
func (d *Device) setList(in, context []byte) error {
	kind, n := prm.NICVportAllowedListType.Get(context), int(prm.NICVportAllowedListSize.Get(context))
	entries := prm.NICVportCurrentUCMACAddress.Within(prm.ModifyNICVportContextInNICVport)
	switch room := d.listRoom(kind); {
	case room < 0:
		return refuse(statusBadParam, reasonIndex)
	case n > room:
		return refuse(statusLimit, reasonSize)
	case len(in) < entries.Offset/8+8*n:
		return refuse(statusBadInputLength, reasonLength)
	}
	list := make([]uint64, n)
	for i := range list {
		list[i] = entries.At(i).Get(in)
	}
	d.port.lists[kind] = list
	return nil
}

// setL2Entry sets an entry of the table of unicast addresses.
func (d *Device) setL2Entry(in, out []byte) error {
	index := prm.SetL2TableEntryInTableIndex.Get(in)
	if index >= 1<<d.caps.general(prm.HCACapLogMaxL2Table) {
		return refuse(statusBadParam, reasonIndex)
	}
	var entry [8]byte
	copy(entry[:2], in[prm.SetL2TableEntryInVLANValid.Offset/8:])
	copy(entry[2:], prm.SetL2TableEntryInMAC.Bytes(in))
	d.port.l2[index] = entry
	return nil
}

func (d *Device) queryL2Entry(in, out []byte) error {
	entry, ok := d.port.l2[prm.QueryL2TableEntryInTableIndex.Get(in)]
	if !ok {
		return refuse(statusBadResource, reasonUnknown)
	}
	copy(out[prm.QueryL2TableEntryOutVLANValid.Offset/8:], entry[:2])
	copy(prm.QueryL2TableEntryOutMAC.Bytes(out), entry[2:])
	return nil
}

func (d *Device) deleteL2Entry(in, out []byte) error {
	index := prm.DeleteL2TableEntryInTableIndex.Get(in)
	if _, ok := d.port.l2[index]; !ok {
		return refuse(statusBadResource, reasonUnknown)
	}
	delete(d.port.l2, index)
	return nil
}
