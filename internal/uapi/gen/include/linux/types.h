/* Stand-in: the fixed-width names that the RDMA headers use. */
#ifndef GEN_LINUX_TYPES_H
#define GEN_LINUX_TYPES_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;

typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;

#define __aligned_u64 __u64 __attribute__((aligned(8)))

/* A zero-length tail: the generator drops it. */
#define __DECLARE_FLEX_ARRAY(TYPE, NAME) TYPE NAME[0]

#endif
