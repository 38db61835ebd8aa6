package rdmacm

import (
	"errors"

	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// CreateID creates an id of a port space (RDMA_PS_*). The kernel uses qpType only for
// RDMA_PS_IB. Events of the id have this uid.
func (f *File) CreateID(uid uint64, portSpace uint16, qpType uint8) (id uint32, err error) {
	c, req := request[uapi.RdmaUcmCreateId](uapi.RDMA_USER_CM_CMD_CREATE_ID)
	defer c.put()
	resp, at := reply[uapi.RdmaUcmCreateIdResp](c)
	req.Uid, req.Response, req.Ps, req.QpType = uid, at, portSpace, qpType
	err = f.do(c)
	return resp.Id, err
}

// DestroyID destroys an id and drops its unread events. It returns how many events were
// read. It waits until the kernel has finished its work for the id.
func (f *File) DestroyID(id uint32) (events uint32, err error) {
	return f.destroy(uapi.RDMA_USER_CM_CMD_DESTROY_ID, id)
}

// LeaveMulticast ends a membership, given by the number that JoinMulticast returned. It
// returns how many of its events were read.
func (f *File) LeaveMulticast(mc uint32) (events uint32, err error) {
	return f.destroy(uapi.RDMA_USER_CM_CMD_LEAVE_MCAST, mc)
}

func (f *File) destroy(number, id uint32) (events uint32, err error) {
	c, req := request[uapi.RdmaUcmDestroyId](number)
	defer c.put()
	resp, at := reply[uapi.RdmaUcmDestroyIdResp](c)
	req.Response, req.Id = at, id
	err = f.do(c)
	return resp.EventsReported, err
}

// copySockaddr returns the size of the address. Like the kernel, it returns EINVAL if
// the address is too long.
func copySockaddr(dst *[128]byte, addr []byte) (uint16, error) {
	if len(addr) > len(dst) {
		return 0, unix.EINVAL
	}
	return uint16(copy(dst[:], addr)), nil
}

// Bind sets the local address of an id: a sockaddr_in, _in6 or _ib.
func (f *File) Bind(id uint32, addr []byte) error {
	req := &uapi.RdmaUcmBind{Id: id}
	var err error
	if req.AddrSize, err = copySockaddr(&req.Addr, addr); err != nil {
		return err
	}
	return send(f, uapi.RDMA_USER_CM_CMD_BIND, req)
}

// ResolveAddr finds the device that leads to dst, from src if it is not empty.
// ADDR_RESOLVED or ADDR_ERROR follows.
func (f *File) ResolveAddr(id uint32, src, dst []byte, timeoutMS uint32) error {
	req := &uapi.RdmaUcmResolveAddr{Id: id, TimeoutMs: timeoutMS}
	var err, err2 error
	req.SrcSize, err = copySockaddr(&req.SrcAddr, src)
	req.DstSize, err2 = copySockaddr(&req.DstAddr, dst)
	if err = errors.Join(err, err2); err != nil {
		return err
	}
	return send(f, uapi.RDMA_USER_CM_CMD_RESOLVE_ADDR, req)
}

// ResolveRoute finds the path to the resolved address. ROUTE_RESOLVED or ROUTE_ERROR
// follows.
func (f *File) ResolveRoute(id, timeoutMS uint32) error {
	return send(f, uapi.RDMA_USER_CM_CMD_RESOLVE_ROUTE, &uapi.RdmaUcmResolveRoute{Id: id, TimeoutMs: timeoutMS})
}

// ResolveIBService queries the subnet administrator for a service. ADDRINFO_RESOLVED or
// ADDRINFO_ERROR follows. It requires Linux 6.18.
func (f *File) ResolveIBService(id uint32, service *uapi.RdmaUcmIbService) error {
	return send(f, uapi.RDMA_USER_CM_CMD_RESOLVE_IB_SERVICE, &uapi.RdmaUcmResolveIbService{Id: id, Ibs: *service})
}

// JoinMulticast joins a group, given as a socket address. MULTICAST_JOIN or
// MULTICAST_ERROR follows, with uid and mc instead of those of the id.
func (f *File) JoinMulticast(id uint32, uid uint64, addr []byte, joinFlags uint16) (mc uint32, err error) {
	c, req := request[uapi.RdmaUcmJoinMcast](uapi.RDMA_USER_CM_CMD_JOIN_MCAST)
	defer c.put()
	resp, at := reply[uapi.RdmaUcmCreateIdResp](c)
	req.Response, req.Uid, req.Id, req.JoinFlags = at, uid, id, joinFlags
	if req.AddrSize, err = copySockaddr(&req.Addr, addr); err != nil {
		return 0, err
	}
	err = f.do(c)
	return resp.Id, err
}

// SetOption sets an option of an id (RDMA_OPTION_*).
func (f *File) SetOption(id, level, name uint32, value []byte) error {
	c, req := request[uapi.RdmaUcmSetOption](uapi.RDMA_USER_CM_CMD_SET_OPTION)
	defer c.put()
	req.Optval, req.Id, req.Level, req.Optname, req.Optlen = c.attach(value), id, level, name, uint32(len(value))
	return f.do(c)
}

// MigrateID moves an id, with its unread events, from another file to this one. It
// returns how many events were read before. A NextEvent that is waiting on this file
// returns the moved events.
func (f *File) MigrateID(id uint32, from *File) (events uint32, err error) {
	c, req := request[uapi.RdmaUcmMigrateId](uapi.RDMA_USER_CM_CMD_MIGRATE_ID)
	defer c.put()
	resp, at := reply[uapi.RdmaUcmMigrateResp](c)
	req.Response, req.Id = at, id
	// Inside Control, the descriptor of the other file stays open.
	gone := from.conn.Control(func(fd uintptr) {
		req.Fd = uint32(fd)
		err = f.do(c)
	})
	if gone != nil {
		return 0, from.gone(gone)
	}
	if err != nil {
		return 0, err
	}
	f.kick()
	return resp.EventsReported, nil
}
