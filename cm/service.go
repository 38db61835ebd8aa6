package cm

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"time"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A ServiceRecord is a service that a program has registered with the subnet
// administrator of an InfiniBand fabric: IBA vol. 1, 15.2.5.14.
type ServiceRecord struct {
	ServiceID uint64
	GID       uverbs.GID
	PKey      uint16
	Lease     time.Duration // in whole seconds
	Key       [16]byte
	Name      string
	Data      [64]byte // for the program, in wire order
}

// ResolveService queries the subnet administrator of the id's fabric for a service
// by its name or, if name is empty, by its number: rdma_resolve_addrinfo(3) with
// RAI_SA. EventAddrinfoResolved or EventAddrinfoError follows, and then
// [ID.Services] returns the result. Call it after Bind to a device's address and
// before ResolveAddr. It requires InfiniBand and Linux 6.18, and returns
// [uverbs.ErrNotSupported] otherwise. It returns [uverbs.ErrInvalid] if name is longer
// than 63 bytes, if the id is not bound to a device, if its address or a service is
// already resolved, and [uverbs.ErrClosed] after Close.
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
	return id.command(op, nil, func() error {
		return id.serviceError(op, id.node.file.ResolveIBService(id.kernelID, &s))
	})
}

// noServices is the explanation of ENOSYS.
const noServices = "the kernel cannot resolve services: Linux 6.18 and newer can"

// serviceError explains the errors of ResolveService. The caller holds id.mu.
func (id *ID) serviceError(op string, err error) error {
	detail := ""
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		detail = "the subnet administrator of an InfiniBand fabric resolves services:" +
			" bind the id to a device on such a fabric"
	case !errors.Is(err, unix.EINVAL):
	case !id.kernelHasServices():
		err, detail = unix.ENOSYS, noServices
	case id.dev == nil:
		detail = "the id is not bound to a device: Bind it to a device's address first"
	default:
		detail = "the id's address or a service is resolved already, or the id listens:" +
			" call ResolveService once, between Bind and ResolveAddr"
	}
	return id.wrap(op, id.describe(), err, detail)
}

// kernelHasServices reports whether the kernel has the command of ResolveService. To an
// unknown command it returns EINVAL, as to an id in the wrong state, but it returns
// ENOSYS to the query of the result, which came with the command.
func (id *ID) kernelHasServices() bool {
	_, err := id.node.file.QueryIBService(id.kernelID)
	return !errors.Is(err, unix.ENOSYS)
}

// Services returns the services that ResolveService has found:
// rdma_query_addrinfo(3). It returns ENODATA if ResolveService has not found any yet,
// [uverbs.ErrNotSupported] on kernels before 6.18, and [uverbs.ErrClosed] after Close.
func (id *ID) Services() ([]ServiceRecord, error) {
	var all []ServiceRecord
	err := id.command("query services of", explainServices, func() error {
		records, err := id.node.file.QueryIBService(id.kernelID)
		for k := range records {
			all = append(all, serviceRecord(&records[k]))
		}
		return err
	})
	return all, err
}

func explainServices(err error) string {
	switch {
	case errors.Is(err, unix.ENODATA):
		return "no service is resolved: call ResolveService and wait for EventAddrinfoResolved"
	case errors.Is(err, unix.ENOSYS):
		return noServices
	}
	return ""
}

func serviceRecord(r *uapi.IbUserServiceRec) ServiceRecord {
	s := ServiceRecord{ServiceID: bits.ReverseBytes64(r.Id), GID: r.Gid, PKey: bits.ReverseBytes16(r.Pkey),
		Lease: time.Duration(bits.ReverseBytes32(r.Lease)) * time.Second, Key: r.Key}
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
