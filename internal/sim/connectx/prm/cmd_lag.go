package prm

// The context of a link aggregation: for each port, the one that is used.
var (
	LAGC                 = layout("lagc", 0x8)
	LAGCPortSelectMode   = LAGC.field("port_select_mode", 0x2, 5, 3)
	LAGCState            = LAGC.field("lag_state", 0x3, 5, 3)
	LAGCTXRemapAffinity2 = LAGC.field("tx_remap_affinity_2", 0x6, 4, 4)
	LAGCTXRemapAffinity1 = LAGC.field("tx_remap_affinity_1", 0x7, 4, 4)
)

var QueryLAGIn = input("query_lag", 0x10)

var (
	QueryLAGOut     = output("query_lag", 0x10)
	QueryLAGOutLAGC = QueryLAGOut.nest("ctx", 0x8, LAGC)
)
