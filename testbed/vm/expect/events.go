package expect

import "slices"

// eventRule says from which kernel on a driver raises an asynchronous event.
type eventRule struct {
	driver string
	event  uint32  // enum ib_event_type: 0 is IB_EVENT_CQ_ERR
	since  version // zero: never
	why    string
}

// events is the one list of which kernel raises which event.
var events = []eventRule{
	{"rxe", 0, always, "CQ error: a completion finds the queue full"},
	{"rxe", 1, never, "QP fatal: a failed responder answers and flushes, no more"},
	{"rxe", 2, never, "QP request error: a responder that fails answers with a NAK"},
	{"rxe", 3, version{7, 2}, "QP access error: of the bed's kernels 7.2 is the first whose responder tells of a refused RKey"},
	{"rxe", 4, never, "communication established: the responder takes packets in RTR, and tells nobody"},
	{"rxe", 5, always, "send queue drained: a QP that went to SQD has sent all"},
	{"rxe", 6, never, "path migrated: there are no alternate paths"},
	{"rxe", 7, never, "path migration error: there are no alternate paths"},
	{"rxe", 8, never, "device fatal: an unload waits for its users"},
	{"rxe", 9, always, "port active: the network interface is up"},
	{"rxe", 10, always, "port error: the network interface is down"},
	{"rxe", 11, never, "LID change: Ethernet has no LIDs"},
	{"rxe", 12, never, "P_Key change: there is one key"},
	{"rxe", 13, never, "SM change: Ethernet has no subnet manager"},
	{"rxe", 14, never, "SRQ error: the queue checks what it is given, and does not fail"},
	{"rxe", 15, always, "SRQ limit: fewer receives than the limit are left"},
	{"rxe", 16, version{6, 12}, "last WQE: of the bed's kernels 6.12 is the first that raises it for a QP of an SRQ in ERR"},
	{"rxe", 17, never, "client reregistration: Ethernet has no subnet manager"},
	{"rxe", 18, always, "GID change: the network interface has got or lost an address"},
	{"rxe", 19, never, "WQ fatal: there are no work queues"},
	{"rxe", 20, never, "device speed change: rxe has no speed of its own"},
}

// Event tells whether a kernel's driver raises an asynchronous event, and when,
// by its number. What the list does not have is not known.
func Event(kernel, device string, event uint32) (raised bool, why string, known bool) {
	v, ok := parseVersion(kernel)
	if !ok {
		return false, kernel + " is no kernel version", false
	}
	for _, r := range slices.Concat(events, mlx5Events) {
		if r.driver == driverOf(device) && r.event == event {
			return r.since != never && !v.before(r.since), r.why, true
		}
	}
	return false, "the list of package expect does not have it", false
}
