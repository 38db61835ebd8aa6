package engine

import "slices"

// A FlowTableType is what a flow table is for.
type FlowTableType uint8

const (
	NICReceive FlowTableType = 0 // frames that come in; of the others nothing is looked at
)

// A FlowDestType is what a flow leads to.
type FlowDestType uint8

const (
	FlowToTable FlowDestType = 1
	FlowToTIR   FlowDestType = 2
)

// A FlowDest is a destination of a flow.
type FlowDest struct {
	Type   FlowDestType
	Number uint32
}

// FlowTableAttr is a flow table's context.
type FlowTableAttr struct {
	Type      FlowTableType
	Level     uint8
	LogSize   uint8
	MissTable uint32 // where packets go that no flow matches; 0: nowhere
}

// A FlowGroup is a run of a flow table's places whose flows look at the same bits.
type FlowGroup struct {
	First, Last uint32
	// Mask is what is looked at, as fte_match_param (prm.FlowMatch), and Criteria
	// which of its parts count: 1 the outer headers, 2 misc, 4 the inner headers...
	Mask     [512]byte
	Criteria uint8
}

// A Flow says what becomes of packets.
type Flow struct {
	Group   uint32
	Match   [512]byte
	Tag     uint32
	Forward bool // to all destinations
	Drop    bool
	Dests   []FlowDest
}

type flowTable struct {
	FlowTableAttr
	groups map[uint32]*FlowGroup
	next   uint32
	flows  map[uint32]*Flow
	order  []uint32 // the places that are taken: the first that matches counts
	users  int
}

// CreateFlowTable makes a table.
func (h *HCA) CreateFlowTable(a FlowTableAttr) (uint32, error) {
	const largest = 24
	if a.LogSize > largest {
		return 0, failf(ErrLimit, "a flow table of 2^%d flows", a.LogSize)
	}
	if err := h.chain(a.Level, a.MissTable); err != nil {
		return 0, err
	}
	n, err := h.eth.tables.add(&flowTable{FlowTableAttr: a, groups: make(map[uint32]*FlowGroup), flows: make(map[uint32]*Flow)})
	if err == nil && a.MissTable != 0 {
		h.eth.tables.objects[a.MissTable].users++
	}
	return n, err
}

// chain refuses a table as the successor of one of a level, if it is not of a
// higher one: that is why packets come to an end.
func (h *HCA) chain(level uint8, to uint32) error {
	if to == 0 {
		return nil
	}
	t, err := h.eth.tables.get(to)
	if err != nil {
		return err
	}
	if t.Level <= level {
		return failf(ErrParam, "a flow table of level %d behind one of level %d", t.Level, level)
	}
	return nil
}

// FlowTable is a table's context.
func (h *HCA) FlowTable(number uint32) (FlowTableAttr, error) {
	t, err := h.eth.tables.get(number)
	if err != nil {
		return FlowTableAttr{}, err
	}
	return t.FlowTableAttr, nil
}

// SetFlowTableMiss says where packets go that no flow of a table matches.
func (h *HCA) SetFlowTableMiss(number, miss uint32) error {
	t, err := h.eth.tables.get(number)
	if err != nil {
		return err
	}
	if err := h.chain(t.Level, miss); err != nil {
		return err
	}
	h.use(t.MissTable, -1)
	h.use(miss, 1)
	t.MissTable = miss
	return nil
}

func (h *HCA) use(number uint32, n int) {
	if t := h.eth.tables.objects[number]; t != nil {
		t.users += n
	}
}

// SetFlowTableRoot says where packets begin; 0: nowhere.
func (h *HCA) SetFlowTableRoot(kind FlowTableType, number uint32) error {
	if number == 0 {
		delete(h.eth.roots, kind)
		return nil
	}
	t, err := h.eth.tables.get(number)
	if err != nil {
		return err
	}
	if t.Type != kind {
		return failf(ErrParam, "a table of type %d as the root of type %d", t.Type, kind)
	}
	h.eth.roots[kind] = number
	return nil
}

// DestroyFlowTable destroys a table that no flow and no other table leads to, with
// what is in it.
func (h *HCA) DestroyFlowTable(number uint32) error {
	t, err := h.eth.tables.get(number)
	if err != nil {
		return err
	}
	if t.users > 0 {
		return failf(ErrBusy, "flow table %#x has %d users", number, t.users)
	}
	for _, place := range slices.Clone(t.order) {
		h.DeleteFlow(number, place)
	}
	h.use(t.MissTable, -1)
	if h.eth.roots[t.Type] == number {
		delete(h.eth.roots, t.Type)
	}
	h.eth.tables.remove(number)
	return nil
}

