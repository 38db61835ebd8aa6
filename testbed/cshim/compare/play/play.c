// A program that executes the steps of a script with libibverbs, and prints what it observes: see ../cside.go. Its arguments
// are a device, an entry of the GID table, whether completions of requests that failed are whole, and whether there are
// batches. Programs for devices whose QPs another library creates define DRIVER_QP, a function for QPs of type
// IBV_QPT_DRIVER, and include this file.
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define MAX 64

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_srq *srq;
static struct ibv_ah *ah;
static union ibv_gid gid;
static struct ibv_send_wr sends[MAX];
static struct batched {
	int op;
	unsigned long raddr, compare, swap;
	unsigned imm, rkey, qpn, qkey;
} batched[MAX]; // the requests of sends
static struct ibv_recv_wr recvs[MAX];
static struct ibv_sge send_sges[MAX][16], recv_sges[MAX][16];
static int nsends, nrecvs, gid_index, whole, batches;
static char data[4096];

// mark is called before and after what is measured: see ../cost_amd64.go.
static void mark(void) { getuid(); }

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void address(const union ibv_gid *to)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = gid_index, .dgid = *to}};

	if (!(ah = ibv_create_ah(pd, &attr)))
		fail("address");
}

static void open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (; list && *list && strcmp(ibv_get_device_name(*list), name); list++)
		;
	if (!list || !*list || !(ctx = ibv_open_device(*list)))
		fail("open");
	if (!(pd = ibv_alloc_pd(ctx)) || !(channel = ibv_create_comp_channel(ctx)) ||
	    !(cq = ibv_create_cq(ctx, 100, NULL, channel, 0)))
		fail("create");
	if (ibv_query_gid(ctx, 1, gid_index, &gid))
		fail("gid");
	address(&gid);
}

static void modify(int state, unsigned psn)
{
	struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1, .qkey = 17, .path_mtu = IBV_MTU_1024, .sq_psn = psn,
		.dest_qp_num = 99, .max_rd_atomic = 1, .max_dest_rd_atomic = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.sgid_index = gid_index, .dgid = gid}}};
	int rc = qp->qp_type == IBV_QPT_RC;
	int mask = IBV_QP_STATE;

	switch (state) {
	case IBV_QPS_INIT:
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (rc ? IBV_QP_ACCESS_FLAGS : IBV_QP_QKEY);
		break;
	case IBV_QPS_RTR:
		if (rc)
			mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				IBV_QP_MIN_RNR_TIMER;
		break;
	case IBV_QPS_RTS:
		mask |= IBV_QP_SQ_PSN;
		if (rc)
			mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
		break;
	}
	if (ibv_modify_qp(qp, &attr, mask))
		fail("modify");
}

static void ready(unsigned psn)
{
	modify(IBV_QPS_INIT, 0);
	modify(IBV_QPS_RTR, 0);
	modify(IBV_QPS_RTS, psn);
}

#ifndef DRIVER_QP
#define DRIVER_QP ibv_create_qp_ex
#endif

// create_qp creates a QP, to which ibv_wr_start(3) can post if there are batches.
static struct ibv_qp *create_qp(struct ibv_qp_init_attr_ex *attr)
{
	const uint64_t datagrams = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
	const uint64_t rdma = IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
	const uint64_t atomics = IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;

	attr->pd = pd;
	attr->comp_mask = IBV_QP_INIT_ATTR_PD | (batches ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0);
	attr->send_ops_flags = datagrams;
	if (attr->qp_type != IBV_QPT_UD)
		attr->send_ops_flags |= rdma;
	if (attr->qp_type == IBV_QPT_RC)
		attr->send_ops_flags |= atomics;
	return attr->qp_type == IBV_QPT_DRIVER ? DRIVER_QP(ctx, attr) : ibv_create_qp_ex(ctx, attr);
}

static void create(char *args)
{
	struct ibv_qp_init_attr_ex attr = {.send_cq = cq, .recv_cq = cq};
	struct ibv_srq_init_attr shared = {};
	unsigned psn;
	char type[8];

	sscanf(args, "%7s %u %u %u %u %u %d %u %u", type, &attr.cap.max_send_wr, &attr.cap.max_recv_wr, &attr.cap.max_send_sge,
	       &attr.cap.max_recv_sge, &attr.cap.max_inline_data, &attr.sq_sig_all, &psn, &shared.attr.max_wr);
	attr.qp_type = !strcmp(type, "rc") ? IBV_QPT_RC : !strcmp(type, "ud") ? IBV_QPT_UD : IBV_QPT_DRIVER;
	if (shared.attr.max_wr) {
		shared.attr.max_sge = attr.cap.max_recv_sge;
		attr.cap.max_recv_wr = attr.cap.max_recv_sge = 0;
		if (!(attr.srq = srq = ibv_create_srq(pd, &shared)))
			fail("srq");
	}
	if (!(qp = create_qp(&attr)))
		fail("qp");
	ready(psn);
	printf("QP %u, %u sends, %u receives\n", qp->qp_num, attr.cap.max_send_wr, attr.cap.max_recv_wr);
}

