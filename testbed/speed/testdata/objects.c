/* How fast MRs, CQs and QPs are made and destroyed with the C library:
 * bench/objects, in C.
 *
 *   objects -d DEVICE -n COUNT
 */
#include "cost.h"

#define SIZE 4096

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static char *memory;

static void *make_mr(void) { return ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE); }
static int drop_mr(void *o) { return ibv_dereg_mr(o); }
static void *make_cq(void) { return ibv_create_cq(ctx, 63, NULL, NULL, 0); }
static int drop_cq(void *o) { return ibv_destroy_cq(o); }
static int drop_qp(void *o) { return ibv_destroy_qp(o); }

static void *make_qp(void)
{
	struct ibv_qp_init_attr a = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 } };
	return ibv_create_qp(pd, &a);
}

static void measure(const char *kind, int count, void *(*make)(void), int (*drop)(void *))
{
	void **all = calloc(count, sizeof *all);
	double began, made;
	void *first = make();
	int i;
	must(all != NULL, "memory");
	must(first != NULL && !drop(first), kind);
	began = now();
	for (i = 0; i < count; i++)
		must((all[i] = make()) != NULL, kind);
	made = now();
	for (i = 0; i < count; i++)
		must(!drop(all[i]), kind);
	printf("%s.create %.2f\n%s.destroy %.2f\n", kind, (made - began) / 1e3 / count, kind, (now() - made) / 1e3 / count);
	free(all);
}

int main(int argc, char **argv)
{
	int count = atoi(option(argc, argv, "-n", "1000"));
	ctx = open_device(option(argc, argv, "-d", "mlx5_0"));
	pd = ibv_alloc_pd(ctx);
	must(pd != NULL, "ibv_alloc_pd");
	cq = make_cq();
	must(cq != NULL, "ibv_create_cq");
	memory = allocate(SIZE);
	measure("MR", count, make_mr, drop_mr);
	measure("CQ", count, make_cq, drop_cq);
	measure("QP", count, make_qp, drop_qp);
	return 0;
}
