package rdmacm

// The events, enum rdma_cm_event_type (rdma/rdma_cm.h). Their numbers are part of the
// ABI, but none of its headers defines them.
const (
	EventAddrResolved     = 0
	EventAddrError        = 1
	EventRouteResolved    = 2
	EventRouteError       = 3
	EventConnectRequest   = 4
	EventConnectResponse  = 5
	EventConnectError     = 6
	EventUnreachable      = 7
	EventRejected         = 8
	EventEstablished      = 9
	EventDisconnected     = 10
	EventDeviceRemoval    = 11
	EventMulticastJoin    = 12
	EventMulticastError   = 13
	EventAddrChange       = 14
	EventTimewaitExit     = 15
	EventAddrinfoResolved = 16
	EventAddrinfoError    = 17
	EventUser             = 18
	EventInternal         = 19
)

// Reasons for Reject (IBA vol. 1, 12.6.7.2).
const (
	RejectConsumer     = 28
	RejectVendorOption = 35
)
