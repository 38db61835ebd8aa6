// Package nldev finds RDMA devices and manages software links through RDMA netlink. It reads from
// sysfs what netlink does not provide.
//
// # Netlink
//
// Each call opens a NETLINK_RDMA socket, sends a request, and closes the socket. Queries need no
// privilege; AddLink and DeleteLink need CAP_NET_ADMIN. A query for a character device makes the
// kernel load the module that provides it (ib_uverbs, rdma_ucm). libibverbs and librdmacm rely on
// this too.
//
// # Sysfs
//
// If the kernel or a container does not allow the socket, Devices and ClientCharDev read
// /sys/class/infiniband_verbs, /sys/class/infiniband and /sys/class/misc. Sysfs has neither the
// device index nor the driver id. Index is then NoIndex, and the driver id is derived (see
// driverID). A caller that must be certain of the driver must use netlink.
//
// # Errors
//
// Every error of the kernel is an *Error. It holds the errno, the text of the extended
// acknowledgement if the kernel sent one, and a hint what to do. If there is no RDMA subsystem,
// errors.Is(err, ErrNoRDMA) is true.
//
// Sources: include/uapi/rdma/rdma_netlink.h and drivers/infiniband/core/nldev.c
// of the kernel; rdma(8).
package nldev
