package mlx5

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/firmware"
	"github.com/goverbs/goverbs/uverbs"
)

// The command RTS2RTS_QP, and where its fields are.
const (
	opRTS2RTS       = 0x505
	modifyQPSize    = 0x110
	modifyQPReply   = 16
	objectNumber    = 8     // 24 bits in a word: a QP or a TIS
	modifyQPSport   = 0x52  // qpc.primary_address_path.udp_sport
	modifyQPMore    = 0x108 // opt_param_mask_95_32
	changeUDPSport  = 1 << 2
	opModifyUDPPort = "change the UDP source port"
)

// ModifyUDPSourcePort sets the UDP source port of the packets of a QP of type RC or UC with RoCE v2, on which networks
// base their choice of a path: mlx5dv_modify_qp_udp_sport(3). The QP is in state RTS.
//
// ModifyUDPSourcePort returns an error that matches [uverbs.ErrNotSupported] if the device, its link layer, its
// firmware or the kernel lacks this, [uverbs.ErrInvalid] if the QP is nil, of another type or in another state, and
// [uverbs.ErrClosed] after its Close.
func ModifyUDPSourcePort(qp *uverbs.QP, port uint16) error {
	return withQP(qp, opModifyUDPPort, func(c *deviceContext, r driver.QPRef) error {
		switch t, s := uverbs.QPType(r.Type), uverbs.QPState(r.State); {
		case t != uverbs.RC && t != uverbs.UC:
			return invalid(opModifyUDPPort, "the QP is of type %v: only RC and UC have a source port", t)
		case s != uverbs.StateRTS:
			return invalid(opModifyUDPPort, "the QP is in state %v: the port can be changed in state RTS", s)
		}
		err := c.need(opModifyUDPPort, sportCapByte, sportCapBit,
			"the device cannot change it: it has no RoCE, or old firmware")
		if err != nil {
			return err
		}
		in := command(opRTS2RTS, modifyQPSize, r.Number)
		binary.BigEndian.PutUint16(in[modifyQPSport:], port)
		binary.BigEndian.PutUint64(in[modifyQPMore:], changeUDPSport)
		return c.modifyObject(opModifyUDPPort, r.Handle, in)
	})
}

// command returns a command of n bytes for a QP or a TIS.
func command(opcode uint16, n int, number uint32) []byte {
	in := make([]byte, n)
	binary.BigEndian.PutUint16(in, opcode)
	binary.BigEndian.PutUint32(in[objectNumber:], number)
	return in
}

// modifyObject executes a command that changes an object of the verbs.
func (c *deviceContext) modifyObject(op string, handle uint32, in []byte) error {
	return firmware.Modify(c.dev, op, handle, in, make([]byte, modifyQPReply))
}

// The command QUERY_HCA_CAP for the current general capabilities, and the place of one in its reply.
const (
	opQueryCap    = 0x100
	queryCapSize  = 16
	queryCapReply = 0x1010
	currentCap    = 1 // op_mod
	sportCapByte  = 0x10 + 0x2a
	sportCapBit   = 1 << 6 // rts2rts_qp_udp_sport
)

// need returns an error that matches uverbs.ErrNotSupported, with the detail why, if a bit of the general capabilities
// is not set.
func (c *deviceContext) need(op string, at int, bit byte, why string) error {
	general, err := c.generalCaps(op)
	if err == nil && general[at]&bit == 0 {
		err = notSupported(op, why)
	}
	return err
}

// generalCaps returns the device's general capabilities, as the reply of QUERY_HCA_CAP has them, for op. It asks the
// device once.
func (c *deviceContext) generalCaps(op string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.general == nil {
		out, err := c.queryCaps(op, currentCap)
		if err != nil {
			return nil, err
		}
		c.general = out
	}
	return c.general, nil
}

// capsOrNone is generalCaps, but without DevX, when there is no way to ask the device, no capability is set.
func (c *deviceContext) capsOrNone(op string) ([]byte, error) {
	general, err := c.generalCaps(op)
	if errors.Is(err, uverbs.ErrNotSupported) {
		return make([]byte, queryCapReply), nil
	}
	return general, err
}

// queryCaps executes QUERY_HCA_CAP and returns its reply.
func (c *deviceContext) queryCaps(op string, mod uint16) ([]byte, error) {
	in, out := make([]byte, queryCapSize), make([]byte, queryCapReply)
	binary.BigEndian.PutUint16(in, opQueryCap)
	binary.BigEndian.PutUint16(in[6:], mod)
	switch err := firmware.Execute(c.dev, op, in, out); err {
	case nil:
		return out, nil
	case unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EINVAL:
		return nil, notSupported(op, "the device or the kernel has no DevX")
	default:
		return nil, err
	}
}
