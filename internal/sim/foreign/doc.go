// Package foreign lets programs of other processes use a machine in memory. A library that is preloaded into such a
// program sends its system calls on RDMA nodes through a Unix socket to a [Server], which executes them on the machine.
//
// # Messages
//
// A connection is an open node. The socket preserves the boundaries of messages. Each message of the program is a
// request, which the server replies to before it reads another one:
//
//	open   which node
//	ioctl  the address of a command
//	mmap   offset and length: whether they are those of registers, and of which page
//	store  what was written to a register page, at an offset
//	write  the address of a command of rdma_cm
//	name   the number that an event descriptor has in the program
//	event  an event that the program has read from an event descriptor
//
// Attributes, queues and registered memory remain in the program's memory, which the server reads and writes through
// /proc/PID/mem. This needs the permissions of ptrace(2): both processes have the same user, and the program is a
// descendant of the server or has named it with PR_SET_PTRACER where Yama requires that.
//
// # Trust
//
// The server does not trust the program. Whatever a program sends or has in its memory, and however it ends, affects
// only its own open nodes: all objects of a node are destroyed when its connection ends.
package foreign
