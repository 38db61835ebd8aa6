package mlx5

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/firmware"
	"github.com/goverbs/goverbs/uverbs"
)

// Where the extension of the context is in the command RTS2RTS_QP: see sourceport.go.
const (
	modifyQPExtSize   = 0x1d0
	modifyQPExtByte   = 8 // its highest bit says that there is an extension
	modifyQPExtBit    = 1 << 7
	modifyQPStream    = 0x112 // qpc_data_ext.dci_stream_channel_id
	resetStreamParam  = 1 << 0
	extCapByte        = 0x10 + 0x24 // qpc_extension of the general capabilities
	extCapBit         = 1 << 5
	opResetDCIStream  = "reset stream"
	resetStreamDetail = "the device refuses: the stream has not failed, the DCI has no streams, or it is in state ERR"
)

// ResetDCIStream makes a failed stream of a DCI usable again: mlx5dv_dci_stream_id_reset(3). When a request has
// completed with an error and [uverbs.QP.Query] reports that the DCI is still in state RTS, only the stream of the
// request has failed, and its later requests are flushed. When they have completed, ResetDCIStream resumes the stream.
// A completion does not name its stream: find it by the WRID.
//
// ResetDCIStream returns an error that matches [uverbs.ErrNotSupported] if the device or the kernel lacks this,
// [uverbs.ErrInvalid] if the QP is nil, not a DCI with streams or not in state RTS, or if the stream has not failed,
// and [uverbs.ErrClosed] after Close of the QP.
func ResetDCIStream(qp *uverbs.QP, stream uint16) error {
	return withQP(qp, opResetDCIStream, func(c *deviceContext, r driver.QPRef) error {
		switch t, s := uverbs.QPType(r.Type), uverbs.QPState(r.State); {
		case t != uverbs.DCI:
			return invalid(opResetDCIStream, "the QP is of type %v: only DCIs have streams", t)
		case s != uverbs.StateRTS:
			return invalid(opResetDCIStream, "the DCI is in state %v: its streams can be reset in state RTS", s)
		}
		err := c.need(opResetDCIStream, extCapByte, extCapBit, "the device does not reset streams")
		if err != nil {
			return err
		}
		in := command(opRTS2RTS, modifyQPExtSize, r.Number)
		in[modifyQPExtByte] |= modifyQPExtBit
		binary.BigEndian.PutUint64(in[modifyQPMore:], resetStreamParam)
		binary.BigEndian.PutUint16(in[modifyQPStream:], stream)
		err = c.modifyObject(opResetDCIStream, r.Handle, in)
		var refused *firmware.StatusError
		if errors.As(err, &refused) || errors.Is(err, unix.EINVAL) {
			return &uverbs.Error{Op: opResetDCIStream, Kind: uverbs.ErrInvalid, Errno: unix.EINVAL, Err: err,
				Detail: resetStreamDetail}
		}
		return err
	})
}
