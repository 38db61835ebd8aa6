package engine

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// Errors of operations on objects. They are wrapped with a description.
var (
	ErrParam    = errors.New("bad parameter")
	ErrResource = errors.New("no such object")
	ErrState    = errors.New("invalid state")
	ErrLimit    = errors.New("limit exceeded")
	ErrBusy     = errors.New("object is in use")
)

func failf(kind error, format string, args ...any) error {
	return fmt.Errorf("engine: %s: %w", fmt.Sprintf(format, args...), kind)
}

// A LinkLayer is the link layer of a port.
type LinkLayer uint8

const (
	InfiniBand LinkLayer = iota
	Ethernet
)

// Limits bound what a host can create. Zero means the default.
type Limits struct {
	PDs, XRCDs, MKeys, CQs, QPs, SRQs int
	LogCQSize                         uint8 // of one CQ
	LogWQSize                         uint8 // of one work queue, in elements or blocks of 64 bytes
	Translations                      int   // bytes of all lists: of memory keys and of queues' pages
	Octowords                         int   // of one memory key's list
	Groups, GroupQPs                  int   // multicast groups, and queue pairs per group
	GIDs, PKeys                       int
	EthernetQueues                    int // SQs, RQs, TIRs..., of each kind
	FlowTables, FlowGroups, Flows     int // groups per table, total flows
}

var defaultLimits = Limits{
	PDs: 1 << 16, XRCDs: 1 << 16, MKeys: 1 << 18, CQs: 1 << 16, QPs: 1 << 17, SRQs: 1 << 16,
	LogCQSize: 22, LogWQSize: 15, Translations: 512 << 20, Octowords: 1 << 22,
	Groups: 1 << 12, GroupQPs: 240, GIDs: 64, PKeys: 128,
	EthernetQueues: 1 << 12, FlowTables: 1 << 10, FlowGroups: 1 << 10, Flows: 1 << 16,
}

func orDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (l *Limits) setDefaults() {
	d := &defaultLimits
	for v, d := range map[*int]int{
		&l.PDs: d.PDs, &l.XRCDs: d.XRCDs, &l.MKeys: d.MKeys, &l.CQs: d.CQs, &l.QPs: d.QPs, &l.SRQs: d.SRQs,
		&l.Translations: d.Translations, &l.Octowords: d.Octowords, &l.Groups: d.Groups, &l.GroupQPs: d.GroupQPs,
		&l.GIDs: d.GIDs, &l.PKeys: d.PKeys,
		&l.EthernetQueues: d.EthernetQueues, &l.FlowTables: d.FlowTables, &l.FlowGroups: d.FlowGroups, &l.Flows: d.Flows,
	} {
		orDefault(v, d)
	}
	orDefault(&l.LogCQSize, d.LogCQSize)
	orDefault(&l.LogWQSize, d.LogWQSize)
}

// Config is the configuration of an HCA.
type Config struct {
	Loop      *loop.Loop
	Memory    Memory
	Events    Events
	LinkLayer LinkLayer
	Limits    Limits
	// CQEVersion 1 writes user indices into completions, 0 SRQ numbers.
	CQEVersion int
	// StaleSRQN makes the completions of send requests contain an SRQ number if
	// CQEVersion is 0, instead of zero: that of the queue pair's SRQ, or else
	// the lowest one. The field has no meaning there, and the host must not
	// read it.
	StaleSRQN bool
	// ShuffleRQ and ShuffleSRQ are how many receive requests a receive queue
	// and an SRQ fetch at a time. Messages use each lot from its end to its
	// beginning, so that receive requests complete out of order. 0 and 1
	// disable this. A host that posts again for each completion can overwrite a
	// request of a full receive queue that is still to be used: a queue with
	// ShuffleRQ must not be filled by more than its size less ShuffleRQ.
	ShuffleRQ, ShuffleSRQ int
	// Reorder is how many packets an out-of-order queue pair sends at a time,
	// from the last to the first. 0 means 4, 1 keeps the order.
	Reorder int
	// WholeBursts is set if the host passes each BlueFlame burst to one Store, and
	// waits for it. Then 8 bytes are a doorbell that no burst follows, a NOP is
	// executed without waiting for one, and an arm doorbell agrees with its record.
	WholeBursts bool
	// Now is the device's clock for time stamps; if nil, nanoseconds since New.
	Now func() uint64
	// Strict checks what the host writes against the rules, see Rule, and
	// reports violations to Violation.
	Strict    bool
	Violation func(Violation)
	// Program adds, to a strict HCA, the rules that only programs can break: the
	// device handles what they post in a defined way, but not as intended.
	Program bool
	// Peer, if not nil, returns the device at the other end of a path, for these rules, or nil if it is unknown.
	Peer   func(*transport.Path) *HCA
	Tracer *trace.Tracer
	// DeviceMemory is the device's own memory. It may be empty.
	DeviceMemory DeviceMemory
	// Pager provides pages of memory on demand. If it is nil, accesses to
	// missing pages fail.
	Pager Pager
}