static void register_data(void)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, data, sizeof data, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				       IBV_ACCESS_REMOTE_WRITE);

	if (!mr)
		fail("mr");
	printf("MR %lu %u %u\n", (unsigned long)(uintptr_t)data, mr->lkey, mr->rkey);
}

static void parse_address(char *text)
{
	union ibv_gid to;
	unsigned byte;
	int i;

	for (i = 0; i < 16; i++, text += 2) {
		sscanf(text, "%2x", &byte);
		to.raw[i] = byte;
	}
	address(&to);
	printf("address\n");
}

static void show(int offset, int n)
{
	for (; n > 0; n--, offset++)
		printf("%02x", (unsigned char)data[offset]);
	printf("\n");
}

static int sges(char *at, struct ibv_sge *to, int n)
{
	int i, used;

	memset(to, 0, sizeof *to); // libirdma reads the first one even if there is none
	for (i = 0; i < n; i++, at += used)
		sscanf(at, "%lu %u %u%n", (unsigned long *)&to[i].addr, &to[i].length, &to[i].lkey, &used);
	return n;
}

static void add_send(char *args)
{
	struct ibv_send_wr *w = &sends[nsends];
	unsigned long raddr, compare, swap;
	unsigned imm, rkey, qpn, qkey;
	int op, inlined, used;

	memset(w, 0, sizeof *w);
	sscanf(args, "%d %u %lu %u %lu %u %lu %lu %u %u %d %d%n", &op, &w->send_flags, (unsigned long *)&w->wr_id, &imm, &raddr,
	       &rkey, &compare, &swap, &qpn, &qkey, &inlined, &w->num_sge, &used);
	w->opcode = op;
	if (op == IBV_WR_SEND_WITH_INV || op == IBV_WR_LOCAL_INV)
		w->invalidate_rkey = imm;
	else
		w->imm_data = htonl(imm);
	w->sg_list = send_sges[nsends];
	if (inlined) {
		w->sg_list[0] = (struct ibv_sge){(uintptr_t)data, w->num_sge, 0};
		w->num_sge = 1;
		w->send_flags |= IBV_SEND_INLINE;
	} else
		sges(args + used, w->sg_list, w->num_sge);
	batched[nsends] = (struct batched){op, raddr, compare, swap, imm, rkey, qpn, qkey};
	if (qp->qp_type != IBV_QPT_RC) {
		w->wr.ud.ah = ah;
		w->wr.ud.remote_qpn = qpn;
		w->wr.ud.remote_qkey = qkey;
	} else if (op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		w->wr.atomic.remote_addr = raddr;
		w->wr.atomic.rkey = rkey;
		w->wr.atomic.compare_add = compare;
		w->wr.atomic.swap = swap;
	} else {
		w->wr.rdma.remote_addr = raddr;
		w->wr.rdma.rkey = rkey;
	}
	if (nsends++)
		w[-1].next = w;
}

static void post(void)
{
	struct ibv_send_wr *bad = NULL;
	int err;

	mark();
	err = ibv_post_send(qp, sends, &bad);
	mark();
	printf("posted %d, failed %d\n", err ? (int)(bad - sends) : nsends, err != 0);
	nsends = 0;
}

// batch posts with ibv_wr_start(3).
static void batch(void)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qp);
	int i, err;

	ibv_wr_start(x);
	for (i = 0; i < nsends; i++) {
		struct batched *b = &batched[i];

		x->wr_id = sends[i].wr_id;
		x->wr_flags = sends[i].send_flags;
		switch (b->op) {
		case IBV_WR_SEND:
			ibv_wr_send(x);
			break;
		case IBV_WR_SEND_WITH_IMM:
			ibv_wr_send_imm(x, htonl(b->imm));
			break;
		case IBV_WR_RDMA_READ:
			ibv_wr_rdma_read(x, b->rkey, b->raddr);
			break;
		case IBV_WR_RDMA_WRITE:
			ibv_wr_rdma_write(x, b->rkey, b->raddr);
			break;
		case IBV_WR_RDMA_WRITE_WITH_IMM:
			ibv_wr_rdma_write_imm(x, b->rkey, b->raddr, htonl(b->imm));
			break;
		case IBV_WR_ATOMIC_CMP_AND_SWP:
			ibv_wr_atomic_cmp_swp(x, b->rkey, b->raddr, b->compare, b->swap);
			break;
		case IBV_WR_ATOMIC_FETCH_AND_ADD:
			ibv_wr_atomic_fetch_add(x, b->rkey, b->raddr, b->compare);
			break;
		}
		if (sends[i].send_flags & IBV_SEND_INLINE)
			ibv_wr_set_inline_data(x, data, sends[i].sg_list->length);
		else
			ibv_wr_set_sge_list(x, sends[i].num_sge, sends[i].sg_list);
		if (qp->qp_type != IBV_QPT_RC)
			ibv_wr_set_ud_addr(x, ah, b->qpn, b->qkey);
	}
	err = ibv_wr_complete(x);
	printf("posted %d, failed %d\n", err ? 0 : nsends, err != 0);
	nsends = 0;
}

