/* Stand-in: the address storage of rdma_user_cm.h alone. */
#ifndef GEN_LINUX_SOCKET_H
#define GEN_LINUX_SOCKET_H

#include <linux/types.h>

struct __kernel_sockaddr_storage {
	__u16 ss_family;
	__u8 __data[126];
} __attribute__((aligned(8)));

#endif
