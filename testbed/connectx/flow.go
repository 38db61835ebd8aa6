package connectx

import (
	"bytes"

	"github.com/goverbs/goverbs/testbed/connectx/prm"
)

// flowCommands are those of flow tables.
var flowCommands = []command{
	{0x92f, "SET_FLOW_TABLE_ROOT", prm.SetFlowTableRootIn, prm.SetFlowTableRootOut, inEth, (*Device).setFlowRoot},
	{0x930, "CREATE_FLOW_TABLE", prm.CreateFlowTableIn, prm.CreateFlowTableOut, inEth, (*Device).createFlowTable},
	{0x931, "DESTROY_FLOW_TABLE", prm.DestroyFlowTableIn, prm.DestroyFlowTableOut, inEth, (*Device).destroyFlowTable},
	{0x933, "CREATE_FLOW_GROUP", prm.CreateFlowGroupIn, prm.CreateFlowGroupOut, inEth, (*Device).createFlowGroup},
	{0x934, "DESTROY_FLOW_GROUP", prm.DestroyFlowGroupIn, prm.DestroyFlowGroupOut, inEth, (*Device).destroyFlowGroup},
	{0x936, "SET_FLOW_TABLE_ENTRY", prm.SetFTEIn, prm.SetFTEOut, inEth, (*Device).setFlow},
	{0x937, "QUERY_FLOW_TABLE_ENTRY", prm.QueryFTEIn, prm.QueryFTEOut, inEth, (*Device).queryFlow},
	{0x938, "DELETE_FLOW_TABLE_ENTRY", prm.DeleteFTEIn, prm.DeleteFTEOut, inEth, (*Device).deleteFlow},
	{0x93c, "MODIFY_FLOW_TABLE", prm.ModifyFlowTableIn, prm.ModifyFlowTableOut, inEth, (*Device).modifyFlowTable},
}

const (
	nicReceive     = 0 // table_type
	flowDisconnect = 1 // op_mod of SET_FLOW_TABLE_ROOT

	maxFlowGroups = 1 << 10 // of a table
	maxFlows      = 1 << 16 // of all tables
)

// A flowTable has groups of entries that match the same fields.
type flowTable struct {
	context []byte
	groups  map[uint32]*flowGroup
	next    uint32
	flows   map[uint32][]byte // contexts with their destinations, by index
}

// A flowGroup is a range of a table's entries.
type flowGroup struct {
	first, last uint32
	enable      uint8
	criteria    []byte
}

// flowTables are the tables for what a host receives.
type flowTables struct {
	numbers
	tables map[uint32]*flowTable
	root   uint32 // 0: none
	flows  int
}

func newFlowTables() flowTables {
	return flowTables{numbers: newNumbers("flow table", 1, 1<<logFlowTables), tables: make(map[uint32]*flowTable)}
}

// flowTable is the table that a command names.
func (d *Device) flowTable(kind, number uint64) (*flowTable, error) {
	t := d.flows.tables[uint32(number)]
	if kind != nicReceive || t == nil {
		return nil, refuse(statusBadResource, reasonUnknown)
	}
	return t, nil
}

func (d *Device) createFlowTable(in, out []byte) error {
	c := prm.CreateFlowTableInFlowTable.Bytes(in)
	switch {
	case prm.CreateFlowTableInOtherVport.Is(in) || prm.CreateFlowTableInTableType.Get(in) != nicReceive:
		return refuse(statusBadParam, reasonPort)
	case prm.FlowTableLogSize.Get(c) > logFlowTableSize:
		return refuse(statusLimit, reasonSize)
	}
	if err := d.flows.alloc(prm.CreateFlowTableOutTableID, out); err != nil {
		return err
	}
	d.flows.tables[get32(prm.CreateFlowTableOutTableID, out)] = &flowTable{
		context: bytes.Clone(c), groups: make(map[uint32]*flowGroup), flows: make(map[uint32][]byte),
	}
	return nil
}

func (d *Device) destroyFlowTable(in, out []byte) error {
	number := prm.DestroyFlowTableInTableID.Get(in)
	t, err := d.flowTable(prm.DestroyFlowTableInTableType.Get(in), number)
	if err != nil {
		return err
	}
	if len(t.groups) > 0 {
		return refuse(statusBusy, reasonInUse)
	}
	delete(d.flows.tables, uint32(number))
	if d.flows.root == uint32(number) {
		d.flows.root = 0
	}
	return d.flows.remove(uint32(number))
}

// modifyFlowTable changes where a packet goes that no entry matches.
func (d *Device) modifyFlowTable(in, out []byte) error {
	t, err := d.flowTable(prm.ModifyFlowTableInTableType.Get(in), prm.ModifyFlowTableInTableID.Get(in))
	if err != nil {
		return err
	}
	c := prm.ModifyFlowTableInFlowTable.Bytes(in)
	for _, f := range []prm.Field{prm.FlowTableTableMissAction, prm.FlowTableTableMissID} {
		f.Set(t.context, f.Get(c))
	}
	return nil
}

