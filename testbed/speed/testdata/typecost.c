/* What posting requests of UD and XRC, atomics, binds and invalidations costs with libibverbs: bench/wrcost -types, in C.
 * The figures have the same names and are made the same way. tcc does not optimize, so the program also prints the cost
 * of its loop with a function that does nothing.
 *
 *   typecost DEVICE ROUNDS
 */
#include <fcntl.h>
#include "cost.h"

#define EACH 128
#define LIST 32
#define SIZE 32
#define QKEY 0x1234

/* A kind of request. */
struct kind {
	const char *name;
	struct ibv_qp *qp;
	struct ibv_send_wr wrs[EACH];
	double best[2]; /* one by one, and in lists */
};

enum { UD, UD_INLINE, XRC, XRC_INLINE, ATOMIC, BIND, LOCAL_INV, SEND_INV, KINDS };
static struct kind kinds[KINDS] = { { "ud" }, { "udinline" }, { "xrc" }, { "xrcinline" }, { "atomic" }, { "bind" },
	{ "localinv" }, { "sendinv" } };
/* Windows are bound before their keys are invalidated. */
static const int order[] = { UD, UD_INLINE, XRC, XRC_INLINE, ATOMIC, BIND, LOCAL_INV, BIND, SEND_INV };

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq, *received;
static struct ibv_mr *mr;
static struct ibv_sge sge, eight;

static struct ibv_qp *create(int type, struct ibv_cq *recv_cq, int receives)
{
	struct ibv_qp_init_attr a = { .send_cq = cq, .recv_cq = recv_cq, .qp_type = type, .cap = { .max_send_wr = 2 * EACH,
		.max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = receives > 0, .max_inline_data = SIZE } };
	struct ibv_qp *qp = ibv_create_qp(pd, &a);
	must(qp != NULL, "ibv_create_qp");
	return qp;
}

static void fill(int kind, struct ibv_qp *qp, int opcode, struct ibv_sge *from, int flags)
{
	int i;
	kinds[kind].qp = qp;
	for (i = 0; i < EACH; i++) {
		struct ibv_send_wr *w = &kinds[kind].wrs[i];
		w->wr_id = 1;
		w->sg_list = from;
		w->num_sge = from != NULL;
		w->opcode = opcode;
		w->send_flags = IBV_SEND_SIGNALED | flags;
	}
}

static void prepare_ud(void)
{
	struct ibv_qp *qp = create(IBV_QPT_UD, cq, 1);
	struct ibv_ah_attr self = own_address(ctx);
	struct ibv_ah *ah = ibv_create_ah(pd, &self);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY };
	int i, k;
	must(ah != NULL, "ibv_create_ah");
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "UD, INIT");
	a.qp_state = IBV_QPS_RTR;
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE), "UD, RTR");
	a.qp_state = IBV_QPS_RTS;
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN), "UD, RTS");
	fill(UD, qp, IBV_WR_SEND, &sge, 0);
	fill(UD_INLINE, qp, IBV_WR_SEND, &sge, IBV_SEND_INLINE);
	for (k = UD; k <= UD_INLINE; k++)
		for (i = 0; i < EACH; i++) {
			kinds[k].wrs[i].wr.ud.ah = ah;
			kinds[k].wrs[i].wr.ud.remote_qpn = qp->qp_num;
			kinds[k].wrs[i].wr.ud.remote_qkey = QKEY;
		}
}

static void prepare_xrc(void)
{
	struct ibv_xrcd_init_attr d = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1,
		.oflags = O_CREAT };
	struct ibv_xrcd *xrcd = ibv_open_xrcd(ctx, &d);
	struct ibv_srq_init_attr_ex s = { .attr = { .max_wr = 16, .max_sge = 1 }, .srq_type = IBV_SRQT_XRC, .xrcd = xrcd,
		.cq = cq, .pd = pd, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ |
		IBV_SRQ_INIT_ATTR_PD };
	struct ibv_qp_init_attr_ex a = { .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd };
	struct ibv_qp *qp = create(IBV_QPT_XRC_SEND, NULL, 0), *target;
	struct ibv_srq *srq;
	uint32_t srqn;
	int i, k;
	must(xrcd != NULL, "ibv_open_xrcd");
	srq = ibv_create_srq_ex(ctx, &s);
	must(srq && !ibv_get_srq_num(srq, &srqn), "ibv_create_srq_ex");
	target = ibv_create_qp_ex(ctx, &a);
	must(target != NULL, "ibv_create_qp_ex");
	connect_to(qp, target->qp_num);
	connect_to(target, qp->qp_num);
	fill(XRC, qp, IBV_WR_RDMA_WRITE, &sge, 0);
	fill(XRC_INLINE, qp, IBV_WR_RDMA_WRITE, &sge, IBV_SEND_INLINE);
	for (k = XRC; k <= XRC_INLINE; k++)
		for (i = 0; i < EACH; i++) {
			kinds[k].wrs[i].wr.rdma.remote_addr = sge.addr + 4096;
			kinds[k].wrs[i].wr.rdma.rkey = mr->rkey;
			kinds[k].wrs[i].qp_type.xrc.remote_srqn = srqn;
		}
}

