package features

import "slices"

// An eventRule is the first kernel version in which a driver generates an
// asynchronous event.
type eventRule struct {
	driver string
	event  uint32  // enum ib_event_type: 0 is IB_EVENT_CQ_ERR
	since  version // zero: never
	why    string
}

// events has the rules of rxe.
var events = []eventRule{
	{"rxe", 0, always, "CQ error: a completion finds the queue full"},
	{"rxe", 1, never, "QP fatal: a failed responder only sends a NAK and flushes"},
	{"rxe", 2, never, "QP request error: a failed responder only sends a NAK and flushes"},
	{"rxe", 3, version{7, 2}, "QP access error: 7.2 is the first of the bed's kernels that reports a refused RKey"},
	{"rxe", 4, never, "communication established: not reported when packets arrive in RTR"},
	{"rxe", 5, always, "send queue drained: a QP in SQD has sent all requests"},
	{"rxe", 6, never, "path migrated: rxe has no alternate paths"},
	{"rxe", 7, never, "path migration error: rxe has no alternate paths"},
	{"rxe", 8, never, "device fatal: an unload waits for its users"},
	{"rxe", 9, always, "port active: the network interface is up"},
	{"rxe", 10, always, "port error: the network interface is down"},
	{"rxe", 11, never, "LID change: Ethernet has no LIDs"},
	{"rxe", 12, never, "P_Key change: the table has one key"},
	{"rxe", 13, never, "SM change: Ethernet has no subnet manager"},
	{"rxe", 14, never, "SRQ error: receives are checked when posted"},
	{"rxe", 15, always, "SRQ limit: fewer receives than the limit are left"},
	{"rxe", 16, version{6, 12}, "last WQE: 6.12 is the first of the bed's kernels that reports it for a QP of an SRQ"},
	{"rxe", 17, never, "client reregistration: Ethernet has no subnet manager"},
	{"rxe", 18, always, "GID change: an address of the network interface was added or removed"},
	{"rxe", 19, never, "WQ fatal: rxe has no work queues"},
	{"rxe", 20, never, "device speed change: rxe has no speed"},
}

// Event reports whether a kernel's driver generates an asynchronous event, by
// its number, and why. known is false if the list does not have the event.
func Event(kernel, device string, event uint32) (raised bool, why string, known bool) {
	v, ok := parseVersion(kernel)
	if !ok {
		return false, kernel + " is not a kernel version", false
	}
	driver := driverOf(device)
	if driver == Memory {
		driver = "mlx5"
	}
	for _, r := range slices.Concat(events, mlx5Events) {
		if r.driver == driver && r.event == event {
			return r.since != never && !v.before(r.since), r.why, true
		}
	}
	return false, "not in the list of package features", false
}
