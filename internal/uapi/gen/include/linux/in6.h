/* Stand-in: struct sockaddr_in6 alone, which rxe embeds. */
#ifndef GEN_LINUX_IN6_H
#define GEN_LINUX_IN6_H

#include <linux/types.h>

struct in6_addr {
	__u8 u6_addr8[16];
} __attribute__((aligned(4)));

struct sockaddr_in6 {
	__u16 sin6_family;
	__be16 sin6_port;
	__be32 sin6_flowinfo;
	struct in6_addr sin6_addr;
	__u32 sin6_scope_id;
};

#endif
