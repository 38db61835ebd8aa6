// A program that executes the steps of a script with libefa, and prints what it observes. See script_test.go.
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>
#include <infiniband/efadv.h>

#define MAX 64

enum { SEND, SEND_IMM, READ, WRITE, WRITE_IMM };

struct send {
	int op, unsignaled, inlined, n;
	unsigned long id, raddr;
	unsigned imm, rkey, qpn, qkey;
	struct ibv_sge sge[8];
};

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_ah *ah;
static struct send sends[MAX];
static struct ibv_recv_wr recvs[MAX];
static struct ibv_sge recv_sges[MAX][8];
static int nsends, nrecvs;
static char data[4096];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};

	for (; list && *list && strcmp(ibv_get_device_name(*list), name); list++)
		;
	if (!list || !*list || !(ctx = ibv_open_device(*list)))
		fail("open");
	if (!(pd = ibv_alloc_pd(ctx)) || !(channel = ibv_create_comp_channel(ctx)) ||
	    !(cq = ibv_create_cq(ctx, 100, NULL, channel, 0)))
		fail("create");
	if (ibv_query_gid(ctx, 1, 0, &attr.grh.dgid) || !(ah = ibv_create_ah(pd, &attr)))
		fail("address");
}

static void modify(int state)
{
	struct ibv_qp_attr attr = {.qp_state = state, .port_num = 1, .qkey = 17};
	int mask = IBV_QP_STATE;

	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
	if (state == IBV_QPS_RTS)
		mask |= IBV_QP_SQ_PSN;
	if (ibv_modify_qp(qp, &attr, mask))
		fail("modify");
}

static void ready(void)
{
	modify(IBV_QPS_INIT);
	modify(IBV_QPS_RTR);
	modify(IBV_QPS_RTS);
}

static void create(char *args)
{
	struct ibv_qp_init_attr_ex attr = {.send_cq = cq, .recv_cq = cq, .pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM};
	struct efadv_qp_init_attr efa = {.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD};
	char type[8];

	sscanf(args, "%7s %u %u %u %u %u %d", type, &attr.cap.max_send_wr, &attr.cap.max_recv_wr, &attr.cap.max_send_sge,
	       &attr.cap.max_recv_sge, &attr.cap.max_inline_data, &attr.sq_sig_all);
	if (!strcmp(type, "srd")) {
		attr.qp_type = IBV_QPT_DRIVER;
		attr.send_ops_flags |= IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
		qp = efadv_create_qp_ex(ctx, &attr, &efa, sizeof efa);
	} else {
		attr.qp_type = IBV_QPT_UD;
		qp = ibv_create_qp_ex(ctx, &attr);
	}
	if (!qp)
		fail("qp");
	ready();
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

static void address(char *gid)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1};
	unsigned byte;
	int i;

	for (i = 0; i < 16; i++, gid += 2) {
		sscanf(gid, "%2x", &byte);
		attr.grh.dgid.raw[i] = byte;
	}
	if (!(ah = ibv_create_ah(pd, &attr)))
		fail("address");
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

	for (i = 0; i < n; i++, at += used)
		sscanf(at, "%lu %u %u%n", (unsigned long *)&to[i].addr, &to[i].length, &to[i].lkey, &used);
	return n;
}

static void add_send(char *args)
{
	struct send *s = &sends[nsends++];
	int used;

	sscanf(args, "%d %d %lu %u %lu %u %u %u %d %d%n", &s->op, &s->unsignaled, &s->id, &s->imm, &s->raddr, &s->rkey, &s->qpn,
	       &s->qkey, &s->inlined, &s->n, &used);
	if (!s->inlined)
		sges(args + used, s->sge, s->n);
}

