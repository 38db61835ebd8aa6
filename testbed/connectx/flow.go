package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// flowCommands are the commands of flow tables.
var flowCommands = []command{
	{0x92f, "SET_FLOW_TABLE_ROOT", prm.SetFlowTableRootIn, prm.SetFlowTableRootOut, inEth, (*Device).setFlowRoot},
	{0x930, "CREATE_FLOW_TABLE", prm.CreateFlowTableIn, prm.CreateFlowTableOut, inEth, (*Device).createFlowTable},
	{0x931, "DESTROY_FLOW_TABLE", prm.DestroyFlowTableIn, prm.DestroyFlowTableOut, inEth, (*Device).destroyFlowTable},
	{0x933, "CREATE_FLOW_GROUP", prm.CreateFlowGroupIn, prm.CreateFlowGroupOut, inEth, (*Device).createFlowGroup},
	{0x934, "DESTROY_FLOW_GROUP", prm.DestroyFlowGroupIn, prm.DestroyFlowGroupOut, inEth, (*Device).destroyFlowGroup},
	{0x936, "SET_FLOW_TABLE_ENTRY", prm.SetFTEIn, prm.SetFTEOut, inEth, (*Device).setFlow},
	{0x938, "DELETE_FLOW_TABLE_ENTRY", prm.DeleteFTEIn, prm.DeleteFTEOut, inEth, (*Device).deleteFlow},
	{0x93c, "MODIFY_FLOW_TABLE", prm.ModifyFlowTableIn, prm.ModifyFlowTableOut, inEth, (*Device).modifyFlowTable},
}

// Codes of flow tables and their entries.
const (
	rootDisconnect = 1 // op_mod of SET_FLOW_TABLE_ROOT

	missToTable = 1 // table_miss_action

	flowAllow   = 1 << 0 // action
	flowDrop    = 1 << 1
	flowForward = 1 << 2
)

// ownTable checks that a table is of type NIC receive.
func ownTable(in []byte, other, kind prm.Field) error {
	if other.Is(in) || engine.FlowTableType(kind.Get(in)) != engine.NICReceive {
		return refuse(statusBadParam, reasonPort)
	}
	return nil
}

func (d *Device) createFlowTable(in, out []byte) error {
	if err := ownTable(in, prm.CreateFlowTableInOtherVport, prm.CreateFlowTableInTableType); err != nil {
		return err
	}
	c := prm.CreateFlowTableInFlowTable.Bytes(in)
	n, err := d.hca.CreateFlowTable(engine.FlowTableAttr{
		Type: engine.NICReceive, Level: uint8(prm.FlowTableLevel.Get(c)), LogSize: uint8(prm.FlowTableLogSize.Get(c)),
		MissTable: missTable(c),
	})
	return writeNumber(prm.CreateFlowTableOutTableID, out, n, err)
}

// missTable returns the next table of packets that no flow of a table matches.
func missTable(c []byte) uint32 {
	if prm.FlowTableTableMissAction.Get(c) != missToTable {
		return 0
	}
	return get32(prm.FlowTableTableMissID, c)
}

func (d *Device) destroyFlowTable(in, out []byte) error {
	if err := ownTable(in, prm.DestroyFlowTableInOtherVport, prm.DestroyFlowTableInTableType); err != nil {
		return err
	}
	return d.hca.DestroyFlowTable(get32(prm.DestroyFlowTableInTableID, in))
}

func (d *Device) modifyFlowTable(in, out []byte) error {
	if err := ownTable(in, prm.ModifyFlowTableInOtherVport, prm.ModifyFlowTableInTableType); err != nil {
		return err
	}
	return d.hca.SetFlowTableMiss(get32(prm.ModifyFlowTableInTableID, in),
		missTable(prm.ModifyFlowTableInFlowTable.Bytes(in)))
}

func (d *Device) setFlowRoot(in, out []byte) error {
	if err := ownTable(in, prm.SetFlowTableRootInOtherVport, prm.SetFlowTableRootInTableType); err != nil {
		return err
	}
	number := get32(prm.SetFlowTableRootInTableID, in)
	if prm.CmdOpMod.Get(in) == rootDisconnect {
		number = 0
	}
	return d.hca.SetFlowTableRoot(engine.NICReceive, number)
}

func (d *Device) createFlowGroup(in, out []byte) error {
	if err := ownTable(in, prm.CreateFlowGroupInOtherVport, prm.CreateFlowGroupInTableType); err != nil {
		return err
	}
	mask, criteria := prm.CreateFlowGroupInFlowMatch.Bytes(in), prm.CreateFlowGroupInMatchCriteriaEnable.Get(in)
	if err := checkMatch(mask, criteria); err != nil {
		return err
	}
	n, err := d.hca.CreateFlowGroup(get32(prm.CreateFlowGroupInTableID, in), engine.FlowGroup{
		First:    get32(prm.CreateFlowGroupInStartFlowIndex, in),
		Last:     get32(prm.CreateFlowGroupInEndFlowIndex, in),
		Mask:     [512]byte(mask),
		Criteria: uint8(criteria),
	})
	return writeNumber(prm.CreateFlowGroupOutGroupID, out, n, err)
}

func (d *Device) destroyFlowGroup(in, out []byte) error {
	if err := ownTable(in, prm.DestroyFlowGroupInOtherVport, prm.DestroyFlowGroupInTableType); err != nil {
		return err
	}
	return d.hca.DestroyFlowGroup(get32(prm.DestroyFlowGroupInTableID, in), get32(prm.DestroyFlowGroupInGroupID, in))
}

// setFlow creates or replaces a flow.
func (d *Device) setFlow(in, out []byte) error {
	if err := ownTable(in, prm.SetFTEInOtherVport, prm.SetFTEInTableType); err != nil {
		return err
	}
	c := prm.SetFTEInFlowContext.Bytes(in)
	action, n := prm.FlowContextAction.Get(c), int(prm.FlowContextDestinationListSize.Get(c))
	list := prm.FlowContextDestination.Within(prm.SetFTEInFlowContext)
	switch {
	case action&^(flowAllow|flowDrop|flowForward) != 0 || prm.FlowContextFlowCounterListSize.Is(c) ||
		prm.FlowContextExtendedDestination.Is(c):
		return refuse(statusBadParam, reasonCapability)
	case n > len(list.Rest(in))/prm.FlowDest.Size:
		return refuse(statusBadInputLength, reasonLength)
	}
	f := engine.Flow{
		Group:   get32(prm.FlowContextGroupID, c),
		Match:   [512]byte(prm.FlowContextFlowMatch.Bytes(c)),
		Tag:     get32(prm.FlowContextFlowTag, c),
		Forward: action&flowForward != 0,
		Drop:    action&flowDrop != 0,
	}
	for i := range n {
		dest := list.At(i).Bytes(in)
		f.Dests = append(f.Dests, engine.FlowDest{
			Type: engine.FlowDestType(prm.FlowDestDestinationType.Get(dest)), Number: get32(prm.FlowDestDestinationID, dest),
		})
	}
	return d.hca.SetFlow(get32(prm.SetFTEInTableID, in), get32(prm.SetFTEInFlowIndex, in), f)
}

func (d *Device) deleteFlow(in, out []byte) error {
	if err := ownTable(in, prm.DeleteFTEInOtherVport, prm.DeleteFTEInTableType); err != nil {
		return err
	}
	return d.hca.DeleteFlow(get32(prm.DeleteFTEInTableID, in), get32(prm.DeleteFTEInFlowIndex, in))
}
