/* What posting and polling cost with the C library: bench/wrcost, in C. The
 * figures have the same names and are made the same way. tcc does not optimize,
 * so what the loop itself costs, with a function that does nothing in the
 * library's place, is told too.
 *
 *   wrcost DEVICE QPS ROUNDS
 *   wrcost DEVICE memory COUNT
 */
#include "cost.h"

#define EACH 128
#define LIST 32
#define SIZE 32
#define LONG 200 /* a message that no completion carries */
#define MAX_ROUNDS 15

enum { WRITE, INLINE, LIST32, LIST32INLINE, RECV, RECV32, POLL1, POLL32, EMPTY, SHORT1, SHORT32, LONG1, LONG32, LOOP, KINDS };
static const char *names[KINDS] = { "write", "inline", "list32", "list32inline", "recv", "recv32", "poll1", "poll32", "empty", "short1", "short32", "long1", "long32", "loop" };
static double best[KINDS];

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq, *sent;
static struct ibv_qp *used[EACH], *receiver, *loopback;
static struct ibv_send_wr many[2][LIST];
static struct ibv_recv_wr recvs[LIST];
static struct ibv_sge sge;

static int nothing(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	return 0;
}

static struct ibv_qp *create_on(struct ibv_cq *send_cq, int sends, int receives, int inline_data)
{
	struct ibv_qp_init_attr a = { .send_cq = send_cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = sends, .max_recv_wr = receives, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = inline_data } };
	struct ibv_qp *qp = ibv_create_qp(pd, &a);
	must(qp != NULL, "ibv_create_qp");
	return qp;
}

static struct ibv_qp *create(int sends, int receives, int inline_data)
{
	return create_on(cq, sends, receives, inline_data);
}

static void prepare(int qps)
{
	char *buf = allocate(65536);
	struct ibv_mr *mr;
	struct ibv_qp **all = calloc(qps, sizeof *all);
	int i, k;
	must(all != NULL, "memory");
	mr = ibv_reg_mr(pd, buf, 65536, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	must(mr != NULL, "ibv_reg_mr");
	cq = ibv_create_cq(ctx, 2 * EACH, NULL, NULL, 0);
	must(cq != NULL, "ibv_create_cq");
	for (i = 0; i < qps; i++)
		all[i] = connect_self(create(2 * EACH, 16, SIZE));
	for (i = 0; i < EACH; i++)
		used[i] = all[(long)i * qps / EACH];
	receiver = connect_self(create(1, EACH * (2 * MAX_ROUNDS + 2), 0));
	sent = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	must(sent != NULL, "ibv_create_cq");
	loopback = connect_self(create_on(sent, EACH, EACH, 0));
	sge.addr = (unsigned long)buf;
	sge.length = SIZE;
	sge.lkey = mr->lkey;
	for (k = 0; k < 2; k++)
		for (i = 0; i < LIST; i++) {
			struct ibv_send_wr *w = &many[k][i];
			w->wr_id = 1;
			w->sg_list = &sge;
			w->num_sge = 1;
			w->opcode = IBV_WR_RDMA_WRITE;
			w->send_flags = IBV_SEND_SIGNALED | (k ? IBV_SEND_INLINE : 0);
			w->wr.rdma.remote_addr = sge.addr + 4096;
			w->wr.rdma.rkey = mr->rkey;
			w->next = i + 1 < LIST ? w + 1 : NULL;
		}
	for (i = 0; i < LIST; i++) {
		recvs[i].wr_id = 1;
		recvs[i].sg_list = &sge;
		recvs[i].num_sge = 1;
		recvs[i].next = i + 1 < LIST ? &recvs[i] + 1 : NULL;
	}
}

/* The loops call the library through its table, as verbs.h does in code that is
 * optimized. */
static void run(int kind)
{
	int (*post)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **) = kind == LOOP ? nothing : ctx->ops.post_send;
	int (*recv)(struct ibv_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **) = ctx->ops.post_recv;
	struct ibv_send_wr *bad, *wr = many[kind == INLINE || kind == LIST32INLINE];
	struct ibv_recv_wr *badr;
	int i, step = kind == LIST32 || kind == LIST32INLINE || kind == RECV32 ? LIST : 1, err = 0;
	if (step == 1) {
		many[0][0].next = many[1][0].next = NULL;
		recvs[0].next = NULL;
	} else {
		many[0][0].next = &many[0][1];
		many[1][0].next = &many[1][1];
		recvs[0].next = &recvs[1];
	}
	if (kind == RECV || kind == RECV32)
		for (i = 0; i < EACH && !err; i += step)
			err = recv(receiver, recvs, &badr);
	else
		for (i = 0; i < EACH && !err; i += step)
			err = post(used[i], wr, &bad);
	errno = err;
	must(!err, names[kind]);
}