// An HCA is the device behind the registers: its objects, queues and port.
type HCA struct {
	config Config
	limits Limits

	pds   table[*domain]
	xrcds table[*domain]
	mkeys table[*MKey]
	// windows has the indirect keys that users' queue pairs have updated.
	windows map[*MKey]bool
	cqs     table[*CQ]
	qps     table[*QP]
	srqs    table[*SRQ]

	memory       []*memoryPart // allocated device memory
	translations int           // bytes of the lists of memory keys and queues
	foreign      int           // bytes of ReservePages
	groups       map[[16]byte][]*QP
	management   []*QP // QPs of service QP0 or QP1, oldest first
	port         port
	eth          ethernet
	blueFlame    map[flameRegister]*flame
	fragments    map[flameRegister]fragment
	watch        watch
	injections   []*injection
	toGroup      bool // the packet that is processed is for a multicast group
	counters     Counters
	faults       faults
	incoming     incoming // connections of DCTs
	connections  uint64   // number of the latest connection of a DCI
	fates        fates
	arrived      arrivals
}

// New returns an HCA without objects.
func New(c Config) *HCA {
	c.Limits.setDefaults()
	orDefault(&c.Reorder, 4)
	if c.Now == nil {
		start := c.Loop.Now()
		c.Now = func() uint64 { return uint64(c.Loop.Now().Sub(start)) }
	}
	h := &HCA{config: c, limits: c.Limits}
	h.port.hca = h
	// Targets ignore numbers that are not larger than earlier ones, also those of an earlier device of this address.
	h.connections = uint64(c.Loop.Now().UnixNano())
	h.clear()
	return h
}

// Reset destroys all objects and abandons their work. The link, the port's
// state and its addresses remain.
func (h *HCA) Reset() {
	for _, qp := range h.qps.all() {
		qp.stop()
	}
	for _, cq := range h.cqs.all() {
		cq.stop()
	}
	for _, q := range h.eth.sqs.all() {
		q.stop()
	}
	for _, f := range h.blueFlame {
		f.timer.Stop()
	}
	h.watch.timer.Stop()
	h.clear()
}

func (h *HCA) clear() {
	l := &h.limits
	h.pds = newTable[*domain]("PD", 1, l.PDs)
	h.xrcds = newTable[*domain]("XRC domain", 1, l.XRCDs)
	h.mkeys = newTable[*MKey]("memory key", firstMKey, l.MKeys)
	h.windows = make(map[*MKey]bool)
	h.cqs = newTable[*CQ]("CQ", 1, l.CQs)
	h.qps = newTable[*QP]("QP", firstQPN, l.QPs)
	h.srqs = newTable[*SRQ]("SRQ", 1, l.SRQs)
	h.memory = nil
	h.translations, h.foreign = 0, 0
	h.groups = make(map[[16]byte][]*QP)
	h.management = nil
	h.blueFlame = make(map[flameRegister]*flame)
	h.fragments = make(map[flameRegister]fragment)
	h.watch = watch{hca: h}
	h.injections = nil
	h.faults, h.fates, h.arrived = faults{}, fates{}, nil
	h.incoming = newIncoming()
	h.port.reset()
	h.clearEthernet()
}

// firstQPN is above the numbers of the special queue pairs.
const firstQPN = 0x40

// A domain is a PD or an XRC domain: the number of its objects.
type domain struct{ users int }

// CreatePD creates a protection domain.
func (h *HCA) CreatePD() (uint32, error) { return h.pds.add(&domain{}) }

// DestroyPD destroys a protection domain that no object uses.
func (h *HCA) DestroyPD(number uint32) error { return destroyDomain(&h.pds, number) }

// CreateXRCD creates an XRC domain.
func (h *HCA) CreateXRCD() (uint32, error) { return h.xrcds.add(&domain{}) }

// DestroyXRCD destroys an XRC domain that no object uses.
func (h *HCA) DestroyXRCD(number uint32) error { return destroyDomain(&h.xrcds, number) }

func destroyDomain(t *table[*domain], number uint32) error {
	d, err := t.get(number)
	if err != nil {
		return err
	}
	if d.users > 0 {
		return failf(ErrBusy, "%s %d has %d users", t.kind, number, d.users)
	}
	t.remove(number)
	return nil
}

// A table has the objects of a kind by number. A number is reused only after
// all others, so that delayed packets and events of a destroyed object match
// none.
type table[T any] struct {
	kind        string
	first, next uint32
	limit       int
	objects     map[uint32]T
}

func newTable[T any](kind string, first uint32, limit int) table[T] {
	return table[T]{kind: kind, first: first, next: first, limit: limit, objects: make(map[uint32]T)}
}

func (t *table[T]) add(v T) (uint32, error) {
	if len(t.objects) >= t.limit {
		return 0, failf(ErrLimit, "there are %d of kind %s", t.limit, t.kind)
	}
	for {
		n := t.next
		if t.next++; t.next >= t.first+uint32(t.limit) {
			t.next = t.first
		}
		if _, taken := t.objects[n]; !taken {
			t.objects[n] = v
			return n, nil
		}
	}
}

func (t *table[T]) get(number uint32) (T, error) {
	v, ok := t.objects[number]
	if !ok {
		return v, failf(ErrResource, "%s %#x", t.kind, number)
	}
	return v, nil
}

func (t *table[T]) remove(number uint32) { delete(t.objects, number) }

// all returns the objects ordered by number.
func (t *table[T]) all() []T {
	all := make([]T, 0, len(t.objects))
	for _, n := range slices.Sorted(maps.Keys(t.objects)) {
		all = append(all, t.objects[n])
	}
	return all
}
