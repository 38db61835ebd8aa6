package nldev

import (
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/uapi"
)

// FlowControl returns the priorities for which a network device has priority flow control (PFC) enabled: bit n is
// priority n. It returns an error that matches EOPNOTSUPP if the driver of the device cannot report it. It does the
// same as `dcb pfc show dev NETDEV`.
//
// Source: include/uapi/linux/dcbnl.h and net/dcb/dcbnl.c of the kernel.
func FlowControl(netdev string) (uint8, error) {
	t, err := dial(unix.NETLINK_ROUTE, bufferSize, replyTimeout)
	if err != nil {
		return 0, wrap("query flow control", netdev, err)
	}
	defer t.close()
	return flowControl(t, netdev)
}

// dcbLen is the size of struct dcbmsg: family, command, padding.
const dcbLen = 4

func flowControl(t transport, netdev string) (priorities uint8, err error) {
	defer func() {
		if err != nil {
			err = wrap("query flow control", netdev, err)
		}
	}()
	request := appendString([]byte{unix.AF_UNSPEC, uapi.DCB_CMD_IEEE_GET, 0, 0}, uapi.DCB_ATTR_IFNAME, netdev)
	if err := t.send(appendRequest(unix.RTM_GETDCB, unix.NLM_F_REQUEST, 1, request)); err != nil {
		return 0, err
	}
	reply, err := t.receive()
	if err != nil {
		return 0, err
	}
	messages, err := parseMessages(reply)
	if err != nil || len(messages) == 0 {
		return 0, malformed("%d messages: %v", len(messages), err)
	}
	return parseFlowControl(messages[0])
}

// parseFlowControl returns the enabled priorities of struct ieee_pfc, which follow the number of priorities.
func parseFlowControl(m message) (priorities uint8, err error) {
	switch {
	case m.typ == unix.NLMSG_ERROR:
		errno, _, err := ackError(m)
		if err == nil && errno != 0 {
			return 0, errno
		}
		return 0, malformed("an acknowledgement in place of a reply: %v", err)
	case m.typ != unix.RTM_GETDCB || len(m.payload) < dcbLen:
		return 0, malformed("a message of type %d with %d bytes", m.typ, len(m.payload))
	}
	found := false
	err = eachEntry(m.payload[dcbLen:], uapi.DCB_ATTR_IEEE, uapi.DCB_ATTR_IEEE_PFC, func(data []byte) error {
		if len(data) >= 2 {
			found, priorities = true, data[1]
		}
		return nil
	})
	if err == nil && !found {
		return 0, unix.EOPNOTSUPP
	}
	return priorities, err
}
