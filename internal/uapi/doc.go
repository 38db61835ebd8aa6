// Package uapi contains the part of the kernel's RDMA user ABI that goverbs uses:
// constants and structs from rdma_user_ioctl_cmds.h, ib_user_ioctl_cmds.h,
// ib_user_ioctl_verbs.h, ib_user_verbs.h, rdma_user_rxe.h, rdma_user_cm.h,
// ib_user_sa.h and rdma_netlink.h. It makes no system calls.
//
// # Names
//
// Constants keep the kernel's spelling. Structs and fields have the CamelCase form
// of their C names: struct ib_uverbs_alloc_pd is IbUverbsAllocPd, and pd_handle is
// PdHandle. Reserved fields are kept, because the kernel requires them to be zero.
// Flexible array members (driver_data, wc, sge) are omitted; their bytes follow
// the struct.
//
// # Unions
//
// A union of scalars is one field: IbUverbsWc.Ex is imm_data, which is big-endian,
// or invalidate_rkey. A union of structs is a byte array, and each member is a
// separate struct: RxeRdmaWr, RxeAtomicWr, RxeUdWr, RxeMwWr and RxeFlushWr are the
// members of RxeSendWr.Wr. RdmaUcmConnParam and RdmaUcmUdParam are the members of
// RdmaUcmEventResp.Param and RdmaUcmWriteCmEvent.Param. Socket addresses are bytes.
//
// # Generated code
//
// internal/uapi/gen generates the code from the headers of Linux 7.2 and from
// gen/list.txt. It is a separate module because of its dependency, a C front end.
// Tests compare the code with the table that the front end computed and, if the
// machine has a C compiler, with the compiler's values.
package uapi

//go:generate go run -C gen . -out ..
