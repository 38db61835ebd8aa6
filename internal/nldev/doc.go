// Package nldev finds RDMA devices and manages software links through RDMA
// netlink, and reads from sysfs what netlink does not give.
//
// # Netlink
//
// Each call opens a NETLINK_RDMA socket, asks, and closes it. Asking needs no
// privilege; AddLink and DeleteLink need CAP_NET_ADMIN. Asking for a character
// device makes the kernel load the module that provides it (ib_uverbs, rdma_ucm),
// as libibverbs and librdmacm rely on too.
//
// # Sysfs
//
// Where the kernel or a container refuses the socket, Devices and ClientCharDev
// read /sys/class/infiniband_verbs, /sys/class/infiniband and /sys/class/misc.
// Sysfs knows neither the device index nor the driver id: Index is NoIndex then,
// and the driver id is derived (see driverID). A caller that wants certainty
// about the driver must get it from netlink.
//
// # Errors
//
// Every error of the kernel is an *Error, which holds the errno, the text of the
// extended acknowledgement where the kernel gave one, and what to do about it.
// Where there is no RDMA subsystem at all, errors.Is(err, ErrNoRDMA) holds.
//
// Sources: include/uapi/rdma/rdma_netlink.h and drivers/infiniband/core/nldev.c
// of the kernel; rdma(8).
package nldev
