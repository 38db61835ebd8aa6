/* The cost of a WRITE and of the wait for its completion, with idle queues whose
 * events go to the same channel: bench/waits, in C.
 *
 *   waits -d DEVICE -idle COUNT -n COUNT
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <infiniband/verbs.h>

#define SIZE 32
#define ROUNDS 5

static struct ibv_context *ctx;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_sge sge;
static struct ibv_send_wr wr;

static void must(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "waits: %s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* connect_self takes the queue pair to RTS, with itself as its peer. */
static void connect_self(void)
{
	struct ibv_port_attr port;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	must(!ibv_query_port(ctx, 1, &port), "ibv_query_port");
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_1024;
	a.dest_qp_num = qp->qp_num;
	a.max_dest_rd_atomic = 1;
	a.ah_attr.port_num = 1;
	a.ah_attr.dlid = port.lid;
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		a.ah_attr.is_global = 1;
		a.ah_attr.grh.hop_limit = 1;
		must(!ibv_query_gid(ctx, 1, 0, &a.ah_attr.grh.dgid), "ibv_query_gid");
	}
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "RTR");
	memset(&a, 0, sizeof a);
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14;
	a.retry_cnt = 7;
	a.rnr_retry = 7;
	a.max_rd_atomic = 1;
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC), "RTS");
}

static void prepare(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_mr *mr;
	char *buf = NULL;
	must(pd != NULL, "ibv_alloc_pd");
	must(!posix_memalign((void **)&buf, 4096, 4096), "memory");
	memset(buf, 0, 4096);
	mr = ibv_reg_mr(pd, buf, 2 * SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	must(mr != NULL, "ibv_reg_mr");
	channel = ibv_create_comp_channel(ctx);
	must(channel != NULL, "ibv_create_comp_channel");
	cq = ibv_create_cq(ctx, 16, NULL, channel, 0);
	must(cq != NULL, "ibv_create_cq");
	a.send_cq = a.recv_cq = cq;
	qp = ibv_create_qp(pd, &a);
	must(qp != NULL, "ibv_create_qp");
	connect_self();
	sge.addr = (unsigned long)buf;
	sge.length = SIZE;
	sge.lkey = mr->lkey;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr.rdma.remote_addr = sge.addr + SIZE;
	wr.wr.rdma.rkey = mr->rkey;
}

/* write_and_wait polls, arms, polls again and waits, as bench/waits does. */
static void write_and_wait(void)
{
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	struct ibv_cq *which;
	void *context;
	int n;
	must(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
	while (!(n = ibv_poll_cq(cq, 1, &wc))) {
		must(!ibv_req_notify_cq(cq, 0), "ibv_req_notify_cq");
		if ((n = ibv_poll_cq(cq, 1, &wc)))
			break;
		must(!ibv_get_cq_event(channel, &which, &context) && which == cq, "ibv_get_cq_event");
		ibv_ack_cq_events(which, 1);
	}
	must(n == 1 && wc.status == IBV_WC_SUCCESS, "completion");
}

int main(int argc, char **argv)
{
	const char *device = "mlx5_0";
	struct ibv_device **list;
	int i, k, count = 500, idle = 0;
	double best = 1e12;
	for (i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "-d"))
			device = argv[i + 1];
		if (!strcmp(argv[i], "-idle"))
			idle = atoi(argv[i + 1]);
		if (!strcmp(argv[i], "-n"))
			count = atoi(argv[i + 1]);
	}
	list = ibv_get_device_list(NULL);
	must(list != NULL, "ibv_get_device_list");
	for (i = 0; list[i] && strcmp(ibv_get_device_name(list[i]), device); i++)
		;
	must(list[i] != NULL, device);
	ctx = ibv_open_device(list[i]);
	must(ctx != NULL, "ibv_open_device");
	prepare();
	for (i = 0; i < idle; i++) {
		struct ibv_cq *q = ibv_create_cq(ctx, 1, NULL, channel, 0);
		must(q && !ibv_req_notify_cq(q, 0), "idle queue");
	}
	for (i = 0; i <= ROUNDS; i++) { /* the first is not measured */
		double began = now(), took;
		for (k = 0; k < count; k++)
			write_and_wait();
		took = now() - began;
		if (i > 0 && took < best)
			best = took;
	}
	printf("wait %.2f\n", best / count);
	return 0;
}
