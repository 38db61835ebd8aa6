package engine

import "slices"

// A FlowTableType is the purpose of a flow table.
type FlowTableType uint8

const (
	NICReceive FlowTableType = 0 // received frames; tables of other types are stored only
)

// A FlowDestType is the type of a flow's destination.
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
	MissTable uint32 // the next table of packets that no flow matches; 0 means none
}

// A FlowGroup is a range of a flow table's entries whose flows have the same
// mask.
type FlowGroup struct {
	First, Last uint32
	// Mask is a fte_match_param (prm.FlowMatch). Criteria selects its parts: 1
	// the outer headers, 2 misc, 4 the inner headers...
	Mask     [512]byte
	Criteria uint8
}

// A Flow is an entry of a flow table: what it matches, and the actions.
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
	order  []uint32 // indices of entries in use, ascending: the first match counts
	users  int
}

// CreateFlowTable creates a table.
func (h *HCA) CreateFlowTable(a FlowTableAttr) (uint32, error) {
	const largest = 24
	if a.LogSize > largest {
		return 0, failf(ErrLimit, "a flow table of 2^%d flows", a.LogSize)
	}
	if err := h.chain(a.Level, a.MissTable); err != nil {
		return 0, err
	}
	n, err := h.eth.tables.add(&flowTable{FlowTableAttr: a, groups: make(map[uint32]*FlowGroup),
		flows: make(map[uint32]*Flow)})
	if err == nil && a.MissTable != 0 {
		h.eth.tables.objects[a.MissTable].users++
	}
	return n, err
}

// chain checks that a table may follow one of a level: it must be of a higher
// level, so that steering ends.
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

// FlowTable returns a table's context.
func (h *HCA) FlowTable(number uint32) (FlowTableAttr, error) {
	t, err := h.eth.tables.get(number)
	if err != nil {
		return FlowTableAttr{}, err
	}
	return t.FlowTableAttr, nil
}

// SetFlowTableMiss sets the next table of packets that no flow of a table
// matches.
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

// SetFlowTableRoot sets the first table of packets; 0 means none.
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

// DestroyFlowTable destroys a table and its contents. No flow and no other
// table may refer to it.
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

// CreateFlowGroup creates a group in a table.
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

// maxDestinations is the maximum number of destinations of a flow.
const maxDestinations = 1 << 8

// SetFlow sets the flow at an index of a table.
func (h *HCA) SetFlow(table, place uint32, f Flow) error {
	t, err := h.eth.tables.get(table)
	if err != nil {
		return err
	}
	g := t.groups[f.Group]
	if g == nil || place < g.First || place > g.Last {
		return failf(ErrParam, "entry %d of flow table %#x is not of group %d", place, table, f.Group)
	}
	if len(f.Dests) > maxDestinations || t.flows[place] == nil && h.flowCount() >= h.limits.Flows {
		return failf(ErrLimit, "%d flows, %d destinations", h.flowCount(), len(f.Dests))
	}
	if err := h.checkDests(t, f.Dests); err != nil {
		return err
	}
	h.release(t.flows[place])
	for _, d := range f.Dests {
		h.addDestUsers(d, 1)
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

// checkDests checks that destinations exist.
func (h *HCA) checkDests(t *flowTable, dests []FlowDest) error {
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

// addDestUsers adds n to the user count of a destination.
func (h *HCA) addDestUsers(d FlowDest, n int) {
	if d.Type == FlowToTable {
		h.use(d.Number, n)
	} else if t := h.eth.tirs.objects[d.Number]; t != nil {
		t.users += n
	}
}

func (h *HCA) release(f *Flow) {
	if f != nil {
		for _, d := range f.Dests {
			h.addDestUsers(d, -1)
		}
	}
}

// Flow returns the flow at an index of a table.
func (h *HCA) Flow(table, place uint32) (Flow, error) {
	t, err := h.eth.tables.get(table)
	if err != nil {
		return Flow{}, err
	}
	f := t.flows[place]
	if f == nil {
		return Flow{}, failf(ErrResource, "entry %d of flow table %#x", place, table)
	}
	return *f, nil
}

// DeleteFlow removes a flow from a table.
func (h *HCA) DeleteFlow(table, place uint32) error {
	t, err := h.eth.tables.get(table)
	if err != nil {
		return err
	}
	f := t.flows[place]
	if f == nil {
		return failf(ErrResource, "entry %d of flow table %#x", place, table)
	}
	h.release(f)
	delete(t.flows, place)
	i, _ := slices.BinarySearch(t.order, place)
	t.order = slices.Delete(t.order, i, i+1)
	return nil
}
