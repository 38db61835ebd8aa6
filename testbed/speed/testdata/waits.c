/* The cost of a WRITE and of the wait for its completion, with idle queues whose
 * events go to the same channel: bench/waits, in C.
 *
 *   waits -d DEVICE -idle COUNT -n COUNT
 */
#include "cost.h"

#define SIZE 32
#define ROUNDS 5

static struct ibv_context *ctx;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_sge sge;
static struct ibv_send_wr wr;

static void prepare(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_mr *mr;
	char *buf = allocate(4096);
	must(pd != NULL, "ibv_alloc_pd");
	mr = ibv_reg_mr(pd, buf, 2 * SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	must(mr != NULL, "ibv_reg_mr");
	channel = ibv_create_comp_channel(ctx);
	must(channel != NULL, "ibv_create_comp_channel");
	cq = ibv_create_cq(ctx, 16, NULL, channel, 0);
	must(cq != NULL, "ibv_create_cq");
	a.send_cq = a.recv_cq = cq;
	qp = ibv_create_qp(pd, &a);
	must(qp != NULL, "ibv_create_qp");
	connect_self(qp);
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
	int i, k, count = atoi(option(argc, argv, "-n", "500")), idle = atoi(option(argc, argv, "-idle", "0"));
	double best = 1e15;
	ctx = open_device(option(argc, argv, "-d", "mlx5_0"));
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
	printf("wait %.2f\n", best / 1e3 / count);
	return 0;
}
