package engine

// A QueueState is the state of a raw Ethernet queue, with its value in the
// context.
type QueueState uint8

const (
	QueueReset QueueState = 0
	QueueReady QueueState = 1
	QueueError QueueState = 3
)

// ethernet has the HCA's raw Ethernet queues, and what refers to them.
type ethernet struct {
	sqs    table[*SQ]
	rqs    table[*RQ]
	tiss   table[*TIS]
	rqts   table[*RQT]
	tirs   table[*TIR]
	tables table[*flowTable]
	roots  map[FlowTableType]uint32
	rates  map[uint16]Rate
	local  [2]bool // local loopback: unicast, multicast
}

func (h *HCA) clearEthernet() {
	l := &h.limits
	h.eth = ethernet{
		// SQs share the doorbells of queue pairs: their numbers follow.
		sqs:    newTable[*SQ]("SQ", firstQPN+uint32(l.QPs), l.EthernetQueues),
		rqs:    newTable[*RQ]("RQ", 1, l.EthernetQueues),
		tiss:   newTable[*TIS]("TIS", 1, l.EthernetQueues),
		rqts:   newTable[*RQT]("RQT", 1, l.EthernetQueues),
		tirs:   newTable[*TIR]("TIR", 1, l.EthernetQueues),
		tables: newTable[*flowTable]("flow table", 1, l.FlowTables),
		roots:  make(map[FlowTableType]uint32),
		rates:  make(map[uint16]Rate),
	}
}

// SetLocalLoopback sets whether frames sent by the host are also steered by its
// own flow tables.
func (h *HCA) SetLocalLoopback(unicast, multicast bool) { h.eth.local = [2]bool{unicast, multicast} }

// LocalLoopback returns the values set by SetLocalLoopback.
func (h *HCA) LocalLoopback() (unicast, multicast bool) { return h.eth.local[0], h.eth.local[1] }

// A TIS is a transport interface for sending: an SQ sends through it.
type TIS struct {
	Number          uint32
	TransportDomain uint32
	// Parameters that the host may change. Frames do not depend on them.
	// LAGPort is a port of the LAG, or 0 for any.
	Priority, LAGPort uint8
	StrictLAGPort     bool

	users int
}

// CreateTIS creates a TIS.
func (h *HCA) CreateTIS(domain uint32) (*TIS, error) {
	t := &TIS{TransportDomain: domain}
	var err error
	t.Number, err = h.eth.tiss.add(t)
	return t, err
}

// TIS returns the TIS with the given number.
func (h *HCA) TIS(number uint32) (*TIS, error) { return h.eth.tiss.get(number) }

// DestroyTIS destroys a TIS that no SQ uses.
func (h *HCA) DestroyTIS(number uint32) error {
	t, err := h.eth.tiss.get(number)
	if err != nil {
		return err
	}
	if t.users > 0 {
		return failf(ErrBusy, "TIS %#x has %d users", number, t.users)
	}
	h.eth.tiss.remove(number)
	return nil
}

// ethernetDomain returns the protection domain of a queue. The kernel has
// queues without one (0), because they use no memory.
func (h *HCA) ethernetDomain(number uint32) (*domain, error) {
	if number == 0 {
		return &domain{}, nil
	}
	return h.pds.get(number)
}

// RQAttr is the context of a raw Ethernet receive queue.
type RQAttr struct {
	CQ           uint32
	UserIndex    uint32
	PD           uint32
	LogSize      uint8
	LogStride    uint8 // log2 of the size of a WQE in bytes
	Buffer       Buffer
	Record       uint64
	StripVLAN    bool // VLAN tags are moved to the completion
	ReservedLKey bool
}

// An RQ is a raw Ethernet receive queue.
type RQ struct {
	RQAttr
	Number uint32

	hca   *HCA
	pd    *domain
	cq    *CQ
	state QueueState
	head  uint16
	users int
}

