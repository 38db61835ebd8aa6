/* Messages and one-sided access with the C library, as rping does them: librdmacm's
 * synchronous calls, which sleep until there is a completion. It is bench/rdmacost,
 * in C: both ends of a connection of a device with itself, each with a thread.
 *
 *   messages ADDRESS cost ROUNDS	CPU time of the process for each operation, ns
 *   messages ADDRESS tail COUNT	quantiles of single times, us
 */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#define SMALL 64
#define LARGE (1 << 20)
#define SLOTS 4
#define PORT "7479"
#define BLOCKS (1 << 20) /* of SMALL bytes that the churning thread holds */
#define PER_TICK 128 /* of them that it replaces every millisecond */

struct side {
	struct rdma_cm_id *id;
	char *recvs, *sends;
	struct ibv_mr *recvs_mr, *sends_mr;
	int size;
	unsigned sent;
};

struct access { uint64_t addr; uint32_t rkey; };

static struct side client = { .size = SMALL }, server = { .size = LARGE };
static struct rdma_cm_id *listener;
static struct access shared;
static char *data;

static void must(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "messages: %s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static double clock_us(clockid_t id)
{
	struct timespec t;
	must(!clock_gettime(id, &t), "clock_gettime");
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void *allocate(size_t n)
{
	void *p = NULL;
	must(!posix_memalign(&p, 4096, n), "memory");
	memset(p, 0, n);
	return p;
}

static void post(struct side *s, long i)
{
	must(!rdma_post_recv(s->id, (void *)i, s->recvs + i * s->size, s->size, s->recvs_mr), "rdma_post_recv");
}

static void set_up(struct side *s)
{
	long i;
	s->recvs = allocate(SLOTS * s->size);
	s->sends = allocate(LARGE);
	must((s->recvs_mr = rdma_reg_msgs(s->id, s->recvs, SLOTS * s->size)) != NULL, "rdma_reg_msgs");
	must((s->sends_mr = rdma_reg_msgs(s->id, s->sends, LARGE)) != NULL, "rdma_reg_msgs");
	for (i = 0; i < SLOTS; i++)
		post(s, i);
}

static struct rdma_cm_id *endpoint(const char *address, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 16, .max_recv_wr = 16,
		.max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = SMALL } };
	struct rdma_cm_id *id;
	must(!rdma_getaddrinfo(address, PORT, &hints, &found), "rdma_getaddrinfo");
	must(!rdma_create_ep(&id, found, NULL, &a), "rdma_create_ep");
	rdma_freeaddrinfo(found);
	return id;
}

static void sent(struct side *s)
{
	struct ibv_wc wc;
	must(rdma_get_send_comp(s->id, &wc) > 0 && wc.status == IBV_WC_SUCCESS, "completion of a send");
}

/* send_message sends n bytes, and waits for the completions of earlier sends. */
static void send_message(struct side *s, const char *b, size_t n)
{
	int flags = ++s->sent % 8 == 0 || n > SMALL ? IBV_SEND_SIGNALED : 0;
	if (n <= SMALL) {
		must(!rdma_post_send(s->id, NULL, (void *)b, n, NULL, flags | IBV_SEND_INLINE), "rdma_post_send");
	} else {
		memcpy(s->sends, b, n);
		must(!rdma_post_send(s->id, NULL, s->sends, n, s->sends_mr, flags), "rdma_post_send");
	}
	if (flags)
		sent(s);
}

/* receive returns the slot of the next message. */
static long receive(struct side *s, uint32_t *n)
{
	struct ibv_wc wc;
	must(rdma_get_recv_comp(s->id, &wc) > 0 && wc.status == IBV_WC_SUCCESS, "completion of a receive");
	*n = wc.byte_len;
	return (long)wc.wr_id;
}

/* serve sends the start of each message back, until one of one byte. */
static void *serve(void *unused)
{
	struct rdma_conn_param p = { .responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7 };
	struct ibv_mr *mr;
	struct access a;
	char *b = allocate(4096);
	uint32_t n;
	must(!rdma_get_request(listener, &server.id), "rdma_get_request");
	set_up(&server);
	must((mr = ibv_reg_mr(server.id->pd, b, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
		IBV_ACCESS_REMOTE_WRITE)) != NULL, "ibv_reg_mr");
	a.addr = (uintptr_t)b;
	a.rkey = mr->rkey;
	p.private_data = &a;
	p.private_data_len = sizeof a;
	must(!rdma_accept(server.id, &p), "rdma_accept");
	for (;;) {
		long i = receive(&server, &n);
		if (n == 1)
			return NULL;
		send_message(&server, server.recvs + i * server.size, SMALL);
		post(&server, i);
	}
}

