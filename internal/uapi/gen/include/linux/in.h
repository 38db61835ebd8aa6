/* Stand-in: struct sockaddr_in alone, which rxe embeds. */
#ifndef GEN_LINUX_IN_H
#define GEN_LINUX_IN_H

#include <linux/types.h>

struct in_addr {
	__be32 s_addr;
};

struct sockaddr_in {
	__u16 sin_family;
	__be16 sin_port;
	struct in_addr sin_addr;
	__u8 __pad[8];
};

#endif
