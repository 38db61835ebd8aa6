// Package gvisor runs programs in gVisor, whose proxy of RDMA devices forwards their commands to the kernel.
package gvisor
