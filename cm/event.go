package cm

import (
	"errors"
	"net/netip"
	"strconv"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// EventType is the type of an [Event]. The values are those of rdma_cm_event_type.
type EventType uint32

// The events of rdma_get_cm_event(3).
const (
	EventAddrResolved     EventType = 0
	EventAddrError        EventType = 1
	EventRouteResolved    EventType = 2
	EventRouteError       EventType = 3
	EventConnectRequest   EventType = 4
	EventConnectResponse  EventType = 5 // only for an id without a QP: call Establish
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
)

// eventInternal is an event that librdmacm writes to itself. Programs do not see it.
const eventInternal EventType = 19

var eventNames = [...]string{"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST",
	"CONNECT_RESPONSE", "CONNECT_ERROR", "UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL",
	"MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT", "ADDRINFO_RESOLVED", "ADDRINFO_ERROR"}

// String returns the same name as rdma_event_str(3).
func (t EventType) String() string {
	if int(t) < len(eventNames) {
		return "RDMA_CM_EVENT_" + eventNames[t]
	}
	return "UNKNOWN EVENT"
}

// An Event reports something that happened to an id: struct rdma_cm_event. It is
// already acknowledged when it is returned. It contains copies and stays valid.
type Event struct {
	Type     EventType
	ID       *ID // for a connection request, the new id
	Listener *ID // for a connection request, the id that listens
	Status   int // 0, a negative errno, or for EventRejected a [RejectReason]

	PrivateData []byte      // from the peer, padded with zeros as the kernel delivers it
	Conn        ConnParam   // for connected ids: what the peer requests or has accepted
	UD          UDParam     // for UD ids and EventMulticastJoin
	ECE         ECE         // the peer's vendor options
	Membership  *Membership // for EventMulticastJoin and EventMulticastError
	Arg         uint64      // for EventUser

	subject subject
	err     error // set if the library, not the kernel, made the event an error
	// withdrawn is set if the peer has ended the handshake before this side could
	// confirm it. The kernel's event of that follows: EventRejected, with unconfirmed set.
	withdrawn, unconfirmed bool
}

// A subject is what an event is about. Its name is formatted only for errors: most events are not errors.
type subject struct {
	name        string // of a membership
	peer, local netip.AddrPort
	rnic        bool // of an id on a device of iWARP
}

func (s subject) String() string {
	if s.name != "" {
		return s.name
	}
	return describe(s.peer, s.local)
}

// eventOps has the operation that failed for each event that reports an error.
var eventOps = map[EventType]string{
	EventAddrError:      "resolve address",
	EventRouteError:     "resolve route",
	EventConnectError:   "connect",
	EventUnreachable:    "connect",
	EventRejected:       "connect",
	EventMulticastError: "join",
	EventAddrinfoError:  "resolve service",
}

// Err returns the error that the event reports, or nil. Usually it is [ErrRejected],
// [ErrUnreachable], [ErrTimeout], [ErrDisconnected], [uverbs.ErrNoDevice] or
// [uverbs.ErrDeviceGone]. It may also be an error of the library's own steps. An
// established connection that the peer rejects has ended: the error is
// [ErrDisconnected]. A rejection also matches the reason that the server has sent:
// [ErrServerBusy], [ErrServerLimit], [ErrVersion], [ErrUnauthenticated] or [ErrProtocol].
func (e *Event) Err() error {
	op := eventOps[e.Type]
	switch {
	case e.err != nil:
		return e.err
	case e.Type == EventDeviceRemoval:
		return &Error{Object: e.subject.String(), Kind: uverbs.ErrDeviceGone, Errno: unix.EIO,
			Detail: "the device has been removed: close the id"}
	case e.Type == EventDisconnected:
		return &Error{Object: e.subject.String(), Kind: ErrDisconnected, Errno: unix.ECONNRESET,
			Detail: "the connection has ended"}
	case e.Type == EventRejected:
		r := rejectReason(e.Status)
		return e.rejected(r, r.String())
	case e.Type == EventUnreachable && e.Status > 0:
		return e.lookupError()
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
	detail := explainStatus(e.Type, errno)
	switch {
	case !e.subject.rnic:
	case e.Type == EventUnreachable && errno == unix.ETIMEDOUT:
		detail = "the peer has accepted the TCP connection and not replied: check that its program runs"
	case e.Type == EventConnectError && errno == unix.EINVAL:
		detail = "the reply of the peer's kernel is not valid: on iWARP, the server must not send before the client has"
	}
	return &Error{Op: op, Object: e.subject.String(), Kind: kind, Errno: errno, Detail: detail}
}

// rejectReason returns the reason of a status, which on iWARP is the errno of the TCP connection.
func rejectReason(status int) RejectReason {
	switch {
	case status >= 0:
		return RejectReason(status)
	case unix.Errno(-status) == unix.ECONNREFUSED:
		return RejectInvalidServiceID
	}
	return RejectConsumer
}

func (e *Event) rejected(r RejectReason, why string) error {
	reason, text := parseRefusal(e.PrivateData)
	switch {
	case reason != nil:
		why = kindText(reason)
	case e.unconfirmed: // an end without a reason, after the peer had accepted
		reason, why = ErrServerBusy, "the server was busy, closed its listener or has ended:"+
			" it did not wait for the confirmation of the connection"
	}
	if text != "" {
		why += ": " + strconv.Quote(text)
	}
	return &Error{Op: eventOps[e.Type], Object: e.subject.String(), Kind: ErrRejected, Errno: unix.ECONNREFUSED, Reason: r,
		PrivateData: e.PrivateData, Detail: "rejected: " + why, Err: reason}
}

// lookupError returns the error for a peer's negative reply to a request for its QP
// number: IBA vol. 1, 12.11.2.3.
func (e *Event) lookupError() error {
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

// checkPeer is the advice if a peer does not reply to a request for a connection. A
// device can also have failed: rxe may send and receive no requests any more after an
// outage, which doctor finds.
const checkPeer = "check that it is up and that UDP port 4791 is open both ways, and run `doctor` on both machines"

// explainStatus returns an explanation of an event's errno.
func explainStatus(t EventType, errno unix.Errno) string {
	switch {
	case t == EventAddrError && errno == unix.ENODEV:
		return "no RDMA device has that address, or leads to it: see `rdma link`"
	case t == EventAddrError && (errno == unix.ENETUNREACH || errno == unix.EHOSTUNREACH):
		return "no route to it: check the routing table and that the interface is up"
	case t == EventAddrError && errno == unix.ETIMEDOUT:
		return "the neighbor did not reply to ARP or neighbor discovery: check that it is up, or allow more time"
	case t == EventRouteError && errno == unix.ETIMEDOUT:
		return "the subnet administrator did not reply in time: check the subnet manager, or allow more time"
	case t == EventUnreachable && errno == unix.ETIMEDOUT:
		return "the peer did not reply: " + checkPeer
	case t == EventUnreachable:
		return "no reply from the peer"
	case t == EventMulticastError:
		return "the network refused the join or ended the membership"
	case t == EventConnectError && errno == unix.ETIMEDOUT:
		return "the peer has not confirmed in time"
	}
	return ""
}

// fail turns the event into one that reports err, an error of the library's part.
func (e *Event) fail(t EventType, err error) {
	errno := unix.EIO
	var own *Error
	var verbs *uverbs.Error
	switch {
	case errors.As(err, &own) && own.Errno != 0:
		errno = own.Errno
	case errors.As(err, &verbs) && verbs.Errno != 0:
		errno = verbs.Errno
	}
	e.Type, e.Status, e.err = t, -int(errno), err
}