// CreateFlowGroup makes a group in a table.
func (h *HCA) CreateFlowGroup(table uint32, g FlowGroup) (uint32, error) {
	t, err := h.eth.tables.get(table)
	if err != nil {
		return 0, err
	}
	if g.First > g.Last || uint64(g.Last) >= 1<<t.LogSize {
		return 0, failf(ErrParam, "a group from %d to %d in a table of %d", g.First, g.Last, 1<<t.LogSize)
	}
	for _, o := range t.groups {
		if g.First <= o.Last && o.First <= g.Last {
			return 0, failf(ErrParam, "a group from %d to %d, another from %d to %d", g.First, g.Last, o.First, o.Last)
		}
	}
	if len(t.groups) >= h.limits.FlowGroups {
		return 0, failf(ErrLimit, "%d groups in a flow table", len(t.groups))
	}
	t.next++
	t.groups[t.next] = &g
	return t.next, nil
}

// DestroyFlowGroup destroys a group without flows.
func (h *HCA) DestroyFlowGroup(table, group uint32) error {
	t, err := h.eth.tables.get(table)
	if err != nil {
		return err
	}
	if t.groups[group] == nil {
		return failf(ErrResource, "group %d of flow table %#x", group, table)
	}
	for _, f := range t.flows {
		if f.Group == group {
			return failf(ErrBusy, "group %d of flow table %#x has flows", group, table)
		}
	}
	delete(t.groups, group)
	return nil
}

// mostDestinations is how many a flow has at most.
const mostDestinations = 1 << 8

// SetFlow puts a flow at a place of a table, or replaces the one that is there.
func (h *HCA) SetFlow(table, place uint32, f Flow) error {
	t, err := h.eth.tables.get(table)
	if err != nil {
		return err
	}
	g := t.groups[f.Group]
	if g == nil || place < g.First || place > g.Last {
		return failf(ErrParam, "place %d of flow table %#x is not of group %d", place, table, f.Group)
	}
	if len(f.Dests) > mostDestinations || t.flows[place] == nil && h.flowCount() >= h.limits.Flows {
		return failf(ErrLimit, "%d flows, %d destinations", h.flowCount(), len(f.Dests))
	}
	if err := h.reach(t, f.Dests); err != nil {
		return err
	}
	h.release(t.flows[place])
	for _, d := range f.Dests {
		h.reachable(d, 1)
	}
	if i, found := slices.BinarySearch(t.order, place); !found {
		t.order = slices.Insert(t.order, i, place)
	}
	t.flows[place] = &f
	return nil
}

func (h *HCA) flowCount() (n int) {
	for _, t := range h.eth.tables.objects {
		n += len(t.flows)
	}
	return n
}

// reach refuses destinations that are not there.
func (h *HCA) reach(t *flowTable, dests []FlowDest) error {
	seen := make(map[FlowDest]bool)
	for _, d := range dests {
		var err error
		if seen[d] {
			return failf(ErrParam, "destination %#x twice", d.Number)
		}
		seen[d] = true
		switch d.Type {
		case FlowToTable:
			err = h.chain(t.Level, d.Number)
		case FlowToTIR:
			_, err = h.eth.tirs.get(d.Number)
		default:
			err = failf(ErrParam, "a flow to destination type %d", d.Type)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reachable counts a flow among the users of a destination.
func (h *HCA) reachable(d FlowDest, n int) {
	if d.Type == FlowToTable {
		h.use(d.Number, n)
	} else if t := h.eth.tirs.objects[d.Number]; t != nil {
		t.users += n
	}
}

func (h *HCA) release(f *Flow) {
	if f != nil {
		for _, d := range f.Dests {
			h.reachable(d, -1)
		}
	}
}

// Flow is the flow at a place of a table.
func (h *HCA) Flow(table, place uint32) (Flow, error) {
	t, err := h.eth.tables.get(table)
	if err != nil {
		return Flow{}, err
	}
	f := t.flows[place]
	if f == nil {
		return Flow{}, failf(ErrResource, "place %d of flow table %#x", place, table)
	}
	return *f, nil
}

// DeleteFlow takes a flow out of a table.
func (h *HCA) DeleteFlow(table, place uint32) error {
	t, err := h.eth.tables.get(table)
	if err != nil {
		return err
	}
	f := t.flows[place]
	if f == nil {
		return failf(ErrResource, "place %d of flow table %#x", place, table)
	}
	h.release(f)
	delete(t.flows, place)
	i, _ := slices.BinarySearch(t.order, place)
	t.order = slices.Delete(t.order, i, i+1)
	return nil
}
