package rdmacm

import (
	"encoding/binary"
	"errors"
	"os"

	"github.com/goverbs/goverbs/internal/uapi"
)

// NextEvent reads the next event of the file's ids. It waits if there is none. It
// returns os.ErrDeadlineExceeded after the deadline and os.ErrClosed if the file is
// closed. Concurrent callers take turns.
//
// A CONNECT_REQUEST has the uid of the listener and the id of the new child. Until
// Accept has set the child's uid, the kernel drops its events. Status is a negative
// errno or the reason of a rejection.
func (f *File) NextEvent(resp *uapi.RdmaUcmEventResp) error {
	c, req := request[uapi.RdmaUcmGetEvent](uapi.RDMA_USER_CM_CMD_GET_EVENT)
	defer c.put()
	out, at := reply[uapi.RdmaUcmEventResp](c)
	req.Response, c.brief = at, true // the descriptor does not block
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
	if err := f.result(c); err != nil {
		return err
	}
	*resp = *out
	return nil
}

// ConnParam returns the union of an event of a connected id.
func ConnParam(e *uapi.RdmaUcmEventResp) uapi.RdmaUcmConnParam {
	return view[uapi.RdmaUcmConnParam](e.Param[:])
}

// UDParam returns the union of an event of a datagram id or of a membership.
func UDParam(e *uapi.RdmaUcmEventResp) uapi.RdmaUcmUdParam {
	return view[uapi.RdmaUcmUdParam](e.Param[:])
}

// Arg returns the union of an event that WriteCMEvent has added.
func Arg(e *uapi.RdmaUcmEventResp) uint64 { return binary.NativeEndian.Uint64(e.Param[:]) }
