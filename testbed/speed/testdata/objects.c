/* How fast MRs, CQs and QPs are made and destroyed with the C library:
 * bench/objects, in C.
 *
 *   objects -d DEVICE -n COUNT
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <infiniband/verbs.h>

#define SIZE 4096

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static char *memory;

static void must(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "objects: %s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

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
	printf("%s.create %.2f\n%s.destroy %.2f\n", kind, (made - began) / count, kind, (now() - made) / count);
	free(all);
}

int main(int argc, char **argv)
{
	const char *device = "mlx5_0";
	struct ibv_device **list;
	int i, count = 1000;
	for (i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "-d"))
			device = argv[i + 1];
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
	pd = ibv_alloc_pd(ctx);
	must(pd != NULL, "ibv_alloc_pd");
	cq = make_cq();
	must(cq != NULL, "ibv_create_cq");
	must(!posix_memalign((void **)&memory, SIZE, SIZE), "memory");
	memset(memory, 0, SIZE);
	measure("MR", count, make_mr, drop_mr);
	measure("CQ", count, make_cq, drop_cq);
	measure("QP", count, make_qp, drop_qp);
	return 0;
}
