package rdmacm

import (
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// Connect requests a connection from the peer or, for a datagram id, its QP number.
// ConnParam.Valid must be 1.
func (f *File) Connect(req *uapi.RdmaUcmConnect) error {
	c, r := request[uapi.RdmaUcmConnect](uapi.RDMA_USER_CM_CMD_CONNECT)
	defer c.put()
	*r = *req
	return f.do(c)
}

// Listen makes an id accept connection requests. A backlog of 0, or one above the
// kernel's limit (net.rdma_ucm.max_backlog), stands for that limit.
func (f *File) Listen(id, backlog uint32) error {
	c, req := request[uapi.RdmaUcmListen](uapi.RDMA_USER_CM_CMD_LISTEN)
	defer c.put()
	req.Id, req.Backlog = id, backlog
	return f.do(c)
}

// Accept accepts a connection request or, with ConnParam.Valid 0, confirms a response.
// Accepting a request also sets the uid of the id, after which its events can be read.
func (f *File) Accept(req *uapi.RdmaUcmAccept) error {
	c, r := request[uapi.RdmaUcmAccept](uapi.RDMA_USER_CM_CMD_ACCEPT)
	defer c.put()
	*r = *req
	return f.do(c)
}

// Reject rejects a connection request. Reason 0 stands for 28, consumer defined.
func (f *File) Reject(id uint32, reason uint8, data []byte) error {
	c, req := request[uapi.RdmaUcmReject](uapi.RDMA_USER_CM_CMD_REJECT)
	defer c.put()
	if len(data) > 255 {
		return unix.EINVAL
	}
	req.Id, req.Reason, req.PrivateDataLen = id, reason, uint8(copy(req.PrivateData[:], data))
	return f.do(c)
}

// Disconnect ends a connection, or replies to a peer that has ended it. DISCONNECTED
// follows at the peer at once, and here when the peer has replied or the kernel's
// timeout has expired.
func (f *File) Disconnect(id uint32) error {
	c, req := request[uapi.RdmaUcmDisconnect](uapi.RDMA_USER_CM_CMD_DISCONNECT)
	defer c.put()
	req.Id = id
	return f.do(c)
}

// InitQPAttr returns the attributes, with their mask, that move the id's QP to a state.
func (f *File) InitQPAttr(id, qpState uint32) (*uapi.IbUverbsQpAttr, error) {
	c, req := request[uapi.RdmaUcmInitQpAttr](uapi.RDMA_USER_CM_CMD_INIT_QP_ATTR)
	defer c.put()
	resp, at := reply[uapi.IbUverbsQpAttr](c)
	req.Response, req.Id, req.QpState = at, id, qpState
	if err := f.do(c); err != nil {
		return nil, err
	}
	attr := *resp
	return &attr, nil
}

// Notify informs the kernel of an asynchronous event of the id's QP.
func (f *File) Notify(id, event uint32) error {
	c, req := request[uapi.RdmaUcmNotify](uapi.RDMA_USER_CM_CMD_NOTIFY)
	defer c.put()
	req.Id, req.Event = id, event
	return f.do(c)
}

// WriteCMEvent adds an event of the program to the queue. It requires Linux 7.0.
func (f *File) WriteCMEvent(id, event uint32, status int32, arg uint64) error {
	c, req := request[uapi.RdmaUcmWriteCmEvent](uapi.RDMA_USER_CM_CMD_WRITE_CM_EVENT)
	defer c.put()
	req.Id, req.Event, req.Status = id, event, uint32(status)
	putUint64(req.Param[:], arg)
	return f.do(c)
}
