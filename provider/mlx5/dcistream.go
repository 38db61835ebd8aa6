package mlx5

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
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
	resetStreamDetail = "the device refuses: the stream has not failed, or the DCI has no streams"
)

// ResetDCIStream makes a failed stream of a DCI usable again: mlx5dv_dci_stream_id_reset(3). When a request has
// completed with an error and [uverbs.QP.Query] reports that the DCI is still in state RTS, only the stream of the
// request has failed, and its later requests are flushed. When they have completed, ResetDCIStream resumes the stream.
//
// ResetDCIStream returns an error that matches [uverbs.ErrNotSupported] if the device or the kernel lacks this,
// [uverbs.ErrInvalid] if the QP is nil, not a DCI with streams or not in state RTS, or if the stream has not failed,
// and [uverbs.ErrClosed] after Close of the QP.
func ResetDCIStream(qp *uverbs.QP, stream uint16) error {
	if qp == nil {
		return badStream(unix.EINVAL, "the QP is nil")
	}
	return driver.WithQP(qp, opResetDCIStream, func(r driver.QPRef) error {
		c, ok := r.Impl.(*deviceContext)
		switch t, s := uverbs.QPType(r.Type), uverbs.QPState(r.State); {
		case !ok:
			return notSupported(opResetDCIStream, "the QP is not of an mlx5 device")
		case t != uverbs.DCI:
			return badStream(unix.EINVAL, fmt.Sprintf("the QP is of type %v: only DCIs have streams", t))
		case s != uverbs.StateRTS:
			return badStream(unix.EINVAL, fmt.Sprintf("the DCI is in state %v: its streams can be reset in state RTS", s))
		}
		general, err := c.generalCaps(opResetDCIStream)
		if err == nil && general[extCapByte]&extCapBit == 0 {
			err = notSupported(opResetDCIStream, "the device does not reset streams")
		}
		if err != nil {
			return err
		}
		in := make([]byte, modifyQPExtSize)
		binary.BigEndian.PutUint16(in, opRTS2RTS)
		binary.BigEndian.PutUint32(in[modifyQPNumber:], r.Number)
		in[modifyQPExtByte] |= modifyQPExtBit
		binary.BigEndian.PutUint64(in[modifyQPMore:], resetStreamParam)
		binary.BigEndian.PutUint16(in[modifyQPStream:], stream)
		err = c.modifyObject(r.Handle, in, make([]byte, modifyQPReply))
		if errors.Is(err, unix.EREMOTEIO) || errors.Is(err, unix.EINVAL) {
			return badStream(unix.EINVAL, resetStreamDetail)
		}
		return err
	})
}

func badStream(errno unix.Errno, detail string) error {
	return &uverbs.Error{Op: opResetDCIStream, Kind: uverbs.ErrInvalid, Errno: errno, Detail: detail}
}
