// Package uapi holds the kernel's RDMA user ABI: the numbers and structs of
// rdma_user_ioctl_cmds.h, ib_user_ioctl_cmds.h, ib_user_ioctl_verbs.h,
// ib_user_verbs.h, rdma_user_rxe.h, rdma_user_cm.h, ib_user_sa.h and
// rdma_netlink.h that goverbs uses.
// It makes no system calls.
//
// # Names
//
// Constants keep the kernel's spelling. A struct has the CamelCase form of its C
// name and of its C fields, so that struct ib_uverbs_alloc_pd is IbUverbsAllocPd
// and pd_handle is PdHandle. Reserved fields are kept: the kernel wants them zero.
// A flexible tail (driver_data, wc, sge) is left out; its bytes follow the struct.
//
// # Unions
//
// A union of scalars is one field (IbUverbsWc.Ex is imm_data or invalidate_rkey;
// imm_data is big-endian). A union of structs is a byte array, and each member is
// a struct of its own: RxeRdmaWr, RxeAtomicWr, RxeUdWr, RxeMwWr and RxeFlushWr lie
// over RxeSendWr.Wr. RdmaUcmConnParam and RdmaUcmUdParam lie over
// RdmaUcmEventResp.Param and RdmaUcmWriteCmEvent.Param. Socket addresses are bytes.
//
// # Where it comes from
//
// The generated file is made from Linux 7.2's headers and gen/list.txt by
// internal/uapi/gen (a module of its own, because of the C front end). Tests
// compare it with the table that the front end wrote and, where there is a C
// compiler, with what that compiler says.
package uapi

//go:generate go run -C gen . -out ..