static void post(void)
{
	struct ibv_send_wr wr[MAX] = {}, *bad = NULL;
	struct ibv_sge inl[MAX];
	int i, err;

	for (i = 0; i < nsends; i++) {
		struct send *s = &sends[i];

		wr[i].next = i + 1 < nsends ? &wr[i + 1] : NULL;
		wr[i].wr_id = s->id;
		wr[i].opcode = s->op == SEND ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
		wr[i].send_flags = s->unsignaled ? 0 : IBV_SEND_SIGNALED;
		wr[i].imm_data = htonl(s->imm);
		wr[i].sg_list = s->sge;
		wr[i].num_sge = s->n;
		if (s->inlined) {
			inl[i] = (struct ibv_sge){(uintptr_t)data, s->n, 0};
			wr[i].sg_list = &inl[i];
			wr[i].num_sge = 1;
			wr[i].send_flags |= IBV_SEND_INLINE;
		}
		wr[i].wr.ud.ah = ah;
		wr[i].wr.ud.remote_qpn = s->qpn;
		wr[i].wr.ud.remote_qkey = s->qkey;
	}
	err = ibv_post_send(qp, wr, &bad);
	printf("posted %d, failed %d\n", err ? (int)(bad - wr) : nsends, err != 0);
	nsends = 0;
}

static void batch(void)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qp);
	int i, err;

	ibv_wr_start(x);
	for (i = 0; i < nsends; i++) {
		struct send *s = &sends[i];

		x->wr_id = s->id;
		x->wr_flags = s->unsignaled ? 0 : IBV_SEND_SIGNALED;
		switch (s->op) {
		case SEND:
			ibv_wr_send(x);
			break;
		case SEND_IMM:
			ibv_wr_send_imm(x, htonl(s->imm));
			break;
		case READ:
			ibv_wr_rdma_read(x, s->rkey, s->raddr);
			break;
		case WRITE:
			ibv_wr_rdma_write(x, s->rkey, s->raddr);
			break;
		case WRITE_IMM:
			ibv_wr_rdma_write_imm(x, s->rkey, s->raddr, htonl(s->imm));
			break;
		}
		if (s->inlined)
			ibv_wr_set_inline_data(x, data, s->n);
		else
			ibv_wr_set_sge_list(x, s->n, s->sge);
		ibv_wr_set_ud_addr(x, ah, s->qpn, s->qkey);
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
	int err = ibv_post_recv(qp, recvs, &bad);

	printf("posted %d, failed %d\n", err ? (int)(bad - recvs) : nrecvs, err != 0);
	nrecvs = 0;
}

static void poll(int n)
{
	struct ibv_wc wc[MAX] = {};
	int i, got = ibv_poll_cq(cq, n, wc);

	printf("polled %d", got);
	for (i = 0; i < got; i++)
		printf("; %lu %d %d %u %u %u %u %u %u %u", (unsigned long)wc[i].wr_id, wc[i].status, wc[i].opcode, wc[i].vendor_err,
		       wc[i].qp_num, wc[i].byte_len, wc[i].src_qp, wc[i].slid, ntohl(wc[i].imm_data), wc[i].wc_flags);
	printf("\n");
}

static void event(void)
{
	struct ibv_cq *of;
	void *context;

	if (ibv_get_cq_event(channel, &of, &context))
		fail("event");
	ibv_ack_cq_events(of, 1);
	printf("armed %d\n", ibv_req_notify_cq(cq, 0));
}

int main(int argc, char **argv)
{
	char line[4096], step[16];
	int i, used;

	for (i = 0; i < (int)sizeof data; i++)
		data[i] = i * 7 + 1;
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
			printf("armed %d\n", ibv_req_notify_cq(cq, 0));
		else if (!strcmp(step, "event"))
			event();
		else if (!strcmp(step, "reset")) {
			modify(IBV_QPS_RESET);
			ready();
			printf("reset\n");
		} else if (!strcmp(step, "mr"))
			register_data();
		else if (!strcmp(step, "address"))
			address(line + used + 1);
		else if (!strcmp(step, "show")) {
			sscanf(line + used, "%d %d", &i, &used);
			show(i, used);
		} else
			printf("unknown step %s\n", step);
		fflush(stdout);
	}
	return 0;
}