static pthread_t start(const char *address)
{
	struct rdma_conn_param p = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };
	pthread_t t;
	listener = endpoint(address, RAI_PASSIVE);
	must(!rdma_listen(listener, 1), "rdma_listen");
	must(!pthread_create(&t, NULL, serve, NULL), "pthread_create");
	client.id = endpoint(address, 0);
	set_up(&client);
	must(!rdma_connect(client.id, &p), "rdma_connect");
	must(client.id->event->param.conn.private_data_len >= sizeof shared, "no private data");
	memcpy(&shared, client.id->event->param.conn.private_data, sizeof shared);
	data = allocate(LARGE);
	return t;
}

static void do_read(void)
{
	must(!rdma_post_read(client.id, NULL, client.sends, SMALL, client.sends_mr, IBV_SEND_SIGNALED, shared.addr,
		shared.rkey), "rdma_post_read");
	sent(&client);
}

static void do_write(void)
{
	must(!rdma_post_write(client.id, NULL, client.sends, SMALL, client.sends_mr, IBV_SEND_SIGNALED, shared.addr,
		shared.rkey), "rdma_post_write");
	sent(&client);
}

static void echo(size_t n)
{
	uint32_t got;
	send_message(&client, data, n);
	post(&client, receive(&client, &got));
	must(got == SMALL, "length of an echo");
}

static void do_small(void) { echo(SMALL); }
static void do_large(void) { echo(LARGE); }

static const struct operation { const char *name; int count; void (*run)(void); } operations[] = {
	{ "read", 150, do_read }, { "write", 150, do_write }, { "small", 150, do_small }, { "large", 20, do_large } };

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* cost prints the median CPU time of several rounds. */
static void cost(int rounds)
{
	double *all = allocate(rounds * sizeof *all);
	for (size_t k = 0; k < sizeof operations / sizeof *operations; k++) {
		const struct operation *o = &operations[k];
		for (int r = 0; r < rounds; r++) {
			double began;
			o->run(); /* what follows begins in the same state */
			began = clock_us(CLOCK_PROCESS_CPUTIME_ID);
			for (int i = 0; i < o->count; i++)
				o->run();
			all[r] = (clock_us(CLOCK_PROCESS_CPUTIME_ID) - began) * 1e3 / o->count;
		}
		qsort(all, rounds, sizeof *all, compare);
		printf("%s %.0f\n", o->name, (all[(rounds - 1) / 2] + all[rounds / 2]) / 2);
	}
	free(all);
}

/* times prints quantiles of the times of count operations. */
static void times(const char *name, int count, void (*run)(void))
{
	double *all = allocate(count * sizeof *all);
	for (int i = 0; i < 100; i++)
		run();
	for (int i = 0; i < count; i++) {
		double began = clock_us(CLOCK_MONOTONIC);
		run();
		all[i] = clock_us(CLOCK_MONOTONIC) - began;
	}
	qsort(all, count, sizeof *all, compare);
	printf("%s.p50 %.2f\n%s.p99 %.2f\n%s.p99.9 %.2f\n", name, all[count / 2], name, all[(int)(count * 0.99)], name,
		all[(int)(count * 0.999)]);
	free(all);
}

struct block { struct block *next; char rest[SMALL - sizeof(void *)]; };

static volatile int stop;

/* churn frees and allocates blocks at a steady rate. */
static void *churn(void *blocks)
{
	struct block **all = blocks;
	uint32_t at = 1;
	while (!stop) {
		for (int i = 0; i < PER_TICK; i++) {
			at = at * 1664525 + 1013904223;
			free(all[at % BLOCKS]);
			must((all[at % BLOCKS] = malloc(sizeof **all)) != NULL, "malloc");
			all[at % BLOCKS]->next = NULL;
		}
		usleep(1000);
	}
	return NULL;
}

static void tail(int count)
{
	struct block **all = allocate(BLOCKS * sizeof *all);
	pthread_t t;
	times("read", count, do_read);
	times("write", count, do_write);
	times("small", count, do_small);
	for (int i = 0; i < BLOCKS; i++)
		must((all[i] = calloc(1, sizeof **all)) != NULL, "malloc");
	must(!pthread_create(&t, NULL, churn, all), "pthread_create");
	times("churned", count, do_small);
	stop = 1;
	pthread_join(t, NULL);
}

int main(int argc, char **argv)
{
	pthread_t t;
	int n = argc == 4 ? atoi(argv[3]) : 0;
	if (n < 1 || (strcmp(argv[2], "cost") && strcmp(argv[2], "tail"))) {
		fprintf(stderr, "usage: messages ADDRESS cost ROUNDS | messages ADDRESS tail COUNT\n");
		return 2;
	}
	t = start(argv[1]);
	if (argv[2][0] == 'c')
		cost(n);
	else
		tail(n);
	send_message(&client, data, 1);
	pthread_join(t, NULL);
	return 0;
}
