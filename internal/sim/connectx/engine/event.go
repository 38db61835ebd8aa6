package engine

// Events receives the events of an HCA.
type Events interface {
	// Completion reports a completion event of an armed CQ.
	Completion(cq *CQ)
	// Async reports an asynchronous event.
	Async(e AsyncEvent)
}

// An EventType is the type of an asynchronous event, with its value in an event
// queue's entry.
type EventType uint8

const (
	EventPathMigrated    EventType = 0x01
	EventEstablished     EventType = 0x02
	EventSQDrained       EventType = 0x03
	EventCQError         EventType = 0x04
	EventQPFatal         EventType = 0x05
	EventMigrationFailed EventType = 0x07
	EventPort            EventType = 0x09
	EventQPRequest       EventType = 0x10
	EventQPAccess        EventType = 0x11
	EventSRQCatastrophic EventType = 0x12
	EventLastWQE         EventType = 0x13
	EventSRQLimit        EventType = 0x14
	EventDCTDrained      EventType = 0x1c
	EventDCTKeyViolation EventType = 0x1d
)

// A Queue is the kind of object to which an event's number belongs, as the
// queue type in an event queue's entry.
type Queue uint8

const (
	QueueQP Queue = 0
	QueueRQ Queue = 1
	QueueSQ Queue = 2
)

// Sub-types of EventPort.
const (
	PortDown   = 1
	PortActive = 4
)

// Syndromes of EventCQError.
const (
	CQOverrun         = 1
	CQAccessViolation = 2
)

// An AsyncEvent is an asynchronous event.
type AsyncEvent struct {
	Type     EventType
	SubType  uint8  // EventPort
	Queue    Queue  // events of queue pairs
	Number   uint32 // of the QP, CQ or SRQ; 1 for the port
	Syndrome uint8  // EventCQError
}

func (h *HCA) async(t EventType, number uint32) {
	h.config.Events.Async(AsyncEvent{Type: t, Number: number})
}
