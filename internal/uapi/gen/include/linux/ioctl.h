/* Stand-in: the generic ioctl number layout (direction, size, magic, number),
 * which amd64 and arm64 share. */
#ifndef GEN_LINUX_IOCTL_H
#define GEN_LINUX_IOCTL_H

#define _IOWR(magic, nr, type) \
	((3u << 30) | ((unsigned)sizeof(type) << 16) | ((magic) << 8) | (nr))

#endif
