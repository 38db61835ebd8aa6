/* The cost of a post while other threads post, each on a queue pair of its own:
 * bench/parallel, in C.
 *
 *   parallel -d DEVICE -qps COUNT
 */
#include <pthread.h>
#include <sched.h>
#include "cost.h"

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

int main(int argc, char **argv)
{
	struct writer *writers;
	double *all;
	int i, qps = atoi(option(argc, argv, "-qps", "1"));
	must(qps > 0, "-qps");
	lists = SAMPLES / qps > LEAST ? SAMPLES / qps : LEAST;
	ctx = open_device(option(argc, argv, "-d", "mlx5_0"));
	pd = ibv_alloc_pd(ctx);
	must(pd != NULL, "ibv_alloc_pd");
	mr = ibv_reg_mr(pd, allocate(4096), SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
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
	qsort(all, (size_t)qps * lists, sizeof *all, compare);
	printf("post %.1f\n", all[(size_t)qps * lists / 2] / EACH);
	return 0;
}
