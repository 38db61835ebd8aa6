package cm

import (
	"net/netip"
	"strconv"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// EventType says what an [Event] reports. The values are those of
// rdma_cm_event_type.
type EventType uint32

// The events of rdma_get_cm_event(3).
const (
	EventAddrResolved     EventType = 0
	EventAddrError        EventType = 1
	EventRouteResolved    EventType = 2
	EventRouteError       EventType = 3
	EventConnectRequest   EventType = 4
	EventConnectResponse  EventType = 5 // only for an id without a QP: answer with Establish
	EventConnectError     EventType = 6
	EventUnreachable      EventType = 7
	EventRejected         EventType = 8
	EventEstablished      EventType = 9
	EventDisconnected     EventType = 10
	EventDeviceRemoval    EventType = 11
	EventMulticastJoin    EventType = 12
	EventMulticastError   EventType = 13
	EventAddrChange       EventType = 14
	EventTimewaitExit     EventType = 15
	EventAddrinfoResolved EventType = 16
	EventAddrinfoError    EventType = 17
	EventUser             EventType = 18
	EventInternal         EventType = 19
)

var eventNames = [...]string{"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST",
	"CONNECT_RESPONSE", "CONNECT_ERROR", "UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL",
	"MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT", "ADDRINFO_RESOLVED", "ADDRINFO_ERROR"}

// String is what rdma_event_str(3) answers.
func (t EventType) String() string {
	if int(t) < len(eventNames) {
		return "RDMA_CM_EVENT_" + eventNames[t]
	}
	return "UNKNOWN EVENT"
}

// An Event is something that happened to an id: struct rdma_cm_event. It is
// acknowledged by being returned, and stays valid: what it holds are copies.
type Event struct {
	Type     EventType
	ID       *ID // for a connection request the new id
	Listener *ID // for a connection request the id that listens
	Status   int // 0, a negative errno, or for EventRejected a [RejectReason]

	PrivateData []byte      // from the peer, padded with zeros as the kernel delivers it
	Conn        ConnParam   // of a connected id: what the peer asked for, or agreed to
	UD          UDParam     // of a UD id, and of EventMulticastJoin
	ECE         ECE         // the peer's vendor options
	Membership  *Membership // of EventMulticastJoin and EventMulticastError
	Arg         uint64      // of EventUser

	object string
	err    error // why the library, not the kernel, made it an error
}

// UDParam is where to send datagrams: struct rdma_ud_param.
type UDParam struct {
	AH   uverbs.AHAttr
	QPN  uint32
	QKey uint32
}

// eventOps are the operations that failed when an event is an error.
var eventOps = map[EventType]string{EventAddrError: "resolve address", EventRouteError: "resolve route", EventConnectError: "connect",
	EventUnreachable: "connect", EventRejected: "connect", EventMulticastError: "join", EventAddrinfoError: "resolve service"}

// Err returns nil, or the error that the event reports. [ErrRejected],
// [ErrUnreachable], [ErrTimeout], [ErrDisconnected], [uverbs.ErrNoDevice] or
// [uverbs.ErrDeviceGone] as a rule, or what went wrong in the library's own
// part.
func (e *Event) Err() error {
	op := eventOps[e.Type]
	switch {
	case e.err != nil:
		return e.err
	case e.Type == EventDeviceRemoval:
		return &Error{Op: "use", Object: e.object, Kind: uverbs.ErrDeviceGone, Errno: unix.EIO, Detail: "the device has been removed: close the id"}
	case e.Type == EventDisconnected:
		return &Error{Op: "use", Object: e.object, Kind: ErrDisconnected, Errno: unix.ECONNRESET, Detail: "the connection has ended"}
	case e.Type == EventRejected:
		return e.rejected(RejectReason(e.Status), RejectReason(e.Status).String())
	case e.Type == EventUnreachable && e.Status > 0:
		return e.refused()
	case op == "" && e.Status >= 0:
		return nil
	case op == "":
		op = "wait for " + e.Type.String()
	}
	errno := unix.Errno(max(e.Status, -e.Status))
	kind := kindOf(errno)
	if e.Type == EventUnreachable {
		kind = ErrUnreachable
	}
	return &Error{Op: op, Object: e.object, Kind: kind, Errno: errno, Detail: explainStatus(e.Type, errno)}
}

func (e *Event) rejected(r RejectReason, why string) error {
	return &Error{Op: eventOps[e.Type], Object: e.object, Kind: ErrRejected, Errno: unix.ECONNREFUSED, Reason: r,
		PrivateData: e.PrivateData, Detail: "rejected: " + why}
}

// refused is what a peer answers that was asked where to send datagrams: IBA
// vol. 1, 12.11.2.3.
func (e *Event) refused() error {
	const unsupported, refused, noQP = 1, 2, 3
	switch e.Status {
	case unsupported:
		return e.rejected(RejectInvalidServiceID, RejectInvalidServiceID.String())
	case refused:
		return e.rejected(RejectConsumer, RejectConsumer.String())
	case noQP:
		return e.rejected(RejectNoQP, RejectNoQP.String())
	}
	return e.rejected(0, "status "+strconv.Itoa(e.Status))
}

// explainStatus says what an event's errno means.
func explainStatus(t EventType, errno unix.Errno) string {
	switch {
	case t == EventAddrError && errno == unix.ENODEV:
		return "no RDMA device has that address, or leads to it: see `rdma link`"
	case t == EventAddrError && (errno == unix.ENETUNREACH || errno == unix.EHOSTUNREACH):
		return "no route to it: check the routing table and that the interface is up"
	case t == EventAddrError && errno == unix.ETIMEDOUT:
		return "the neighbour does not answer: check that it is up, or allow more time"
	case t == EventRouteError && errno == unix.ETIMEDOUT:
		return "nobody has told the way in time: check the subnet manager, or allow more time"
	case t == EventUnreachable && errno == unix.ETIMEDOUT:
		return "the peer does not answer: check that it is up and that UDP port 4791 is open both ways"
	case t == EventUnreachable:
		return "no answer from the peer"
	case t == EventMulticastError:
		return "the network has not let the id join, or has ended its membership"
	case t == EventConnectError && errno == unix.ETIMEDOUT:
		return "the peer has not confirmed in time"
	}
	return ""
}

// describe names an id in errors.
func describe(peer, local netip.AddrPort) string {
	switch {
	case peer.IsValid():
		return peer.String()
	case local.IsValid():
		return local.String()
	}
	return "id"
}