// CreateRQ creates a receive queue in state Reset.
func (h *HCA) CreateRQ(a RQAttr) (*RQ, error) {
	q := &RQ{RQAttr: a, hca: h}
	var err error
	if q.pd, err = h.ethernetDomain(a.PD); err != nil {
		return nil, err
	}
	if q.cq, err = h.cqs.get(a.CQ); err != nil {
		return nil, err
	}
	if a.LogSize > h.limits.LogWQSize || a.LogStride < 4 || a.LogStride > 11 {
		return nil, failf(ErrLimit, "an RQ of 2^%d elements of 2^%d bytes", a.LogSize, a.LogStride)
	}
	if !a.Buffer.holds(1<<(a.LogSize+a.LogStride)) || a.Record%4 != 0 {
		return nil, failf(ErrParam, "an RQ of 2^%d elements of 2^%d bytes in %d pages, its record at %#x", a.LogSize,
			a.LogStride, len(a.Buffer.Pages), a.Record)
	}
	if err := h.keep(&q.Buffer); err != nil {
		return nil, err
	}
	if q.Number, err = h.eth.rqs.add(q); err != nil {
		h.drop(&q.Buffer)
		return nil, err
	}
	q.pd.users++
	q.cq.addUsers(1)
	return q, nil
}

// RQ returns the receive queue with the given number.
func (h *HCA) RQ(number uint32) (*RQ, error) { return h.eth.rqs.get(number) }

// State returns the queue's state.
func (q *RQ) State() QueueState { return q.state }

// ModifyRQ changes the state of a receive queue.
func (h *HCA) ModifyRQ(number uint32, from, to QueueState) error {
	q, err := h.eth.rqs.get(number)
	if err != nil {
		return err
	}
	if err := checkMove(q.state, from, to); err != nil {
		return err
	}
	q.state = to
	switch to {
	case QueueReset:
		q.head = 0
	case QueueError:
		q.flush()
	}
	return nil
}

// checkMove checks the transition of a queue from one state to another.
func checkMove(is, from, to QueueState) error {
	if is != from {
		return failf(ErrState, "a queue in state %d, not %d", is, from)
	}
	switch to {
	case QueueReset, QueueError:
		return nil
	case QueueReady:
		if from != QueueError {
			return nil
		}
	}
	return failf(ErrState, "from state %d to %d", from, to)
}

// DestroyRQ destroys a receive queue that no TIR and no RQT uses.
func (h *HCA) DestroyRQ(number uint32) error {
	q, err := h.eth.rqs.get(number)
	if err != nil {
		return err
	}
	if q.users > 0 {
		return failf(ErrBusy, "RQ %#x has %d users", number, q.users)
	}
	q.pd.users--
	q.cq.addUsers(-1)
	h.drop(&q.Buffer)
	h.eth.rqs.remove(number)
	return nil
}

// An RQT is a table of receive queues. A packet's hash is the index.
type RQT struct {
	Number uint32
	RQs    []uint32
	users  int
}

// CreateRQT creates a table of receive queues.
func (h *HCA) CreateRQT(rqs []uint32) (*RQT, error) {
	t := &RQT{}
	if err := h.fill(t, rqs); err != nil {
		return nil, err
	}
	var err error
	if t.Number, err = h.eth.rqts.add(t); err != nil {
		h.fill(t, nil)
		return nil, err
	}
	return t, nil
}

// maxRQs is the size of the largest table.
const maxRQs = 1 << 10

// fill replaces the queues of a table.
func (h *HCA) fill(t *RQT, rqs []uint32) error {
	if len(rqs) > maxRQs {
		return failf(ErrLimit, "a table of %d RQs", len(rqs))
	}
	for _, n := range rqs {
		if _, err := h.eth.rqs.get(n); err != nil {
			return err
		}
	}
	for _, n := range rqs {
		h.eth.rqs.objects[n].users++
	}
	for _, n := range t.RQs {
		h.eth.rqs.objects[n].users--
	}
	t.RQs = append([]uint32(nil), rqs...)
	return nil
}

