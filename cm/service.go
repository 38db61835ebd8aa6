package cm

import (
	"encoding/binary"
	"math/bits"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A ServiceRecord is a service that a program has registered with the subnet
// administrator of an InfiniBand fabric: IBA vol. 1, 15.2.5.14.
type ServiceRecord struct {
	ServiceID uint64
	GID       uverbs.GID
	PKey      uint16
	Lease     uint32 // seconds
	Key       [16]byte
	Name      string
	Data      [64]byte // for the program, in wire order
}

// ResolveService queries the subnet administrator of the id's fabric for a service
// by its name or, if name is empty, by its number: rdma_resolve_addrinfo(3) with
// RAI_SA. EventAddrinfoResolved or EventAddrinfoError follows, and then
// [ID.Services] returns the result. It requires InfiniBand and Linux 6.18, and
// returns [uverbs.ErrNotSupported] otherwise. It returns [uverbs.ErrInvalid] if name
// is longer than 63 bytes, and [uverbs.ErrClosed] after Close.
func (id *ID) ResolveService(name string, number uint64) error {
	const op = "resolve service"
	var s uapi.RdmaUcmIbService
	if len(name) >= len(s.ServiceName) {
		return invalid(op, name, "the name of a service has at most 63 bytes")
	}
	if name != "" {
		s.Flags = uapi.RDMA_USER_CM_IB_SERVICE_FLAG_NAME
		copy(s.ServiceName[:], name)
	} else {
		s.Flags, s.ServiceId = uapi.RDMA_USER_CM_IB_SERVICE_FLAG_ID, number
	}
	return id.command(op, nil, func() error { return unknownAsENOSYS(id.node.file.ResolveIBService(id.kernelID, &s)) })
}

// Services returns the services that ResolveService has found:
// rdma_query_addrinfo(3). It returns [uverbs.ErrNotSupported] as ResolveService
// does, and [uverbs.ErrClosed] after Close.
func (id *ID) Services() ([]ServiceRecord, error) {
	var all []ServiceRecord
	err := id.command("query services of", nil, func() error {
		records, err := id.node.file.QueryIBService(id.kernelID)
		for k := range records {
			all = append(all, serviceRecord(&records[k]))
		}
		return unknownAsENOSYS(err)
	})
	return all, err
}

func serviceRecord(r *uapi.IbUserServiceRec) ServiceRecord {
	s := ServiceRecord{ServiceID: bits.ReverseBytes64(r.Id), GID: r.Gid, PKey: bits.ReverseBytes16(r.Pkey),
		Lease: bits.ReverseBytes32(r.Lease), Key: r.Key}
	for n, c := range r.Name {
		if c == 0 {
			s.Name = string(r.Name[:n])
			break
		}
	}
	// The numbers are in wire order in memory.
	b := append(make([]byte, 0, len(s.Data)), r.Data8[:]...)
	for _, v := range r.Data16 {
		b = binary.LittleEndian.AppendUint16(b, v)
	}
	for _, v := range r.Data32 {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	for _, v := range r.Data64 {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	copy(s.Data[:], b)
	return s
}