func (d *Device) setFlowRoot(in, out []byte) error {
	number := prm.SetFlowTableRootInTableID.Get(in)
	if prm.CmdOpMod.Get(in) == flowDisconnect {
		d.flows.root = 0
		return nil
	}
	if _, err := d.flowTable(prm.SetFlowTableRootInTableType.Get(in), number); err != nil {
		return err
	}
	d.flows.root = uint32(number)
	return nil
}

func (d *Device) createFlowGroup(in, out []byte) error {
	t, err := d.flowTable(prm.CreateFlowGroupInTableType.Get(in), prm.CreateFlowGroupInTableID.Get(in))
	if err != nil {
		return err
	}
	g := &flowGroup{
		first:    get32(prm.CreateFlowGroupInStartFlowIndex, in),
		last:     get32(prm.CreateFlowGroupInEndFlowIndex, in),
		enable:   uint8(prm.CreateFlowGroupInMatchCriteriaEnable.Get(in)),
		criteria: bytes.Clone(prm.CreateFlowGroupInFlowMatch.Bytes(in)),
	}
	if g.first > g.last || g.last>>prm.FlowTableLogSize.Get(t.context) != 0 {
		return refuse(statusBadParam, reasonIndex)
	}
	for _, other := range t.groups {
		if g.first <= other.last && other.first <= g.last {
			return refuse(statusBusy, reasonInUse)
		}
	}
	if len(t.groups) >= maxFlowGroups {
		return refuse(statusLimit, reasonTooMany)
	}
	t.next = (t.next + 1) & 0xffffff
	for t.groups[t.next] != nil {
		t.next = (t.next + 1) & 0xffffff
	}
	t.groups[t.next] = g
	prm.CreateFlowGroupOutGroupID.Set(out, uint64(t.next))
	return nil
}

func (d *Device) destroyFlowGroup(in, out []byte) error {
	t, err := d.flowTable(prm.DestroyFlowGroupInTableType.Get(in), prm.DestroyFlowGroupInTableID.Get(in))
	if err != nil {
		return err
	}
	number := get32(prm.DestroyFlowGroupInGroupID, in)
	g := t.groups[number]
	if g == nil {
		return refuse(statusBadResource, reasonUnknown)
	}
	for index := range t.flows {
		if g.first <= index && index <= g.last {
			return refuse(statusBusy, reasonInUse)
		}
	}
	delete(t.groups, number)
	return nil
}

// setFlow makes or replaces an entry of a group.
func (d *Device) setFlow(in, out []byte) error {
	t, err := d.flowTable(prm.SetFTEInTableType.Get(in), prm.SetFTEInTableID.Get(in))
	if err != nil {
		return err
	}
	c := prm.SetFTEInFlowContext.Rest(in)
	index := get32(prm.SetFTEInFlowIndex, in)
	g := t.groups[get32(prm.FlowContextGroupID, c)]
	n := prm.FlowContextDestinationListSize.Get(c)
	switch {
	case g == nil || index < g.first || index > g.last:
		return refuse(statusBadParam, reasonIndex)
	case n > uint64(len(prm.FlowContextDestination.Rest(c))/prm.FlowDest.Size):
		return refuse(statusBadInputLength, reasonLength)
	case prm.FlowContextFlowCounterListSize.Is(c):
		return refuse(statusBadParam, reasonCapability)
	case t.flows[index] == nil && d.flows.flows >= maxFlows:
		return refuse(statusLimit, reasonTooMany)
	}
	if t.flows[index] == nil {
		d.flows.flows++
	}
	t.flows[index] = bytes.Clone(c)
	return nil
}

func (d *Device) queryFlow(in, out []byte) error {
	t, err := d.flowTable(prm.QueryFTEInTableType.Get(in), prm.QueryFTEInTableID.Get(in))
	if err != nil {
		return err
	}
	c := t.flows[get32(prm.QueryFTEInFlowIndex, in)]
	if c == nil {
		return refuse(statusBadResource, reasonUnknown)
	}
	copy(prm.QueryFTEOutFlowContext.Rest(out), c)
	return nil
}

func (d *Device) deleteFlow(in, out []byte) error {
	t, err := d.flowTable(prm.DeleteFTEInTableType.Get(in), prm.DeleteFTEInTableID.Get(in))
	if err != nil {
		return err
	}
	index := get32(prm.DeleteFTEInFlowIndex, in)
	if t.flows[index] == nil {
		return refuse(statusBadResource, reasonUnknown)
	}
	delete(t.flows, index)
	d.flows.flows--
	return nil
}