static void prepare_rc(void)
{
	struct ibv_qp *qp;
	int i;
	received = ibv_create_cq(ctx, EACH, NULL, NULL, 0);
	must(received != NULL, "ibv_create_cq");
	qp = connect_self(create(IBV_QPT_RC, received, EACH));
	fill(ATOMIC, qp, IBV_WR_ATOMIC_FETCH_AND_ADD, &eight, 0);
	fill(BIND, qp, IBV_WR_BIND_MW, NULL, 0);
	fill(LOCAL_INV, qp, IBV_WR_LOCAL_INV, NULL, 0);
	fill(SEND_INV, qp, IBV_WR_SEND_WITH_INV, &sge, 0);
	for (i = 0; i < EACH; i++) {
		struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
		struct ibv_mw_bind_info info = { .mr = mr, .addr = sge.addr, .length = 4096, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE };
		must(mw != NULL, "ibv_alloc_mw");
		kinds[ATOMIC].wrs[i].wr.atomic.remote_addr = sge.addr + 4096;
		kinds[ATOMIC].wrs[i].wr.atomic.rkey = mr->rkey;
		kinds[ATOMIC].wrs[i].wr.atomic.compare_add = 1;
		kinds[BIND].wrs[i].bind_mw.mw = mw;
		kinds[BIND].wrs[i].bind_mw.rkey = mw->rkey;
		kinds[BIND].wrs[i].bind_mw.bind_info = info;
		kinds[LOCAL_INV].wrs[i].invalidate_rkey = kinds[SEND_INV].wrs[i].invalidate_rkey = mw->rkey;
	}
}

/* receives posts the receives of a round of SENDs. */
static void receives(struct ibv_qp *qp)
{
	struct ibv_sge to = sge;
	struct ibv_recv_wr r = { .wr_id = 1, .sg_list = &to, .num_sge = 1 }, *bad;
	int i;
	to.addr += 8192;
	for (i = 0; i < EACH; i++)
		must(!ibv_post_recv(qp, &r, &bad), "ibv_post_recv");
}

static int nothing(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return 0;
}

/* run returns the cost of a round with a function in the library's table, as verbs.h calls it in code that is
 * optimized. */
static double run(struct kind *k, int step, int (*post)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **))
{
	struct ibv_send_wr *bad;
	double began;
	int i, err = 0;
	for (i = 0; i < EACH; i++)
		k->wrs[i].next = (i + 1) % step ? &k->wrs[i + 1] : NULL;
	began = now();
	for (i = 0; i < EACH && !err; i += step)
		err = post(k->qp, &k->wrs[i], &bad);
	began = now() - began;
	errno = err;
	must(!err, k->name);
	return began;
}

static void measure(struct kind *k, int lists, double clock)
{
	double took;
	if (k == &kinds[SEND_INV])
		receives(k->qp);
	took = (run(k, lists ? LIST : 1, ctx->ops.post_send) - clock) / EACH;
	if (k->best[lists] == 0 || took < k->best[lists])
		k->best[lists] = took;
	settle(ctx);
	take(cq, EACH, LIST);
	if (k == &kinds[SEND_INV])
		take(received, EACH, LIST);
}

int main(int argc, char **argv)
{
	double clock = clock_cost();
	char *buf = allocate(65536);
	int i, k, lists;
	must(argc == 3, "arguments");
	ctx = open_device(argv[1]);
	pd = ibv_alloc_pd(ctx);
	must(pd != NULL, "ibv_alloc_pd");
	mr = ibv_reg_mr(pd, buf, 65536, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC |
		IBV_ACCESS_MW_BIND);
	must(mr != NULL, "ibv_reg_mr");
	sge.addr = eight.addr = (unsigned long)buf;
	sge.length = SIZE;
	eight.length = 8;
	sge.lkey = eight.lkey = mr->lkey;
	cq = ibv_create_cq(ctx, 2 * EACH, NULL, NULL, 0);
	must(cq != NULL, "ibv_create_cq");
	prepare_ud();
	prepare_xrc();
	prepare_rc();
	for (i = 0; i < atoi(argv[2]); i++)
		for (lists = 0; lists < 2; lists++)
			for (k = 0; k < (int)(sizeof order / sizeof *order); k++)
				measure(&kinds[order[k]], lists, clock);
	for (k = 0; k < KINDS; k++) {
		char *suffix = strstr(kinds[k].name, "inline");
		int n = suffix ? (int)(suffix - kinds[k].name) : (int)strlen(kinds[k].name);
		printf("%s %.1f\n%.*slist32%s %.1f\n", kinds[k].name, kinds[k].best[0], n, kinds[k].name, suffix ? suffix : "",
			kinds[k].best[1]);
	}
	printf("loop %.1f\n", (run(&kinds[UD], 1, nothing) - clock) / EACH);
	return 0;
}
