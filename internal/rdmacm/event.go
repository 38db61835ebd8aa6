package rdmacm

import (
	"encoding/binary"
	"errors"
	"os"

	"github.com/goverbs/goverbs/internal/uapi"
)

// NextEvent takes the next event of the file's ids. It parks while there is
// none, and ends with os.ErrDeadlineExceeded at the deadline and with
// os.ErrClosed when the file is closed. Several callers take turns.
//
// A CONNECT_REQUEST carries the uid of the listener and the id of the new
// child. Until Accept has given the child a uid, the kernel drops its events.
// Status is an errno with a minus sign, or the reason of a rejection.
func (f *File) NextEvent(resp *uapi.RdmaUcmEventResp) error {
	c, req := request[uapi.RdmaUcmGetEvent](uapi.RDMA_USER_CM_CMD_GET_EVENT)
	defer c.put()
	out, at := reply[uapi.RdmaUcmEventResp](c)
	req.Response = at
	c.file = f
	seen := f.seen()
	for {
		err := f.conn.Read(c.poll)
		if errors.Is(err, os.ErrDeadlineExceeded) && f.asked(&seen) {
			continue
		}
		if err != nil {
			return f.gone(err)
		}
		break
	}
	if err := f.answer(c); err != nil {
		return err
	}
	*resp = *out
	return nil
}

// ConnParam reads the union of an event of a connected id.
func ConnParam(e *uapi.RdmaUcmEventResp) uapi.RdmaUcmConnParam {
	return view[uapi.RdmaUcmConnParam](e.Param[:])
}

// UDParam reads the union of an event of a datagram id, or of a membership.
func UDParam(e *uapi.RdmaUcmEventResp) uapi.RdmaUcmUdParam {
	return view[uapi.RdmaUcmUdParam](e.Param[:])
}

// Arg reads the union of an event that WriteCMEvent made.
func Arg(e *uapi.RdmaUcmEventResp) uint64 { return binary.NativeEndian.Uint64(e.Param[:]) }
