/* The cost of a post while other threads post, each on a queue pair of its own:
 * bench/parallel, in C.
 *
 *   parallel -d DEVICE -qps COUNT
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <infiniband/verbs.h>

#define EACH 16
#define SIZE 32
#define SAMPLES 2000
#define LEAST 20

struct writer {
	pthread_t thread;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	double *took;
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_mr *mr;
static int lists;

static void must(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "parallel: %s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

/* connect_self takes the queue pair to RTS, with itself as its peer. */
static void connect_self(struct ibv_qp *qp)
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

static void prepare(struct writer *w)
{
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 2 * EACH, .max_recv_wr = 1,
		.max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = SIZE } };
	w->cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	must(w->cq != NULL, "ibv_create_cq");
	a.send_cq = a.recv_cq = w->cq;
	w->qp = ibv_create_qp(pd, &a);
	must(w->qp != NULL, "ibv_create_qp");
	w->took = calloc(lists, sizeof *w->took);
	must(w->took != NULL, "memory");
	connect_self(w->qp);
}

/* write_lists posts lists of WRITEs one by one. Only the last of a list has a
 * completion, for which it waits. The first list is not measured. */
static void *write_lists(void *arg)
{
	struct writer *w = arg;
	char data[SIZE] = { 0 };
	struct ibv_sge sge = { .addr = (unsigned long)data, .length = SIZE };
	struct ibv_send_wr *bad, wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = { .remote_addr = (unsigned long)mr->addr, .rkey = mr->rkey } };
	struct ibv_wc wc;
	int list, i, n;
	for (list = 0; list <= lists; list++) {
		double began = now();
		for (i = 0; i < EACH; i++) {
			wr.send_flags = IBV_SEND_INLINE | (i == EACH - 1 ? IBV_SEND_SIGNALED : 0);
			must(!ibv_post_send(w->qp, &wr, &bad), "ibv_post_send");
		}
		if (list > 0)
			w->took[list - 1] = now() - began;
		while (!(n = ibv_poll_cq(w->cq, 1, &wc)))
			sched_yield();
		must(n == 1 && wc.status == IBV_WC_SUCCESS, "completion");
	}
	return NULL;
}

static int longer(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	int i;
	must(list != NULL, "ibv_get_device_list");
	for (i = 0; list[i] && strcmp(ibv_get_device_name(list[i]), name); i++)
		;
	must(list[i] != NULL, name);
	return ibv_open_device(list[i]);
}

int main(int argc, char **argv)
{
	const char *device = "mlx5_0";
	struct writer *writers;
	double *all;
	int i, qps = 1;
	for (i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "-d"))
			device = argv[i + 1];
		if (!strcmp(argv[i], "-qps"))
			qps = atoi(argv[i + 1]);
	}
	must(qps > 0, "-qps");
	lists = SAMPLES / qps > LEAST ? SAMPLES / qps : LEAST;
	ctx = open_device(device);
	must(ctx != NULL, "ibv_open_device");
	pd = ibv_alloc_pd(ctx);
	must(pd != NULL, "ibv_alloc_pd");
	mr = ibv_reg_mr(pd, calloc(1, 4096), SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	must(mr != NULL, "ibv_reg_mr");
	writers = calloc(qps, sizeof *writers);
	all = calloc((size_t)qps * lists, sizeof *all);
	must(writers && all, "memory");
	for (i = 0; i < qps; i++)
		prepare(&writers[i]);
	for (i = 0; i < qps; i++)
		must(!pthread_create(&writers[i].thread, NULL, write_lists, &writers[i]), "pthread_create");
	for (i = 0; i < qps; i++) {
		must(!pthread_join(writers[i].thread, NULL), "pthread_join");
		memcpy(all + (size_t)i * lists, writers[i].took, lists * sizeof *all);
	}
	qsort(all, (size_t)qps * lists, sizeof *all, longer);
	printf("post %.1f\n", all[(size_t)qps * lists / 2] / EACH);
	return 0;
}