static void note(int kind, double took, double clock)
{
	took = (took - clock) / EACH;
	if (best[kind] == 0 || took < best[kind])
		best[kind] = took;
}

/* arrive has a round of messages arrive at the queue pair that sends them. The
 * last tells the sender. */
static void arrive(int size)
{
	struct ibv_sge to = sge, from = sge;
	struct ibv_recv_wr r = { .wr_id = 1, .sg_list = &to, .num_sge = 1 }, *badr;
	struct ibv_send_wr w = { .wr_id = 1, .sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	struct ibv_wc wc;
	int i;
	to.addr += 8192;
	to.length = LONG;
	from.length = size;
	for (i = 0; i < EACH; i++) {
		must(!ibv_post_recv(loopback, &r, &badr), "ibv_post_recv");
		w.send_flags = i == EACH - 1 ? IBV_SEND_SIGNALED : 0;
		must(!ibv_post_send(loopback, &w, &bad), "ibv_post_send");
	}
	settle(ctx);
	must(ibv_poll_cq(sent, 1, &wc) == 1 && wc.status == 0, "the last message");
}

static void measure_arrivals(double clock)
{
	double t, took;
	int k, empty;
	for (k = SHORT1; k <= LONG32; k++) {
		arrive(k == SHORT1 || k == SHORT32 ? SIZE : LONG);
		t = now();
		empty = take(cq, EACH, k == SHORT1 || k == LONG1 ? 1 : LIST);
		took = now() - t;
		if (!empty)
			note(k, took, clock);
	}
}

static void measure(int rounds)
{
	double t, took, clock = clock_cost();
	int i, k, m;
	for (i = 0; i < rounds; i++) {
		for (m = WRITE; m <= RECV32; m++) {
			int j, n;
			k = i % 2 ? RECV32 - m : m; /* as the program in Go does */
			n = (i + k) % 2 ? LIST : 1;
			t = now();
			run(k);
			note(k, now() - t, clock);
			if (k >= RECV)
				continue;
			settle(ctx);
			t = now();
			j = take(cq, EACH, n);
			took = now() - t;
			if (!j)
				note(n == 1 ? POLL1 : POLL32, took, clock);
		}
		measure_arrivals(clock);
		struct ibv_wc wc;
		int (*poll)(struct ibv_cq *, int, struct ibv_wc *) = ctx->ops.poll_cq;
		t = now();
		for (k = 0; k < EACH; k++)
			poll(cq, 1, &wc);
		note(EMPTY, now() - t, clock);
		t = now();
		run(LOOP);
		note(LOOP, now() - t, clock);
	}
	for (k = 0; k < KINDS; k++) {
		must(best[k] != 0, names[k]);
		printf("%s %.1f\n", names[k], best[k]);
	}
}

static void tell(const char *kind, int count, struct usage a, struct usage b)
{
	double n = count > 1 ? count - 1 : 1;
	printf("%s.rss %.0f\n%s.mapped %.0f\n%s.mappings %.3f\n", kind, (b.rss - a.rss) / n,
		kind, (b.mapped - a.mapped) / n, kind, (b.mappings - a.mappings) / n);
}

static void weigh(int count)
{
	struct usage first;
	int i;
	for (i = 0; i < count; i++) {
		struct ibv_cq *c = ibv_create_cq(ctx, 63, NULL, NULL, 0);
		must(c != NULL, "ibv_create_cq");
		if (i == 0) {
			cq = c;
			first = usage();
		}
	}
	tell("CQ", count, first, usage());
	for (i = 0; i < count; i++) {
		create(16, 16, 32);
		if (i == 0)
			first = usage();
	}
	tell("QP", count, first, usage());
}

int main(int argc, char **argv)
{
	must(argc == 4, "arguments");
	ctx = open_device(argv[1]);
	pd = ibv_alloc_pd(ctx);
	must(pd != NULL, "ibv_alloc_pd");
	if (!strcmp(argv[2], "memory")) {
		weigh(atoi(argv[3]));
		return 0;
	}
	prepare(atoi(argv[2]));
	measure(atoi(argv[3]) < MAX_ROUNDS ? atoi(argv[3]) : MAX_ROUNDS);
	return 0;
}
