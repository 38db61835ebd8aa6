/*
 * Runs the steps of a script on an RDMA device with libibverbs. Package play
 * does the same in Go, and documents the steps.
 *
 *	play script device gid-index
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <infiniband/verbs.h>
#include <infiniband/mlx5dv.h>

#define LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CHECK(x)                                                                                        \
	do {                                                                                            \
		if (!(x)) {                                                                             \
			fprintf(stderr, "step %d: line %d: %s: %s\n", step, __LINE__, #x, strerror(errno)); \
			exit(1);                                                                        \
		}                                                                                       \
	} while (0)
/* For calls that return an error number. */
#define GOOD(x) CHECK((errno = (x)) == 0)

enum { memory = 1 << 16, most = 64 };

static int step;
static long arg[256];
static int args, next_arg;

static struct ibv_context *ctx;
static struct ibv_comp_channel *channel;
static struct ibv_pd *pd, *base; /* for new queue pairs; the device's, or of the thread domain's parent */
static struct ibv_td *td;
static struct ibv_xrcd *xrcd;
static struct ibv_mr *mr;
static char *mem;
static struct ibv_port_attr port;
static union ibv_gid gid;
static int gid_index;

static struct ibv_cq *cqs[16];
static struct ibv_srq *srqs[16];
static struct ibv_qp *qps[32];
static struct ibv_ah *ahs[16];
static struct ibv_mw *mws[16];
static uint32_t keys[16]; /* of windows */
static struct device_memory {
	struct ibv_dm *dm;
	struct ibv_mr *mr;
} dms[4];

static long take(void)
{
	CHECK(next_arg < args);
	return arg[next_arg++];
}

static int slot(int n)
{
	long i = take();
	CHECK(i >= 0 && i < n);
	return i;
}

#define SLOT(a) (a)[slot(LEN(a))]

/* Reads the SGEs at the end of a step. */
static int take_sges(struct ibv_sge *sge)
{
	int n = take();

	CHECK(n <= 32);
	for (int i = 0; i < n; i++) {
		sge[i].addr = (uintptr_t)mem + take();
		sge[i].length = take();
		sge[i].lkey = mr->lkey;
	}
	return n;
}

static void open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	CHECK(list);
	for (int i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	CHECK(ctx);
	ibv_free_device_list(list);
	CHECK(channel = ibv_create_comp_channel(ctx));
	CHECK(pd = base = ibv_alloc_pd(ctx));
	mem = mmap(NULL, memory, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(mem != MAP_FAILED);
	for (int i = 0; i < memory; i++)
		mem[i] = i * 7 + (i >> 8);
	CHECK(mr = ibv_reg_mr(pd, mem, memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
						IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND));
	GOOD(ibv_query_port(ctx, 1, &port));
	CHECK(!ibv_query_gid(ctx, 1, gid_index, &gid));
}

static struct ibv_ah_attr to_ourselves(void)
{
	struct ibv_ah_attr a = { .port_num = 1, .dlid = port.lid };

	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		a.dlid = 0;
		a.is_global = 1;
		a.grh.dgid = gid;
		a.grh.sgid_index = gid_index;
		a.grh.hop_limit = 1;
	}
	return a;
}

enum { signal_all = 1, extended = 2, silent = 4, out_of_order = 8, no_scatter = 16, all_scatter = 32, tso = 64 };

static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_RAW_PACKET };
static const uint64_t ops[] = {
	IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
		IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
		IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV,
	IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
		IBV_QP_EX_WITH_BIND_MW,
	IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
		IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
		IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV,
	IBV_QP_EX_WITH_SEND,
};

static const int most_headers = 100; /* of TSO */

