package uverbs

// An EventType is the type of an [AsyncEvent]. The values are those of ibv_event_type.
type EventType uint32

// The events of ibv_get_async_event(3).
const (
	EventCQErr            EventType = 0 // the CQ overran, or failed
	EventQPFatal          EventType = 1
	EventQPReqErr         EventType = 2
	EventQPAccessErr      EventType = 3
	EventCommEst          EventType = 4 // the first packet arrived while the QP was in RTR
	EventSQDrained        EventType = 5
	EventPathMig          EventType = 6
	EventPathMigErr       EventType = 7
	EventDeviceFatal      EventType = 8
	EventPortActive       EventType = 9
	EventPortErr          EventType = 10
	EventLIDChange        EventType = 11
	EventPKeyChange       EventType = 12
	EventSMChange         EventType = 13
	EventSRQErr           EventType = 14
	EventSRQLimitReached  EventType = 15
	EventQPLastWQEReached EventType = 16
	EventClientReregister EventType = 17
	EventGIDChange        EventType = 18
	EventWQFatal          EventType = 19
	EventSpeedChange      EventType = 20
)

// String returns the same text as ibv_event_type_str(3).
func (t EventType) String() string {
	names := [...]string{"CQ error", "local work queue catastrophic error", "invalid request local work queue error",
		"local access violation work queue error", "communication established", "send queue drained", "path migrated",
		"path migration request error", "local catastrophic error", "port active", "port error", "LID change",
		"P_Key change", "SM change", "SRQ catastrophic error", "SRQ limit reached", "last WQE reached",
		"client reregistration", "GID table change", "WQ fatal", "device speed change"}
	if int(t) < len(names) {
		return names[t]
	}
	return "unknown event " + itoa(uint64(t))
}

// ofQueue reports whether an event concerns a queue. Those of a newer kernel do not: it is
// unknown what they concern.
func (t EventType) ofQueue() bool { return !t.ofPort() && t <= EventSpeedChange }

// ofPort reports whether an event concerns a port or the whole device.
func (t EventType) ofPort() bool {
	switch t {
	case EventDeviceFatal, EventPortActive, EventPortErr, EventLIDChange, EventPKeyChange, EventSMChange,
		EventClientReregister, EventGIDChange, EventSpeedChange:
		return true
	}
	return false
}