static void add_recv(char *args)
{
	struct ibv_recv_wr *r = &recvs[nrecvs];
	int used;

	memset(r, 0, sizeof *r);
	sscanf(args, "%lu %d%n", (unsigned long *)&r->wr_id, &r->num_sge, &used);
	r->sg_list = recv_sges[nrecvs];
	sges(args + used, r->sg_list, r->num_sge);
	if (nrecvs++)
		r[-1].next = r;
}

static void post_recv(void)
{
	struct ibv_recv_wr *bad = NULL;
	int err;

	mark();
	err = srq ? ibv_post_srq_recv(srq, recvs, &bad) : ibv_post_recv(qp, recvs, &bad);
	mark();
	printf("posted %d, failed %d\n", err ? (int)(bad - recvs) : nrecvs, err != 0);
	nrecvs = 0;
}

static void poll(int n)
{
	struct ibv_wc wc[MAX] = {};
	int i, got;

	mark();
	got = ibv_poll_cq(cq, n, wc);
	mark();
	printf("polled %d", got);
	for (i = 0; i < got; i++) {
		printf("; %lu %d %u %u", (unsigned long)wc[i].wr_id, wc[i].status, wc[i].vendor_err, wc[i].qp_num);
		if (!wc[i].status || whole)
			printf(" %d %u %u %u %u %u", wc[i].opcode, wc[i].byte_len, wc[i].src_qp, wc[i].slid,
			       wc[i].wc_flags & IBV_WC_WITH_INV ? wc[i].invalidated_rkey : ntohl(wc[i].imm_data), wc[i].wc_flags);
	}
	printf("\n");
}

static void event(void)
{
	struct ibv_cq *of;
	void *context;

	if (ibv_get_cq_event(channel, &of, &context))
		fail("event");
	ibv_ack_cq_events(of, 1);
	printf("event\n");
}

int main(int argc, char **argv)
{
	char line[4096], step[16];
	int i, used;

	for (i = 0; i < (int)sizeof data; i++)
		data[i] = i * 7 + 1;
	gid_index = atoi(argv[2]);
	whole = atoi(argv[3]);
	batches = atoi(argv[4]);
	open_device(argv[1]);
	while (fgets(line, sizeof line, stdin)) {
		used = 0;
		sscanf(line, "%15s%n", step, &used);
		if (!strcmp(step, "qp"))
			create(line + used);
		else if (!strcmp(step, "send"))
			add_send(line + used);
		else if (!strcmp(step, "recv"))
			add_recv(line + used);
		else if (!strcmp(step, "post"))
			post();
		else if (!strcmp(step, "batch"))
			batch();
		else if (!strcmp(step, "postrecv"))
			post_recv();
		else if (!strcmp(step, "poll"))
			poll(atoi(line + used));
		else if (!strcmp(step, "arm"))
			printf("armed %d\n", ibv_req_notify_cq(cq, atoi(line + used)));
		else if (!strcmp(step, "event"))
			event();
		else if (!strcmp(step, "resize")) {
			i = ibv_resize_cq(cq, atoi(line + used));
			printf("resized %d\n", i == -ENOMEM ? 0 : i); // the ring has the size already
		} else if (!strcmp(step, "reset")) {
			modify(IBV_QPS_RESET, 0);
			ready(atoi(line + used));
			printf("reset\n");
		} else if (!strcmp(step, "error")) {
			modify(IBV_QPS_ERR, 0);
			printf("error\n");
		} else if (!strcmp(step, "close")) {
			if (ibv_destroy_qp(qp))
				fail("close");
			printf("closed\n");
		} else if (!strcmp(step, "mr"))
			register_data();
		else if (!strcmp(step, "address"))
			parse_address(line + used + 1);
		else if (!strcmp(step, "show")) {
			sscanf(line + used, "%d %d", &i, &used);
			show(i, used);
		} else
			printf("unknown step %s\n", step);
		fflush(stdout);
	}
	return 0;
}
