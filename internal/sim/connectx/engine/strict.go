package engine

import (
	"strconv"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// A Rule is a rule of strict mode. Hardware would execute a request that breaks
// a rule, but not as intended.
type Rule string

const (
	RuleReserved       Rule = "reserved"        // a reserved bit is set
	RuleRecord         Rule = "doorbell-record" // the doorbell record is behind the doorbell
	RuleDoorbell       Rule = "doorbell"        // a doorbell differs from the WQE
	RuleUAR            Rule = "uar"             // a doorbell in another page than the queue's
	RuleIndex          Rule = "wqe-index"       // the WQE has another index than its place: wrong wrap
	RuleQPN            Rule = "wqe-qpn"         // the WQE has another queue's number
	RuleBlueFlame      Rule = "blueflame"       // a burst that is incomplete or differs from its WQE
	RuleConsumer       Rule = "consumer"        // a consumer counter that is stale or ahead
	RuleArmRecord      Rule = "arm-record"      // the arm word of the record differs from the doorbell
	RuleCQOverrun      Rule = "cq-overrun"      // no room for a completion
	RuleCQFresh        Rule = "cq-fresh"        // a CQ buffer has entries that look valid before any is written
	RuleKey            Rule = "key"             // a local key that does not exist
	RuleSegments       Rule = "segments"        // segments of the wrong kind or order
	RuleDS             Rule = "ds"              // the size differs from that of the segments
	RuleOpcode         Rule = "opcode"          // an opcode that the queue does not support
	RuleZeroLength     Rule = "zero-length"     // a data segment of length 0: it means 2^31
	RuleSQOverrun      Rule = "sq-overrun"      // a WQE overwrites one that is not completed
	RuleRQOverrun      Rule = "rq-overrun"      // the same in a receive queue
	RuleSRQLink        Rule = "srq-link"        // a next index outside of the SRQ
	RuleUnknownQueue   Rule = "unknown-queue"   // a doorbell for a queue that does not exist
	RuleStore          Rule = "store"           // a store with an invalid size or offset
	RuleInline         Rule = "inline"          // inline data longer than its WQE
	RuleAtomicAddress  Rule = "atomic"          // an atomic's local memory is not eight bytes
	RuleReceiveLate    Rule = "receive-late"    // a message finds no receive request
	RuleReceiveShort   Rule = "receive-length"  // a message is longer than its receive request
	RuleReceiveOverlap Rule = "receive-overlap" // a message replaces another one that was not polled
	RuleLocalAccess    Rule = "local-access"    // a local key, its bounds or its rights are wrong
	RuleRemoteAccess   Rule = "remote-access"   // a remote key, its bounds or its rights are wrong
	RuleRequest        Rule = "request"         // a request fails for another local reason
	RuleDestination    Rule = "destination"     // a packet for a QP that does not exist or is not connected
	RuleQKey           Rule = "qkey"            // a datagram's Q_Key or a request's DC key is not that of its destination
	RuleConnection     Rule = "connection"      // the attributes of the two ends of a connection do not fit
	RuleCQCapacity     Rule = "cq-capacity"     // the completions of what is posted may overrun the CQ
	RuleLostWakeup     Rule = "lost-wakeup"     // a CQ was armed with completions, which raise no event
	RuleUnsignaled     Rule = "unsignaled"      // a send queue is full, and nothing can free it
)

// Rules has all rules but ProgramRules.
var Rules = []Rule{
	RuleReserved, RuleRecord, RuleDoorbell, RuleUAR, RuleIndex, RuleQPN, RuleBlueFlame, RuleConsumer, RuleArmRecord,
	RuleCQOverrun, RuleCQFresh, RuleKey, RuleSegments, RuleDS, RuleOpcode, RuleZeroLength, RuleSQOverrun, RuleRQOverrun,
	RuleSRQLink, RuleUnknownQueue, RuleStore, RuleInline, RuleAtomicAddress,
}

// ProgramRules has the rules of Config.Program.
var ProgramRules = []Rule{
	RuleReceiveLate, RuleReceiveShort, RuleReceiveOverlap, RuleLocalAccess, RuleRemoteAccess, RuleRequest,
	RuleDestination, RuleQKey, RuleConnection, RuleCQCapacity, RuleLostWakeup, RuleUnsignaled,
}

// A Violation is a broken rule, with the place.
type Violation struct {
	Rule     Rule
	Origin   Origin // of the request; nil if unknown
	QPN, CQN uint32 // the queue; zero if not applicable
	SRQN     uint32
	Index    uint16 // of the WQE
	Offset   uint64 // in its ring, in bytes
	WQE      []byte // the bytes written
	Text     string
	Places   []Place // what explains it
	Closing  bool    // found when a queue is reset or destroyed, or by End
}

func (h *HCA) violate(v Violation) {
	if h.config.Strict && h.config.Violation != nil {
		if v.Origin == nil {
			v.Origin = h.origin()
		}
		h.config.Violation(v)
	}
}

// advise reports a broken rule for programs.
func (h *HCA) advise(v Violation) {
	if h.config.Program {
		h.violate(v)
	}
}

func hex[T ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint](v T) string {
	return "0x" + strconv.FormatUint(uint64(v), 16)
}

// checkArm compares an arm doorbell with its record.
func (cq *CQ) checkArm(uar, word uint32) {
	h := cq.hca
	cq.processed += (word>>28 - cq.processed) & 3
	if !h.config.Strict {
		return
	}
	if uar != cq.UAR {
		h.violate(Violation{Rule: RuleUAR, CQN: cq.Number,
			Text: "an arm doorbell in UAR page " + hex(uar) + ", the CQ's is " + hex(cq.UAR)})
	}
	if w, err := h.record(cq.Record + 4); err == nil && w != word && !cq.armedAgain(w, word) {
		h.violate(Violation{Rule: RuleArmRecord, CQN: cq.Number, Text: "the arm doorbell is " + hex(word) + ", its record " +
			hex(w)})
	}
}

// armSolicited is the bit of an arm doorbell for solicited completions only.
const armSolicited = 1 << 24

// armedAgain reports whether a record belongs to a later arm than a doorbell. Only
// a guest's stores are posted: it may have armed again before its doorbell
// arrives, and have processed events meanwhile. A record that seems three
// events later is one event earlier, unless the guest has so many events to
// process: librdmacm polls, arms, polls again, and then leaves the event to
// a later wait. An arm for solicited completions may be followed by one for all,
// without a completion between them.
func (cq *CQ) armedAgain(record, word uint32) bool {
	if cq.hca.config.WholeBursts {
		return false
	}
	sn, ci := (record>>28-word>>28)&3, (record-word)&0xffffff
	extended := word&armSolicited != 0 && record&armSolicited == 0
	return (sn <= 2 || int32(cq.generated-cq.processed) >= 3) && ci < 1<<23 && (sn != 0 || ci != 0 || extended)
}

// maxFresh bounds the number of entries of a new buffer that are checked.
const maxFresh = 1 << 14

// checkFresh looks for entries of a new buffer that the host would take for
// valid completions before they are written.
func (cq *CQ) checkFresh() {
	h := cq.hca
	if !h.config.Strict {
		return
	}
	for i := range min(cq.size(), maxFresh) {
		off := uint64(i)*cq.stride() + cq.stride() - 1
		var b [1]byte
		if h.load(&cq.Buffer, off, b[:]) != nil {
			return
		}
		if b[0]>>4 != prm.CQEInvalid && b[0]&1 == 0 {
			h.violate(Violation{Rule: RuleCQFresh, CQN: cq.Number, Offset: off, WQE: b[:],
				Text: "entry " + hex(i) + " of the new buffer is not marked invalid"})
			return
		}
	}
}
