package rdmacm

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// Connect requests a connection from the peer or, for a datagram id, its QP number.
// ConnParam.Valid must be 1.
func (f *File) Connect(req *uapi.RdmaUcmConnect) error {
	return send(f, uapi.RDMA_USER_CM_CMD_CONNECT, req)
}

// ConnectUntil is Connect, and returns ECANCELED if s ends it.
func (f *File) ConnectUntil(s *Stop, req *uapi.RdmaUcmConnect) error {
	c, payload := request[uapi.RdmaUcmConnect](uapi.RDMA_USER_CM_CMD_CONNECT)
	defer c.put()
	*payload, c.stop = *req, s
	return f.do(c)
}

// Listen makes an id accept connection requests. A backlog of 0, or one above the
// kernel's limit (net.rdma_ucm.max_backlog), stands for that limit.
func (f *File) Listen(id, backlog uint32) error {
	return send(f, uapi.RDMA_USER_CM_CMD_LISTEN, &uapi.RdmaUcmListen{Id: id, Backlog: backlog})
}

// Accept accepts a connection request or, with ConnParam.Valid 0, confirms a response.
// Accepting a request also sets the uid of the id, after which its events can be read.
func (f *File) Accept(req *uapi.RdmaUcmAccept) error {
	return send(f, uapi.RDMA_USER_CM_CMD_ACCEPT, req)
}

// Reject rejects a connection request. Reason 0 stands for 28, consumer defined.
func (f *File) Reject(id uint32, reason uint8, data []byte) error {
	if len(data) > 255 {
		return unix.EINVAL
	}
	req := &uapi.RdmaUcmReject{Id: id, Reason: reason, PrivateDataLen: uint8(len(data))}
	copy(req.PrivateData[:], data)
	return send(f, uapi.RDMA_USER_CM_CMD_REJECT, req)
}

// Disconnect ends a connection, or replies to a peer that has ended it. DISCONNECTED
// follows at the peer at once, and here when the peer has replied or the kernel's
// timeout has expired.
func (f *File) Disconnect(id uint32) error {
	return send(f, uapi.RDMA_USER_CM_CMD_DISCONNECT, &uapi.RdmaUcmDisconnect{Id: id})
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
	return send(f, uapi.RDMA_USER_CM_CMD_NOTIFY, &uapi.RdmaUcmNotify{Id: id, Event: event})
}

// WriteCMEvent adds an event of the program to the queue. It requires Linux 7.0.
func (f *File) WriteCMEvent(id, event uint32, status int32, arg uint64) error {
	req := &uapi.RdmaUcmWriteCmEvent{Id: id, Event: event, Status: uint32(status)}
	binary.NativeEndian.PutUint64(req.Param[:], arg)
	return send(f, uapi.RDMA_USER_CM_CMD_WRITE_CM_EVENT, req)
}
