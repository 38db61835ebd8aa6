package driver

import "github.com/goverbs/goverbs/internal/uapi"

// An Operation is what all providers know of an operation of ibv_post_send(3).
type Operation struct {
	Name       string // of the uverbs.Opcode
	QPs        QPTypes
	Traits     OpTraits
	Completion uint8 // uverbs.WCOpcode
}

// QPTypes are the types of QP on which ibv_post_send(3) allows an operation.
type QPTypes uint8

// The types of QP. RC stands for XRC and DC too.
const (
	OnRC QPTypes = 1 << iota
	OnUC
	OnUD
	OnRaw
	OnSRD
)

// SRD is the uverbs.QPType of scalable reliable datagrams, for which the kernel has no number.
const SRD = 0xe0

// OpTraits say what a request consists of.
type OpTraits uint8

const (
	OpRemote    OpTraits = 1 << iota // has an address and a key of the peer
	OpImm                            // has immediate data
	OpKey                            // has a key to invalidate
	OpScatter                        // writes to its SGEs, so it has no inline form
	OpOperands                       // has the operands of an atomic, and 8 bytes to write to
	OpBare                           // has neither SGEs nor inline data
	OpTraitsEnd                      // the first bit for providers
)

// Opcodes is the length of tables by opcode. It is a power of two, so that code of the hot path can
// limit an opcode by a mask.
const Opcodes = 16

// Operations has the operations by uverbs.Opcode. Where there is none, Name is "". Providers fill
// their tables from it, and the texts and errors of uverbs derive from it: docs/architecture.md
// describes how to add one.
var Operations = [Opcodes]Operation{
	uapi.IB_UVERBS_WR_RDMA_WRITE: {"WRITE", OnRC | OnUC | OnSRD, OpRemote, uapi.IB_UVERBS_WC_RDMA_WRITE},
	uapi.IB_UVERBS_WR_RDMA_WRITE_WITH_IMM: {"WRITE_IMM", OnRC | OnUC | OnSRD, OpRemote | OpImm,
		uapi.IB_UVERBS_WC_RDMA_WRITE},
	uapi.IB_UVERBS_WR_SEND:          {"SEND", OnRC | OnUC | OnUD | OnRaw | OnSRD, 0, uapi.IB_UVERBS_WC_SEND},
	uapi.IB_UVERBS_WR_SEND_WITH_IMM: {"SEND_IMM", OnRC | OnUC | OnUD | OnSRD, OpImm, uapi.IB_UVERBS_WC_SEND},
	uapi.IB_UVERBS_WR_RDMA_READ:     {"READ", OnRC | OnSRD, OpRemote | OpScatter, uapi.IB_UVERBS_WC_RDMA_READ},
	uapi.IB_UVERBS_WR_ATOMIC_CMP_AND_SWP: {"COMPARE_SWAP", OnRC, OpRemote | OpScatter | OpOperands,
		uapi.IB_UVERBS_WC_COMP_SWAP},
	uapi.IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD: {"FETCH_ADD", OnRC, OpRemote | OpScatter | OpOperands,
		uapi.IB_UVERBS_WC_FETCH_ADD},
	uapi.IB_UVERBS_WR_LOCAL_INV:     {"LOCAL_INV", OnRC | OnUC, OpBare | OpKey, uapi.IB_UVERBS_WC_LOCAL_INV},
	uapi.IB_UVERBS_WR_BIND_MW:       {"BIND_MW", OnRC | OnUC, OpBare, uapi.IB_UVERBS_WC_BIND_MW},
	uapi.IB_UVERBS_WR_SEND_WITH_INV: {"SEND_INV", OnRC, OpKey, uapi.IB_UVERBS_WC_SEND},
	// On UD, it is for the queues of IPoIB only, which no program creates.
	uapi.IB_UVERBS_WR_TSO:          {"TSO", OnRaw, 0, uapi.IB_UVERBS_WC_TSO},
	uapi.IB_UVERBS_WR_FLUSH:        {"FLUSH", OnRC, OpRemote | OpBare, uapi.IB_UVERBS_WC_FLUSH},
	uapi.IB_UVERBS_WR_ATOMIC_WRITE: {"ATOMIC_WRITE", OnRC, OpRemote | OpBare, uapi.IB_UVERBS_WC_ATOMIC_WRITE},
}

// OperationOf returns the operation of a uverbs.Opcode, or nil if there is none.
func OperationOf[Opcode ~uint8](op Opcode) *Operation {
	if op >= Opcodes || Operations[op].Name == "" {
		return nil
	}
	return &Operations[op]
}

// On reports whether ibv_post_send(3) allows the operation on QPs of a uverbs.QPType.
func (o *Operation) On(typ uint8) bool {
	switch typ {
	case uapi.IB_UVERBS_QPT_UC:
		return o.QPs&OnUC != 0
	case uapi.IB_UVERBS_QPT_UD:
		return o.QPs&OnUD != 0
	case uapi.IB_UVERBS_QPT_RAW_PACKET:
		return o.QPs&OnRaw != 0
	case SRD:
		return o.QPs&OnSRD != 0
	}
	return o.QPs&OnRC != 0
}
