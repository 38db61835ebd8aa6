package nldev

import (
	"slices"

	"github.com/goverbs/goverbs/internal/uapi"
)

// The kernel's numbers of a type and a state of QPs: enum ib_qp_type and ib_qp_state.
const (
	qpTypeGSI  = 1
	qpStateErr = 6
)

// FailedGSI returns the ports of a device whose QP for the messages of the connection manager, the GSI QP, is in state
// ERR. No connection can be established through such a port. The kernel shows its own QPs only in the first PID
// namespace, so the result is empty in most containers. It reads the same as `rdma resource show qp`.
func FailedGSI(dev string) (ports []uint32, err error) { return kernel.failedGSI(dev) }

func (c client) failedGSI(dev string) (ports []uint32, err error) {
	lists, err := fetch(c, query{op: "list queue pairs of", object: dev, cmd: uapi.RDMA_NLDEV_CMD_RES_QP_GET,
		dump: true, ofDevice: true}, decodeFailedGSI)
	if err != nil {
		return nil, err
	}
	ports = slices.Concat(lists...)
	slices.Sort(ports)
	return slices.Compact(ports), nil
}

// decodeFailedGSI decodes a list of QPs and returns the ports of those that have failed.
func decodeFailedGSI(b []byte) (ports []uint32, err error) {
	err = eachEntry(b, uapi.RDMA_NLDEV_ATTR_RES_QP, uapi.RDMA_NLDEV_ATTR_RES_QP_ENTRY, func(data []byte) error {
		var port, kind, state uint32
		_, err := decode(data, map[uint16]any{uapi.RDMA_NLDEV_ATTR_PORT_INDEX: &port,
			uapi.RDMA_NLDEV_ATTR_RES_TYPE: &kind, uapi.RDMA_NLDEV_ATTR_RES_STATE: &state})
		if err == nil && kind == qpTypeGSI && state == qpStateErr {
			ports = append(ports, port)
		}
		return err
	})
	return ports, err
}
