package mlx5

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/firmware"
	"github.com/goverbs/goverbs/uverbs"
)

// Commands of link aggregation, and where their fields are.
const (
	opQueryQP       = 0x50b
	queryQPSize     = 0x10
	queryQPReply    = 0x110
	queryQPPort     = 0x18 // the byte of qpc.lag_tx_port_affinity
	opModifyTIS     = 0x913
	modifyTISSize   = 0xc0
	modifyTISMask   = 0x17 // the byte of bitmask.lag_tx_port_affinity
	modifyTISPort   = 0x20 // the byte of ctx.lag_tx_port_affinity
	changeTISPort   = 1 << 2
	opQueryTIS      = 0x915
	queryTISReply   = 0xb0
	queryTISPort    = 0x10
	opQueryLAG      = 0x842
	queryLAGSize    = 0x10
	queryLAGState   = 0xb // the byte of ctx.lag_state, 3 bits
	lagStateMask    = 7
	queryLAGPort    = 0xf // the byte of ctx.tx_remap_affinity_1; the second port's is before it
	modifyQPMask    = 0x10
	modifyQPPort    = 0x18
	changeLAGPort   = 1 << 15
	portMask        = 0xf
	lagCapByte      = 0x10 + 0x4f // the byte of num_lag_ports
	lagPortCapBit   = 1 << 7      // lag_tx_port_affinity
	lagRTSCapByte   = 0x10 + 0x2a
	lagRTSCapBit    = 1 << 5 // rts2rts_lag_tx_port_affinity
	opQueryLAGPort  = "query the LAG port"
	opModifyLAGPort = "change the LAG port"
)

// QueryLAGPort returns the port of a link aggregation (LAG) that is chosen for a QP, and the active port, through which
// the QP sends: another one while the chosen port is down. Ports begin with 1. The kernel assigns one to each QP of
// type RC, UC, UD, XRCSend, DCI and RawPacket in the transition to INIT. This is mlx5dv_query_qp_lag_port(3).
//
// QueryLAGPort returns an error that matches [uverbs.ErrNotSupported] if the adapter's ports are not aggregated, the QP
// has no port, or the device or the kernel lacks this, [uverbs.ErrInvalid] if the QP is nil or of another type, and
// [uverbs.ErrClosed] after its Close.
func QueryLAGPort(qp *uverbs.QP) (port, active int, err error) {
	err = withLAG(qp, opQueryLAGPort, func(l *lagQP) (err error) {
		port, active, err = l.query()
		return err
	})
	return port, active, err
}

// ModifyLAGPort chooses the port of a link aggregation for a QP, so that a program with several QPs uses the bandwidth
// of all ports: mlx5dv_modify_qp_lag_port(3). The QP is in state RTS; one of type RawPacket may be in any state from
// INIT on. A later change of the state may choose another port.
//
// The errors are those of [QueryLAGPort], [uverbs.ErrNotSupported] for a QP of type XRCSend, and [uverbs.ErrInvalid]
// for other states and ports.
func ModifyLAGPort(qp *uverbs.QP, port int) error {
	return withLAG(qp, opModifyLAGPort, func(l *lagQP) error {
		if port < 1 || port > l.ports {
			return invalid(l.op, "port %d: the LAG has the ports 1 to %d", port, l.ports)
		}
		if _, _, err := l.query(); err != nil {
			return err
		}
		return l.modify(uint8(port))
	})
}

// lagPortsOf returns the number of ports that can be aggregated, or 0, of the device's general capabilities.
func lagPortsOf(general []byte) int {
	if n := int(general[lagCapByte] & portMask); n > 1 {
		return n
	}
	return 0
}

// A lagQP is a QP of an adapter with aggregated ports.
type lagQP struct {
	driver.QPRef
	ctx    *deviceContext
	op     string
	ports  int
	ownCap bool   // QPs have ports even if no LAG is active
	rtsCap bool   // the device changes the port of a QP in state RTS
	tis    uint32 // of type RawPacket
}

