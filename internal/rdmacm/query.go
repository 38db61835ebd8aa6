package rdmacm

import (
	"slices"

	"github.com/goverbs/goverbs/internal/uapi"
)

// NoIndex is the IbdevIndex if the kernel does not report it.
const NoIndex = ^uint32(0)

// QueryAddr returns the addresses of an id and, after it is bound to a device, the
// device, port and P_Key. Before, PortNum is 0, and IbdevIndex is not valid. NodeGuid
// and Pkey are big-endian.
func (f *File) QueryAddr(id uint32) (uapi.RdmaUcmQueryAddrResp, error) {
	return f.query(id, uapi.RDMA_USER_CM_QUERY_ADDR)
}

// QueryGID is QueryAddr with addresses of family AF_IB.
func (f *File) QueryGID(id uint32) (uapi.RdmaUcmQueryAddrResp, error) {
	return f.query(id, uapi.RDMA_USER_CM_QUERY_GID)
}

func (f *File) query(id, option uint32) (uapi.RdmaUcmQueryAddrResp, error) {
	c, req := request[uapi.RdmaUcmQuery](uapi.RDMA_USER_CM_CMD_QUERY)
	defer c.put()
	resp, at := reply[uapi.RdmaUcmQueryAddrResp](c)
	resp.IbdevIndex = NoIndex
	req.Response, req.Id, req.Option = at, id, option
	err := f.do(c)
	return *resp, err
}

// maxPaths is more than the kernel has for an id: a primary and an alternate path and,
// if they differ, an inbound and an outbound one.
const maxPaths = 6

// QueryPath returns the paths that ResolveRoute has found.
func (f *File) QueryPath(id uint32) ([]uapi.IbPathRecData, error) {
	c, req := request[uapi.RdmaUcmQuery](uapi.RDMA_USER_CM_CMD_QUERY)
	defer c.put()
	head, paths, at := tableOf[uapi.RdmaUcmQueryPathResp, uapi.IbPathRecData](c, maxPaths)
	req.Response, req.Id, req.Option = at, id, uapi.RDMA_USER_CM_QUERY_PATH
	if err := f.do(c); err != nil {
		return nil, err
	}
	return slices.Clone(paths[:min(head.NumPaths, maxPaths)]), nil
}

// maxServices is the maximum number of records of 176 bytes in a reply, whose size has
// 16 bits.
const maxServices = (0xffff - 8) / 176

// QueryIBService returns the services that ResolveIBService has found.
func (f *File) QueryIBService(id uint32) ([]uapi.IbUserServiceRec, error) {
	for n := 6; ; {
		found, all, err := f.services(id, n)
		if err != nil || all <= n || n == maxServices {
			return found, err
		}
		n = min(all, maxServices)
	}
}

// services queries at most n records. It also returns how many there are.
func (f *File) services(id uint32, n int) ([]uapi.IbUserServiceRec, int, error) {
	c, req := request[uapi.RdmaUcmQuery](uapi.RDMA_USER_CM_CMD_QUERY)
	defer c.put()
	head, recs, at := tableOf[uapi.RdmaUcmQueryIbServiceResp, uapi.IbUserServiceRec](c, n)
	req.Response, req.Id, req.Option = at, id, uapi.RDMA_USER_CM_QUERY_IB_SERVICE
	if err := f.do(c); err != nil {
		return nil, 0, err
	}
	all := int(head.NumServiceRecs)
	return slices.Clone(recs[:min(all, n)]), all, nil
}