static void do_qp(void)
{
	struct ibv_qp **q = &SLOT(qps);
	int type = slot(LEN(types)), srq, flags;
	struct ibv_qp_init_attr_ex a = { .qp_type = types[type], .pd = pd, .comp_mask = IBV_QP_INIT_ATTR_PD };
	struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS };

	a.send_cq = a.recv_cq = SLOT(cqs);
	if (a.qp_type == IBV_QPT_XRC_SEND)
		a.recv_cq = NULL;
	srq = take();
	a.srq = srq < 0 ? NULL : srqs[srq];
	a.cap.max_send_wr = take();
	a.cap.max_recv_wr = take();
	a.cap.max_send_sge = take();
	a.cap.max_recv_sge = take();
	a.cap.max_inline_data = take();
	flags = take();
	a.sq_sig_all = flags & signal_all;
	if (flags & extended) {
		a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		a.send_ops_flags = ops[type];
	}
	if (flags & tso) {
		a.comp_mask |= IBV_QP_INIT_ATTR_MAX_TSO_HEADER;
		a.max_tso_header = most_headers;
		if (flags & extended)
			a.send_ops_flags |= IBV_QP_EX_WITH_TSO;
	}
	dv.create_flags = (flags & out_of_order ? MLX5DV_QP_CREATE_OOO_DP : 0) |
			  (flags & no_scatter ? MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE : 0) |
			  (flags & all_scatter ? MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE : 0);
	CHECK(*q = dv.create_flags ? mlx5dv_create_qp(ctx, &a, &dv) : ibv_create_qp_ex(ctx, &a));
	if (!(flags & silent))
		printf("qp %u %u %u %u %u\n", a.cap.max_send_wr, a.cap.max_recv_wr, a.cap.max_send_sge, a.cap.max_recv_sge,
	       a.cap.max_inline_data);
}

static void do_target(void)
{
	struct ibv_qp **q = &SLOT(qps);
	struct ibv_qp_init_attr_ex a = { .qp_type = IBV_QPT_XRC_RECV, .xrcd = xrcd, .comp_mask = IBV_QP_INIT_ATTR_XRCD };

	CHECK(*q = ibv_create_qp_ex(ctx, &a));
}

static const uint64_t dc_key = 0xffeeddccbbaa9988;

static void do_dci(void)
{
	struct ibv_qp **q = &SLOT(qps);
	struct ibv_qp_init_attr_ex a = { .qp_type = IBV_QPT_DRIVER, .pd = pd, .send_ops_flags = ops[0],
					 .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS };
	struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC, .dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI };

	a.send_cq = a.recv_cq = SLOT(cqs);
	a.cap.max_send_wr = take();
	a.cap.max_send_sge = take();
	a.cap.max_inline_data = take();
	a.sq_sig_all = take() & signal_all;
	if (take()) {
		dv.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DCI_STREAMS;
		dv.dc_init_attr.dci_streams.log_num_concurent = 3;
		dv.dc_init_attr.dci_streams.log_num_errored = 2;
	}
	CHECK(*q = mlx5dv_create_qp(ctx, &a, &dv));
	printf("qp %u %u %u\n", a.cap.max_send_wr, a.cap.max_send_sge, a.cap.max_inline_data);
}

static void do_dct(void)
{
	struct ibv_qp **q = &SLOT(qps);
	struct ibv_qp_init_attr_ex a = { .qp_type = IBV_QPT_DRIVER, .pd = pd, .comp_mask = IBV_QP_INIT_ATTR_PD };
	struct mlx5dv_qp_init_attr dv = { .comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC, .dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT,
					  .dc_init_attr.dct_access_key = dc_key };
	struct ibv_qp_attr m = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

	a.send_cq = a.recv_cq = SLOT(cqs);
	a.srq = SLOT(srqs);
	CHECK(*q = mlx5dv_create_qp(ctx, &a, &dv));
	GOOD(ibv_modify_qp(*q, &m, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	m = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .min_rnr_timer = 12, .ah_attr = to_ourselves() };
	GOOD(ibv_modify_qp(*q, &m, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER));
}

static void do_dcready(void)
{
	struct ibv_qp *q = SLOT(qps);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	GOOD(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024 };
	GOOD(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PATH_MTU));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = 5, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4 };
	GOOD(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					  IBV_QP_MAX_QP_RD_ATOMIC));
}