// RQT returns the table with the given number.
func (h *HCA) RQT(number uint32) (*RQT, error) { return h.eth.rqts.get(number) }

// ModifyRQT replaces a table's receive queues.
func (h *HCA) ModifyRQT(number uint32, rqs []uint32) error {
	t, err := h.eth.rqts.get(number)
	if err != nil {
		return err
	}
	return h.fill(t, rqs)
}

// DestroyRQT destroys a table that no TIR uses.
func (h *HCA) DestroyRQT(number uint32) error {
	t, err := h.eth.rqts.get(number)
	if err != nil {
		return err
	}
	if t.users > 0 {
		return failf(ErrBusy, "RQT %#x has %d users", number, t.users)
	}
	h.eth.rqts.remove(number)
	return h.fill(t, nil)
}

// A HashFunction is the hash function of a TIR.
type HashFunction uint8

const (
	HashNone     HashFunction = 0
	HashXOR8     HashFunction = 1 // the inverted XOR of all bytes
	HashToeplitz HashFunction = 2
)

// A HashFields selects the fields of a packet that are hashed.
type HashFields uint8

const (
	HashSrcIP   HashFields = 1 << 0
	HashDstIP   HashFields = 1 << 1
	HashSrcPort HashFields = 1 << 2
	HashDstPort HashFields = 1 << 3
)

// TIRAttr is a TIR's context: the receive queues of its packets.
type TIRAttr struct {
	Indirect        bool
	RQ              uint32 // if not indirect
	RQT             uint32
	Hash            HashFunction
	Key             [40]byte // Toeplitz
	Symmetric       bool     // both directions of a connection have the same hash
	IPv6, UDP       bool     // protocols that are hashed, instead of IPv4 and TCP
	Fields          HashFields
	TransportDomain uint32
	// Frames of SQs of the same transport domain are received only if this is set. (The drivers call the bits
	// "block", and set them to receive such frames.)
	OwnUnicast, OwnMulticast bool
}

// A TIR is a transport interface for receiving: a destination of flows.
type TIR struct {
	TIRAttr
	Number uint32
	users  int
}

// CreateTIR creates a TIR.
func (h *HCA) CreateTIR(a TIRAttr) (*TIR, error) {
	t := &TIR{TIRAttr: a}
	if err := h.addTIRUsers(&a, 1); err != nil {
		return nil, err
	}
	var err error
	if t.Number, err = h.eth.tirs.add(t); err != nil {
		h.addTIRUsers(&a, -1)
		return nil, err
	}
	return t, nil
}

// addTIRUsers adds n to the user counts of the objects that a TIR refers to.
func (h *HCA) addTIRUsers(a *TIRAttr, n int) error {
	if a.Indirect {
		t, err := h.eth.rqts.get(a.RQT)
		if err != nil {
			return err
		}
		t.users += n
		return nil
	}
	q, err := h.eth.rqs.get(a.RQ)
	if err != nil {
		return err
	}
	q.users += n
	return nil
}

// TIR returns the TIR with the given number.
func (h *HCA) TIR(number uint32) (*TIR, error) { return h.eth.tirs.get(number) }

// ModifyTIR replaces all attributes of a TIR.
func (h *HCA) ModifyTIR(number uint32, a TIRAttr) error {
	t, err := h.eth.tirs.get(number)
	if err != nil {
		return err
	}
	if err := h.addTIRUsers(&a, 1); err != nil {
		return err
	}
	h.addTIRUsers(&t.TIRAttr, -1)
	t.TIRAttr = a
	return nil
}

// DestroyTIR destroys a TIR that no flow uses.
func (h *HCA) DestroyTIR(number uint32) error {
	t, err := h.eth.tirs.get(number)
	if err != nil {
		return err
	}
	if t.users > 0 {
		return failf(ErrBusy, "TIR %#x has %d users", number, t.users)
	}
	h.eth.tirs.remove(number)
	return h.addTIRUsers(&t.TIRAttr, -1)
}