func (l *lagQP) kind() uverbs.QPType { return uverbs.QPType(l.Type) }

// withLAG calls f with a QP that may have a port.
func withLAG(qp *uverbs.QP, op string, f func(*lagQP) error) error {
	return withQP(qp, op, func(c *deviceContext, r driver.QPRef) error {
		l := &lagQP{QPRef: r, ctx: c, op: op}
		switch l.kind() {
		case uverbs.RC, uverbs.UC, uverbs.UD, uverbs.XRCSend, uverbs.DCI:
		case uverbs.RawPacket:
			if q := queuesOf(r.QP); q != nil {
				l.tis = q.tis
			}
			if l.tis == 0 {
				return notSupported(op, "the QP has no send queue, or the context has no DevX")
			}
		default:
			return invalid(op, "a QP of type %v has no port", l.kind())
		}
		general, err := c.generalCaps(op)
		if err != nil {
			return err
		}
		if l.ports = lagPortsOf(general); l.ports == 0 {
			return notSupported(op, "the adapter has no ports that can be aggregated")
		}
		l.ownCap = general[lagCapByte]&lagPortCapBit != 0
		l.rtsCap = general[lagRTSCapByte]&lagRTSCapBit != 0
		return f(l)
	})
}

// query returns the QP's port and the one that is used. QUERY_LAG knows two ports.
func (l *lagQP) query() (port, active int, err error) {
	in, out := make([]byte, queryLAGSize), make([]byte, queryLAGSize)
	binary.BigEndian.PutUint16(in, opQueryLAG)
	err = firmware.Execute(l.ctx.dev, l.op, in, out)
	var refused *firmware.StatusError
	switch {
	case errors.As(err, &refused), err == nil && !l.ownCap && out[queryLAGState]&lagStateMask == 0:
		return 0, 0, notSupported(l.op, "the adapter's ports are not aggregated")
	case err != nil:
		return 0, 0, err
	}
	used := [...]byte{1: out[queryLAGPort], 2: out[queryLAGPort-1]}
	if port, err = l.port(); err != nil {
		return 0, 0, err
	}
	if port < 1 || port >= len(used) {
		return 0, 0, notSupported(l.op, fmt.Sprintf("the QP's port is %d: before INIT, or if the LAG chooses ports, it is 0",
			port))
	}
	return port, int(used[port] & portMask), nil
}

// port returns the port in the context of the QP, or of its TIS.
func (l *lagQP) port() (int, error) {
	in, out, at := command(opQueryQP, queryQPSize, l.Number), make([]byte, queryQPReply), queryQPPort
	if l.kind() == uverbs.RawPacket {
		in, out, at = command(opQueryTIS, queryQPSize, l.tis), make([]byte, queryTISReply), queryTISPort
	}
	err := firmware.Query(l.ctx.dev, l.op, l.Handle, in, out)
	return int(out[at] & portMask), err
}

func (l *lagQP) modify(port uint8) error {
	if l.kind() == uverbs.RawPacket {
		in := command(opModifyTIS, modifyTISSize, l.tis)
		in[modifyTISMask] = changeTISPort
		in[modifyTISPort] = port
		return l.ctx.modifyObject(l.op, l.Handle, in)
	}
	switch s := uverbs.QPState(l.State); {
	case l.kind() == uverbs.XRCSend || !l.rtsCap:
		return notSupported(l.op, "the device does not change the port of a QP of type "+l.kind().String())
	case s != uverbs.StateRTS:
		return invalid(l.op, "the QP is in state %v: the port can be changed in state RTS", s)
	}
	in := command(opRTS2RTS, modifyQPSize, l.Number)
	binary.BigEndian.PutUint32(in[modifyQPMask:], changeLAGPort)
	in[modifyQPPort] = port
	return l.ctx.modifyObject(l.op, l.Handle, in)
}
