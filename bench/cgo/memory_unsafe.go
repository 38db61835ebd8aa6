package main

/*
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	int i;
	for (i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	return ctx;
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *p, size_t n)
{
	return ibv_reg_mr(pd, p, n, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}
*/
import "C"

import "unsafe"

// inC returns zeroed C memory for n values.
func inC[T any](n int) []T {
	var zero T
	return unsafe.Slice((*T)(C.calloc(C.size_t(n), C.size_t(unsafe.Sizeof(zero)))), n)
}

func openDevice(device string) *C.struct_ibv_context {
	name := C.CString(device)
	defer C.free(unsafe.Pointer(name))
	return C.open_device(name)
}

// register registers C memory. It returns nil if that fails.
func register(pd *C.struct_ibv_pd) *C.struct_ibv_mr {
	var buf unsafe.Pointer
	if C.posix_memalign(&buf, 4096, memory) != 0 {
		return nil
	}
	return C.reg(pd, buf, memory)
}