static void do_connect(void)
{
	struct ibv_qp *q = SLOT(qps), *peer = SLOT(qps);
	int rc = q->qp_type != IBV_QPT_UC;
	int requests = rc && q->qp_type != IBV_QPT_XRC_RECV, responds = rc && q->qp_type != IBV_QPT_XRC_SEND;
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | (rc ? IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC : 0),
	};

	GOOD(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num, .rq_psn = 5,
		.max_dest_rd_atomic = 4, .min_rnr_timer = 12, .ah_attr = to_ourselves(),
	};
	GOOD(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					  (responds ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .sq_psn = 5, .timeout = 18, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 4 };
	GOOD(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | (rc ? IBV_QP_TIMEOUT : 0) |
					  (requests ? IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0)));
}

static const int udkey = 0x11111;

static void do_ready(void)
{
	struct ibv_qp *q = SLOT(qps);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = udkey };

	GOOD(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	GOOD(ibv_modify_qp(q, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = 5;
	GOOD(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static void do_raw(void)
{
	struct ibv_qp *q = SLOT(qps);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };

	GOOD(ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PORT));
	a.qp_state = IBV_QPS_RTR;
	GOOD(ibv_modify_qp(q, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	GOOD(ibv_modify_qp(q, &a, IBV_QP_STATE));
}

static void do_state(enum ibv_qp_state s)
{
	struct ibv_qp_attr a = { .qp_state = s };

	GOOD(ibv_modify_qp(SLOT(qps), &a, IBV_QP_STATE));
}

/* Requests that are posted to a send queue by one call, or between wr_start and
 * wr_complete. */
static struct ibv_qp *to;
static struct ibv_qp_ex *toex;
static struct ibv_send_wr wrs[most];
static struct ibv_sge sges[most][32];
static int posted;

static void do_begin(void)
{
	to = SLOT(qps);
	toex = take() ? ibv_qp_to_qp_ex(to) : NULL;
	posted = 0;
	if (toex)
		ibv_wr_start(toex);
}

/* Reads the opcode, flags and id at the start of a step. */
static struct ibv_send_wr *take_wr(void)
{
	struct ibv_send_wr *w = &wrs[posted];

	CHECK(posted < most);
	memset(w, 0, sizeof(*w));
	w->opcode = take();
	w->send_flags = take();
	w->wr_id = take();
	w->sg_list = sges[posted];
	if (posted++ > 0)
		w[-1].next = w;
	return w;
}

/* Reads the data at the end of a step: inline data, if it has a length, and
 * SGEs. */
static void take_data(struct ibv_send_wr *w)
{
	long off = take(), n = take();

	w->num_sge = take_sges(w->sg_list);
	if (n > 0) {
		CHECK(w->num_sge == 0);
		w->sg_list[0] = (struct ibv_sge){ .addr = (uintptr_t)mem + off, .length = n };
		w->num_sge = 1;
		w->send_flags |= IBV_SEND_INLINE;
	}
}

static void add_data(struct ibv_send_wr *w)
{
	if (w->send_flags & IBV_SEND_INLINE)
		ibv_wr_set_inline_data(toex, (void *)(uintptr_t)w->sg_list[0].addr, w->sg_list[0].length);
	else if (w->num_sge == 1)
		ibv_wr_set_sge(toex, w->sg_list[0].lkey, w->sg_list[0].addr, w->sg_list[0].length);
	else /* even without SGEs: the call completes the request */
		ibv_wr_set_sge_list(toex, w->num_sge, w->sg_list);
}

/* Passes w to the builder, unless a list is posted. */
static void add(struct ibv_send_wr *w)
{
	if (!toex)
		return;
	toex->wr_id = w->wr_id;
	toex->wr_flags = w->send_flags & ~IBV_SEND_INLINE;
	switch (w->opcode) {
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(toex, w->wr.rdma.rkey, w->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(toex, w->wr.rdma.rkey, w->wr.rdma.remote_addr, w->imm_data);
		break;
	case IBV_WR_SEND:
		ibv_wr_send(toex);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(toex, w->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(toex, w->wr.rdma.rkey, w->wr.rdma.remote_addr);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(toex, w->wr.atomic.rkey, w->wr.atomic.remote_addr, w->wr.atomic.compare_add, w->wr.atomic.swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(toex, w->wr.atomic.rkey, w->wr.atomic.remote_addr, w->wr.atomic.compare_add);
		break;
	case IBV_WR_LOCAL_INV:
		ibv_wr_local_inv(toex, w->invalidate_rkey);
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(toex, w->invalidate_rkey);
		break;
	case IBV_WR_TSO:
		ibv_wr_send_tso(toex, w->tso.hdr, w->tso.hdr_sz, w->tso.mss);
		break;
	case IBV_WR_BIND_MW:
		ibv_wr_bind_mw(toex, w->bind_mw.mw, w->bind_mw.rkey, &w->bind_mw.bind_info);
		break;
	default:
		CHECK(!"an opcode that there is");
	}
	if (to->qp_type == IBV_QPT_XRC_SEND)
		ibv_wr_set_xrc_srqn(toex, w->qp_type.xrc.remote_srqn);
	if (w->opcode != IBV_WR_LOCAL_INV && w->opcode != IBV_WR_BIND_MW)
		add_data(w);
}

static void wr_to(uint32_t srqn)
{
	struct ibv_send_wr *w = take_wr();
	long off = take(), key = take(), imm = take(), add_or_compare = take(), swap = take();

	CHECK(key < (long)LEN(keys));
	w->imm_data = htobe32(imm);
	w->qp_type.xrc.remote_srqn = srqn;
	if (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		w->wr.atomic.remote_addr = (uintptr_t)mem + off;
		w->wr.atomic.rkey = key < 0 ? mr->rkey : keys[key];
		w->wr.atomic.compare_add = add_or_compare;
		w->wr.atomic.swap = swap;
	} else {
		w->wr.rdma.remote_addr = (uintptr_t)mem + off;
		w->wr.rdma.rkey = key < 0 ? mr->rkey : keys[key];
	}
	take_data(w);
	add(w);
}

static void do_wr(void) { wr_to(0); }

static void do_xwr(void)
{
	uint32_t srqn;

	GOOD(ibv_get_srq_num(SLOT(srqs), &srqn));
	wr_to(srqn);
}

static void do_dcwr(void)
{
	struct ibv_ah *ah = SLOT(ahs);
	uint32_t dctn = SLOT(qps)->qp_num;
	int stream = take();

	CHECK(toex);
	wr_to(0);
	if (stream)
		mlx5dv_wr_set_dc_addr_stream(mlx5dv_qp_ex_from_ibv_qp_ex(toex), ah, dctn, dc_key, stream);
	else
		mlx5dv_wr_set_dc_addr(mlx5dv_qp_ex_from_ibv_qp_ex(toex), ah, dctn, dc_key);
}

static void do_dmwr(void)
{
	struct device_memory *d = &SLOT(dms);
	int local = take();
	struct ibv_send_wr *w = take_wr();
	uint64_t remote = take(), near;
	uint32_t rkey = local ? mr->rkey : d->mr->rkey;

	remote += local ? (uintptr_t)mem : 0;
	if (w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		w->wr.atomic.remote_addr = remote;
		w->wr.atomic.rkey = rkey;
		w->wr.atomic.compare_add = 5;
	} else {
		w->wr.rdma.remote_addr = remote;
		w->wr.rdma.rkey = rkey;
	}
	near = take() + (local ? 0 : (uintptr_t)mem);
	w->sg_list[0] = (struct ibv_sge){ .addr = near, .length = take(), .lkey = local ? d->mr->lkey : mr->lkey };
	w->num_sge = 1;
	add(w);
}

static void do_datagram(void)
{
	struct ibv_send_wr *w = take_wr();

	w->imm_data = htobe32(take());
	w->wr.ud.ah = SLOT(ahs);
	w->wr.ud.remote_qpn = SLOT(qps)->qp_num;
	w->wr.ud.remote_qkey = udkey;
	take_data(w);
	add(w);
	if (toex)
		ibv_wr_set_ud_addr(toex, w->wr.ud.ah, w->wr.ud.remote_qpn, w->wr.ud.remote_qkey);
}

static void do_tso(void)
{
	struct ibv_send_wr *w = take_wr();

	w->tso.hdr = mem + take();
	w->tso.hdr_sz = take();
	w->tso.mss = take();
	w->num_sge = take_sges(w->sg_list);
	add(w);
}

static void do_store(void)
{
	long off = take(), n = take();

	CHECK(off + n <= memory);
	while (n-- > 0)
		mem[off++] = take();
}

static void do_invalidate(void)
{
	struct ibv_send_wr *w = take_wr();

	w->invalidate_rkey = keys[slot(LEN(keys))];
	take_data(w);
	add(w);
}

static struct ibv_mw_bind_info take_range(void)
{
	struct ibv_mw_bind_info r = { .mr = mr, .addr = (uintptr_t)mem + take() };

	r.length = take();
	r.mw_access_flags = take();
	return r;
}

static void do_bind(void)
{
	struct ibv_send_wr *w = take_wr();
	int i = slot(LEN(mws));

	keys[i] = ibv_inc_rkey(keys[i]);
	w->bind_mw.mw = mws[i];
	w->bind_mw.rkey = keys[i];
	w->bind_mw.bind_info = take_range();
	add(w);
}

static void do_bind1(void)
{
	struct ibv_qp *q = SLOT(qps);
	int i = slot(LEN(mws));
	struct ibv_mw_bind b = { .wr_id = take(), .send_flags = IBV_SEND_SIGNALED };

	b.bind_info = take_range();
	GOOD(ibv_bind_mw(q, mws[i], &b));
	keys[i] = mws[i]->rkey;
}

static void do_post(void)
{
	struct ibv_send_wr *bad;

	if (toex)
		GOOD(ibv_wr_complete(toex));
	else
		GOOD(ibv_post_send(to, wrs, &bad));
	for (int i = 0; i < posted; i++)
		if (wrs[i].opcode == IBV_WR_BIND_MW)
			wrs[i].bind_mw.mw->rkey = wrs[i].bind_mw.rkey;
}

static void do_recv(int shared)
{
	struct ibv_qp *q = shared ? NULL : SLOT(qps);
	struct ibv_srq *s = shared ? SLOT(srqs) : NULL;
	struct ibv_sge sge[32];
	struct ibv_recv_wr w = { .wr_id = take(), .sg_list = sge }, *bad;

	w.num_sge = take_sges(sge);
	GOOD(shared ? ibv_post_srq_recv(s, &w, &bad) : ibv_post_recv(q, &w, &bad));
}

static int number_of(uint32_t qpn)
{
	for (int i = 0; i < (int)LEN(qps); i++)
		if (qps[i] && qps[i]->qp_num == qpn)
			return i;
	return -1;
}

static void print_wc(const struct ibv_wc *w)
{
	printf("wc %lu qp %d status %d", (unsigned long)w->wr_id, number_of(w->qp_num), w->status);
	if (w->status == IBV_WC_SUCCESS) {
		printf(" opcode %d", w->opcode);
		if (w->opcode & IBV_WC_RECV || w->opcode == IBV_WC_RDMA_READ || w->opcode == IBV_WC_COMP_SWAP || w->opcode == IBV_WC_FETCH_ADD)
			printf(" length %u", w->byte_len);
		if (w->opcode & IBV_WC_RECV && w->wc_flags & IBV_WC_WITH_IMM)
			printf(" imm %x", be32toh(w->imm_data));
		/* except for datagrams libmlx5 reads it from what may be the payload */
		if (w->wc_flags & IBV_WC_GRH && qps[number_of(w->qp_num)]->qp_type == IBV_QPT_UD)
			printf(" grh");
		if (w->wc_flags & IBV_WC_WITH_INV)
			printf(" inv");
	} else {
		printf(" vendor %x", w->vendor_err);
	}
	printf("\n");
}

static void do_poll(void)
{
	struct ibv_cq *q = SLOT(cqs);
	int want = take(), n;
	struct ibv_wc wc[8];
	time_t limit = time(NULL) + 30;

	for (; want > 0; want -= n) {
		CHECK((n = ibv_poll_cq(q, want < 8 ? want : 8, wc)) >= 0);
		for (int i = 0; i < n; i++)
			print_wc(&wc[i]);
		CHECK(time(NULL) < limit);
	}
	CHECK(ibv_poll_cq(q, 1, wc) == 0);
}

static void do_event(void)
{
	struct ibv_cq *want = SLOT(cqs), *q;
	void *context;

	CHECK(!ibv_get_cq_event(channel, &q, &context));
	CHECK(q == want);
	ibv_ack_cq_events(q, 1);
}

static void do_sync(void)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr ia;

	GOOD(ibv_query_qp(SLOT(qps), &a, IBV_QP_STATE, &ia));
}

static void do_sum(void)
{
	uint32_t h = 2166136261u;

	for (int i = 0; i < memory; i++)
		h = (h ^ (unsigned char)mem[i]) * 16777619u;
	printf("sum %08x\n", h);
}

static void do_cq(void)
{
	struct ibv_cq **q = &SLOT(cqs);

	CHECK(*q = ibv_create_cq(ctx, take(), NULL, channel, 0));
	printf("cq %d\n", (*q)->cqe);
}

static void do_srq(void)
{
	struct ibv_srq **s = &SLOT(srqs);
	struct ibv_srq_init_attr a = {};

	a.attr.max_wr = take();
	a.attr.max_sge = take();
	CHECK(*s = ibv_create_srq(pd, &a));
}

static void do_xrcd(void)
{
	struct ibv_xrcd_init_attr a = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT };

	CHECK(xrcd = ibv_open_xrcd(ctx, &a));
}

static void do_xsrq(void)
{
	struct ibv_srq **s = &SLOT(srqs);
	struct ibv_srq_init_attr_ex a = { .srq_type = IBV_SRQT_XRC, .xrcd = xrcd, .pd = pd,
					  .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD };

	a.cq = SLOT(cqs);
	a.attr.max_wr = take();
	a.attr.max_sge = take();
	CHECK(*s = ibv_create_srq_ex(ctx, &a));
}

static void do_unxrcd(void) { GOOD(ibv_close_xrcd(xrcd)); }

static void do_domain(void)
{
	struct ibv_td_init_attr t = {};
	struct ibv_parent_domain_init_attr a = { .pd = base };

	CHECK(td = ibv_alloc_td(ctx, &t));
	a.td = td;
	CHECK(pd = ibv_alloc_parent_domain(ctx, &a));
}

static void do_undomain(void)
{
	GOOD(ibv_dealloc_pd(pd));
	GOOD(ibv_dealloc_td(td));
	pd = base;
}

static void do_mw(void)
{
	int i = slot(LEN(mws));

	CHECK(mws[i] = ibv_alloc_mw(pd, take()));
	keys[i] = mws[i]->rkey;
}

static void do_dm(void)
{
	struct device_memory *d = &SLOT(dms);
	struct ibv_alloc_dm_attr a = { .length = take() };

	CHECK(d->dm = ibv_alloc_dm(ctx, &a));
	CHECK(d->mr = ibv_reg_dm_mr(pd, d->dm, 0, a.length, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE |
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
}

static void do_dmput(void)
{
	struct device_memory *d = &SLOT(dms);
	long to = take(), from = take();

	GOOD(ibv_memcpy_to_dm(d->dm, to, mem + from, take()));
}

static void do_dmget(void)
{
	struct device_memory *d = &SLOT(dms);
	long from = take(), to = take();

	GOOD(ibv_memcpy_from_dm(mem + to, d->dm, from, take()));
}

/* Adds one to the first byte by an operation of the device, or tests and sets it. */
static void do_dmop(void)
{
	struct device_memory *d = &SLOT(dms);
	int op = take();
	volatile uint8_t *at = mlx5dv_dm_map_op_addr(d->dm, op);

	CHECK(at);
	if (op == 0)
		*at = 1;
	else
		printf("old %d\n", *at);
	munmap((void *)((uintptr_t)at & -4096), 4096);
}

static void do_undm(void)
{
	struct device_memory *d = &SLOT(dms);

	GOOD(ibv_dereg_mr(d->mr));
	GOOD(ibv_free_dm(d->dm));
}

static void do_limit(void)
{
	struct ibv_srq *s = SLOT(srqs);
	struct ibv_srq_attr a = { .srq_limit = take() };

	GOOD(ibv_modify_srq(s, &a, IBV_SRQ_LIMIT));
}

#define DESTROY(a, how)                          \
	do {                                     \
		int i = slot(LEN(a));            \
		GOOD(how((a)[i]));               \
		(a)[i] = NULL;                   \
	} while (0)

static void do_ah(void)
{
	struct ibv_ah_attr a = to_ourselves();

	CHECK(SLOT(ahs) = ibv_create_ah(pd, &a));
}

static void do_arm(void)
{
	struct ibv_cq *q = SLOT(cqs);

	GOOD(ibv_req_notify_cq(q, take()));
}

static void do_resize(void)
{
	struct ibv_cq *q = SLOT(cqs);

	GOOD(ibv_resize_cq(q, take()));
}

static void do_reset(void) { do_state(IBV_QPS_RESET); }
static void do_error(void) { do_state(IBV_QPS_ERR); }
static void do_qprecv(void) { do_recv(0); }
static void do_srqrecv(void) { do_recv(1); }
static void do_uncq(void) { DESTROY(cqs, ibv_destroy_cq); }
static void do_unsrq(void) { DESTROY(srqs, ibv_destroy_srq); }
static void do_unqp(void) { DESTROY(qps, ibv_destroy_qp); }
static void do_unah(void) { DESTROY(ahs, ibv_destroy_ah); }
static void do_unmw(void) { DESTROY(mws, ibv_dealloc_mw); }

static const struct {
	const char *name;
	void (*run)(void);
} verbs[] = {
	{ "cq", do_cq }, { "srq", do_srq }, { "mw", do_mw }, { "qp", do_qp }, { "ah", do_ah },
	{ "connect", do_connect }, { "ready", do_ready }, { "reset", do_reset }, { "error", do_error },
	{ "xrcd", do_xrcd }, { "xsrq", do_xsrq }, { "target", do_target }, { "unxrcd", do_unxrcd }, { "raw", do_raw },
	{ "domain", do_domain }, { "undomain", do_undomain },
	{ "dci", do_dci }, { "dct", do_dct }, { "dcready", do_dcready }, { "dcwr", do_dcwr },
	{ "dm", do_dm }, { "dmput", do_dmput }, { "dmget", do_dmget }, { "dmop", do_dmop }, { "dmwr", do_dmwr }, { "undm", do_undm },
	{ "begin", do_begin }, { "wr", do_wr }, { "xwr", do_xwr }, { "datagram", do_datagram }, { "tso", do_tso }, { "store", do_store }, { "invalidate", do_invalidate },
	{ "bind", do_bind }, { "bind1", do_bind1 }, { "post", do_post },
	{ "recv", do_qprecv }, { "srqrecv", do_srqrecv }, { "poll", do_poll }, { "arm", do_arm }, { "event", do_event },
	{ "resize", do_resize }, { "limit", do_limit }, { "sync", do_sync }, { "sum", do_sum },
	{ "uncq", do_uncq }, { "unsrq", do_unsrq }, { "unqp", do_unqp }, { "unah", do_unah }, { "unmw", do_unmw },
};

static void do_step(const char *verb)
{
	int i = 0;

	while (i < (int)LEN(verbs) && strcmp(verb, verbs[i].name))
		i++;
	CHECK(i < (int)LEN(verbs));
	verbs[i].run();
}

int main(int argc, char **argv)
{
	char line[4096], *verb, *word;
	FILE *script;

	CHECK(argc == 4);
	CHECK(script = fopen(argv[1], "r"));
	gid_index = atoi(argv[3]);
	open_device(argv[2]);
	while (fgets(line, sizeof(line), script)) {
		step++;
		verb = strtok(line, " \n");
		for (args = next_arg = 0; (word = strtok(NULL, " \n")); args++) {
			CHECK(args < (int)LEN(arg));
			arg[args] = strtol(word, NULL, 0);
		}
		do_step(verb);
		CHECK(next_arg == args);
	}
	GOOD(ibv_dereg_mr(mr));
	GOOD(ibv_dealloc_pd(pd));
	GOOD(ibv_destroy_comp_channel(channel));
	CHECK(!ibv_close_device(ctx));
	return 0;
}
