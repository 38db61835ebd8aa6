/* What posting on a DCI costs with libmlx5: bench/wrcost -dc, in C. The figures have
 * the same names and are made the same way. The library has one interface for DC,
 * ibv_wr_* with mlx5dv_wr_set_dc_addr: "dc" is a batch of one. tcc does not
 * optimize, so the program also prints the cost of its loop with functions that do
 * nothing.
 *
 *   dccost DEVICE ROUNDS
 */
#include <infiniband/mlx5dv.h>
#include "cost.h"

#define EACH 128
#define LIST 32
#define SIZE 32
#define KEY 0xffeeddccull

enum { WRITE, INLINE, LIST32, LIST32INLINE, LOOP1, LOOP32, KINDS };
static const char *names[KINDS] = { "dc", "dcinline", "dclist32", "dclist32inline", "loop1", "loop32" };
static double best[KINDS];

static struct ibv_context *ctx;
static struct ibv_cq *cq;
static struct ibv_ah *ah;
static struct ibv_qp_ex *dci, idle;
static struct mlx5dv_qp_ex *dci_dv, idle_dv;
static struct ibv_mr *mr;
static uint32_t dctn;
static char *buf;

static void idle_start(struct ibv_qp_ex *q) {}
static void idle_write(struct ibv_qp_ex *q, uint32_t rkey, uint64_t addr) {}
static void idle_sge(struct ibv_qp_ex *q, uint32_t lkey, uint64_t addr, uint32_t length) {}
static int idle_complete(struct ibv_qp_ex *q) { return 0; }
static void idle_addr(struct mlx5dv_qp_ex *q, struct ibv_ah *a, uint32_t n, uint64_t key) {}

static struct ibv_qp *create(struct ibv_pd *pd, int type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr_ex a = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = IBV_QPT_DRIVER, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD };
	struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC, .dc_init_attr = { .dc_type = type } };
	struct ibv_qp *qp;
	if (type == MLX5DV_DCTYPE_DCT) {
		dv.dc_init_attr.dct_access_key = KEY;
	} else {
		a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		a.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
		a.cap.max_send_wr = 2 * EACH;
		a.cap.max_send_sge = 1;
		a.cap.max_inline_data = SIZE;
	}
	qp = mlx5dv_create_qp(ctx, &a, &dv);
	must(qp != NULL, "mlx5dv_create_qp");
	return qp;
}

static void prepare(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_srq_init_attr s = { .attr = { .max_wr = 16, .max_sge = 1 } };
	struct ibv_ah_attr self = own_address(ctx);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp *dct, *qp;
	must(pd != NULL, "ibv_alloc_pd");
	buf = allocate(65536);
	mr = ibv_reg_mr(pd, buf, 65536, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	must(mr != NULL, "ibv_reg_mr");
	cq = ibv_create_cq(ctx, 2 * EACH, NULL, NULL, 0);
	must(cq != NULL, "ibv_create_cq");
	dct = create(pd, MLX5DV_DCTYPE_DCT, ibv_create_srq(pd, &s));
	must(!ibv_modify_qp(dct, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "DCT, INIT");
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_1024;
	a.min_rnr_timer = 12;
	a.ah_attr = self;
	must(!ibv_modify_qp(dct, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER), "DCT, RTR");
	dctn = dct->qp_num;
	qp = create(pd, MLX5DV_DCTYPE_DCI, NULL);
	a.qp_state = IBV_QPS_INIT;
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT), "DCI, INIT");
	a.qp_state = IBV_QPS_RTR;
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PATH_MTU), "DCI, RTR");
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14;
	a.retry_cnt = 7;
	a.rnr_retry = 7;
	a.max_rd_atomic = 1;
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		IBV_QP_MAX_QP_RD_ATOMIC), "DCI, RTS");
	dci = ibv_qp_to_qp_ex(qp);
	dci_dv = mlx5dv_qp_ex_from_ibv_qp_ex(dci);
	ah = ibv_create_ah(pd, &self);
	must(ah != NULL, "ibv_create_ah");
	idle = *dci;
	idle.wr_start = idle_start;
	idle.wr_rdma_write = idle_write;
	idle.wr_set_sge = idle_sge;
	idle.wr_complete = idle_complete;
	idle_dv.wr_set_dc_addr = idle_addr;
}

/* The loop calls the library through its tables, as verbs.h does in code that is
 * optimized. */
static void run(int kind)
{
	struct ibv_qp_ex *q = kind >= LOOP1 ? &idle : dci;
	struct mlx5dv_qp_ex *dv = kind >= LOOP1 ? &idle_dv : dci_dv;
	int i, k, n = kind == LIST32 || kind == LIST32INLINE || kind == LOOP32 ? LIST : 1, err = 0;
	int in_request = kind == INLINE || kind == LIST32INLINE;
	uint64_t to = (unsigned long)buf + 4096, from = (unsigned long)buf;
	uint32_t rkey = mr->rkey, lkey = mr->lkey;
	for (i = 0; i < EACH && !err; i += n) {
		q->wr_start(q);
		for (k = 0; k < n; k++) {
			q->wr_id = 1;
			q->wr_flags = IBV_SEND_SIGNALED;
			q->wr_rdma_write(q, rkey, to);
			if (in_request)
				q->wr_set_inline_data(q, buf, SIZE);
			else
				q->wr_set_sge(q, lkey, from, SIZE);
			dv->wr_set_dc_addr(dv, ah, dctn, KEY);
		}
		err = q->wr_complete(q);
	}
	errno = err;
	must(!err, names[kind]);
}

int main(int argc, char **argv)
{
	double t, took, clock = clock_cost();
	int i, k;
	must(argc == 3, "arguments");
	ctx = open_device(argv[1]);
	prepare();
	for (i = 0; i < atoi(argv[2]); i++)
		for (k = 0; k < KINDS; k++) {
			t = now();
			run(k);
			took = (now() - t - clock) / EACH;
			if (best[k] == 0 || took < best[k])
				best[k] = took;
			if (k >= LOOP1)
				continue;
			settle(ctx);
			take(cq, EACH, LIST);
		}
	for (k = 0; k < KINDS; k++)
		printf("%s %.1f\n", names[k], best[k]);
	return 0;
}
