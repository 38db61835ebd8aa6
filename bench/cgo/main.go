// Cgocost measures the cost of posting and polling for each work request in Go
// programs that call libibverbs through cgo. Its figures have the same names and
// are measured in the same way as those of bench/wrcost.
//
//	cgocost mlx5_0
//
// Requests are in C memory, as is usual, and built once, as in the programs that
// this one is compared with. The requests of the figures named pinned are built in
// Go memory and pinned for each call, as in bindings that accept the caller's
// structs.
package main

/*
#cgo LDFLAGS: -libverbs
#include <string.h>
#include <infiniband/verbs.h>

// connect_self moves a queue pair to RTS, with itself as its peer.
static int connect_self(struct ibv_context *ctx, struct ibv_qp *qp)
{
	struct ibv_port_attr port;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	int err = ibv_query_port(ctx, 1, &port);
	if (!err)
		err = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_1024;
	a.dest_qp_num = qp->qp_num;
	a.max_dest_rd_atomic = 1;
	a.ah_attr.port_num = 1;
	a.ah_attr.dlid = port.lid;
	if (!err)
		err = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14;
	a.retry_cnt = 7;
	a.rnr_retry = 7;
	a.max_rd_atomic = 1;
	if (!err)
		err = ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC);
	return err;
}

static struct ibv_qp *create_qp(struct ibv_pd *pd, struct ibv_cq *cq, int sends, int receives, int inline_data)
{
	struct ibv_qp_init_attr a = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = 1,
			.max_inline_data = inline_data } };
	return ibv_create_qp(pd, &a);
}
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
)

const (
	each   = 128 // requests in a round
	list   = 32
	size   = 32 // bytes of a message
	rounds = 10
	memory = 65536
)

// A bench has a QP that writes to itself, and requests in C memory.
type bench struct {
	ctx      *C.struct_ibv_context
	cq       *C.struct_ibv_cq
	qp, recv *C.struct_ibv_qp
	addr     C.uint64_t
	lkey     C.uint32_t
	rkey     C.uint32_t
	one      [2][]C.struct_ibv_send_wr // by SGE, and inline, in C memory
	many     [2][]C.struct_ibv_send_wr
	sges     []C.struct_ibv_sge
	recv1    []C.struct_ibv_recv_wr
	recvs    []C.struct_ibv_recv_wr
	bad      []*C.struct_ibv_send_wr // in C memory
	badRecv  []*C.struct_ibv_recv_wr
	wcs      [list]C.struct_ibv_wc
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: cgocost DEVICE")
		os.Exit(2)
	}
	debug.SetGCPercent(-1) // do not measure garbage collections
	b, err := open(os.Args[1])
	if err == nil {
		err = b.measure()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cgocost:", err)
		os.Exit(1)
	}
}

func open(device string) (*bench, error) {
	b := &bench{ctx: openDevice(device)}
	if b.ctx == nil {
		return nil, errors.New("no device " + device)
	}
	pd := C.ibv_alloc_pd(b.ctx)
	if pd == nil {
		return nil, errors.New("no PD")
	}
	mr := register(pd)
	b.cq = C.ibv_create_cq(b.ctx, 2*each, nil, nil, 0)
	if mr == nil || b.cq == nil {
		return nil, errors.New("no MR, or no CQ")
	}
	for _, q := range []struct {
		to                      **C.struct_ibv_qp
		sends, receives, inline C.int
	}{{&b.qp, 2 * each, 16, size}, {&b.recv, 1, each * (2*rounds + 2), 0}} {
		if *q.to = C.create_qp(pd, b.cq, q.sends, q.receives, q.inline); *q.to == nil {
			return nil, errors.New("no QP")
		}
		if err := C.connect_self(b.ctx, *q.to); err != 0 {
			return nil, fmt.Errorf("connecting: errno %d", err)
		}
	}
	b.addr, b.lkey, b.rkey = C.uint64_t(uintptr(mr.addr)), mr.lkey, mr.rkey
	b.requests()
	b.bad, b.badRecv = inC[*C.struct_ibv_send_wr](1), inC[*C.struct_ibv_recv_wr](1)
	return b, nil
}
