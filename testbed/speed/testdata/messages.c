/* Messages and one-sided access with the C library, as rping does them: librdmacm's
 * synchronous calls, which sleep until there is a completion. It is bench/rdmacost,
 * in C: both ends of a connection of a device with itself, each with a thread.
 *
 *   messages ADDRESS cost ROUNDS	CPU time of the process for each operation, ns
 *   messages ADDRESS tail COUNT	quantiles of single times, us
 */
#include <stdint.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include "messages.h"

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
