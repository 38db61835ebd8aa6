/* Messages and one-sided access with libfabric: bench/rdmacost and messages.c on its provider for verbs. Both ends of a
 * connection of a device with itself, each with a thread and a domain, wait in fi_cq_sread, which sleeps.
 *
 *   fabric ADDRESS cost ROUNDS [rdm]	CPU time of the process for each operation, ns
 *   fabric ADDRESS tail COUNT [rdm]	quantiles of single times, us
 *
 * The endpoints are connected ones, FI_EP_MSG, which verbs has. With rdm they are FI_EP_RDM, of the provider ofi_rxm on
 * top of verbs.
 */
#include <stdint.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include "messages.h"

#define QUEUE 32

struct side {
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_eq *eq; /* of a connected endpoint */
	struct fid_av *av; /* of another */
	struct fid_ep *ep;
	struct fid_cq *sent, *received;
	struct fid_mr *recvs_mr, *sends_mr;
	fi_addr_t peer;
	char *recvs, *sends;
	int size;
};

struct access { uint64_t addr, key; };

static struct side client = { .size = SMALL }, server = { .size = LARGE };
static struct fid_pep *listener;
static struct access shared;
static char *data;

static void check(long ret, const char *what)
{
	if (ret < 0) {
		fprintf(stderr, "fabric: %s: %s\n", what, fi_strerror(-ret));
		exit(1);
	}
}

/* again reports whether a request that found its queue full is to be repeated. */
static int again(long ret, struct side *s, const char *what)
{
	if (ret == -FI_EAGAIN) {
		fi_cq_read(s->sent, NULL, 0); /* takes requests that have completed from the queue */
		return 1;
	}
	check(ret, what);
	return 0;
}

static void post(struct side *s, char *slot)
{
	check(fi_recv(s->ep, slot, s->size, fi_mr_desc(s->recvs_mr), FI_ADDR_UNSPEC, slot), "fi_recv");
}

static struct fi_info *find(const char *address, const char *port, int rdm, uint64_t flags)
{
	struct fi_info *hints = fi_allocinfo(), *found = NULL;
	hints->ep_attr->type = rdm ? FI_EP_RDM : FI_EP_MSG;
	hints->caps = FI_MSG | FI_RMA;
	hints->addr_format = FI_SOCKADDR_IN;
	hints->fabric_attr->prov_name = strdup(rdm ? "verbs;ofi_rxm" : "verbs");
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->domain_attr->av_type = FI_AV_TABLE;
	hints->tx_attr->inject_size = SMALL;
	hints->tx_attr->size = QUEUE;
	hints->rx_attr->size = QUEUE;
	check(fi_getinfo(FI_VERSION(2, 0), address, port, flags, hints, &found), "fi_getinfo");
	fi_freeinfo(hints);
	return found;
}

static struct fid_mr *registered(struct side *s, void *b, size_t n, uint64_t access, uint64_t key)
{
	struct fid_mr *mr;
	check(fi_mr_reg(s->domain, b, n, access, 0, key, 0, &mr, NULL), "fi_mr_reg");
	return mr;
}

/* set_up creates an endpoint, with memory, and receives for messages. */
static void set_up(struct side *s, struct fi_info *info)
{
	/* Injected messages have no completion here, but verbs has one for each, and reads them when its queue is full. */
	struct fi_cq_attr a = { .size = QUEUE, .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD };
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	check(fi_domain(s->fabric, info, &s->domain, NULL), "fi_domain");
	check(fi_cq_open(s->domain, &a, &s->sent, NULL), "fi_cq_open");
	check(fi_cq_open(s->domain, &a, &s->received, NULL), "fi_cq_open");
	check(fi_endpoint(s->domain, info, &s->ep, NULL), "fi_endpoint");
	check(fi_ep_bind(s->ep, &s->sent->fid, FI_TRANSMIT), "fi_ep_bind");
	check(fi_ep_bind(s->ep, &s->received->fid, FI_RECV), "fi_ep_bind");
	if (s->eq) {
		check(fi_ep_bind(s->ep, &s->eq->fid, 0), "fi_ep_bind");
	} else {
		check(fi_av_open(s->domain, &av, &s->av, NULL), "fi_av_open");
		check(fi_ep_bind(s->ep, &s->av->fid, 0), "fi_ep_bind");
	}
	check(fi_enable(s->ep), "fi_enable");
	s->recvs = allocate(SLOTS * s->size);
	s->sends = allocate(LARGE);
	s->recvs_mr = registered(s, s->recvs, SLOTS * s->size, FI_RECV, 1);
	s->sends_mr = registered(s, s->sends, LARGE, FI_SEND | FI_READ | FI_WRITE, 2);
	for (int i = 0; i < SLOTS; i++)
		post(s, s->recvs + i * s->size);
}

/* share returns what the client needs for its READs and WRITEs. */
static struct access share(struct side *s)
{
	char *b = allocate(4096);
	struct fid_mr *mr = registered(s, b, 4096, FI_REMOTE_READ | FI_REMOTE_WRITE, 3);
	struct access a = { (uintptr_t)b, fi_mr_key(mr) };
	return a;
}

/* completed waits for a completion. */
static struct fi_cq_msg_entry completed(struct fid_cq *cq, const char *what)
{
	struct fi_cq_msg_entry e;
	struct fi_cq_err_entry err = { 0 };
	long ret;
	do {
		ret = fi_cq_sread(cq, &e, 1, NULL, -1);
	} while (ret == -FI_EAGAIN);
	if (ret == -FI_EAVAIL && fi_cq_readerr(cq, &err, 0) > 0)
		ret = -err.err;
	check(ret, what);
	return e;
}

/* send_message sends n bytes. Short ones are injected: they have no completion. */
static void send_message(struct side *s, const char *b, size_t n)
{
	if (n <= SMALL) {
		while (again(fi_inject(s->ep, b, n, s->peer), s, "fi_inject"))
			;
		return;
	}
	memcpy(s->sends, b, n);
	while (again(fi_send(s->ep, s->sends, n, fi_mr_desc(s->sends_mr), s->peer, NULL), s, "fi_send"))
		;
	completed(s->sent, "completion of a send");
}

/* receive returns the slot of the next message. */
static char *receive(struct side *s, size_t *n)
{
	struct fi_cq_msg_entry e = completed(s->received, "completion of a receive");
	*n = e.len;
	return e.op_context;
}

static struct fi_eq_cm_entry *event(struct side *s, uint32_t want, void *b, size_t n)
{
	struct fi_eq_err_entry err = { 0 };
	uint32_t got;
	long ret;
	do {
		ret = fi_eq_sread(s->eq, &got, b, n, -1, 0);
	} while (ret == -FI_EAGAIN);
	if (ret == -FI_EAVAIL && fi_eq_readerr(s->eq, &err, 0) > 0)
		ret = -err.err;
	check(ret, "event of a connection");
	if (got != want) {
		fprintf(stderr, "fabric: event %u, not %u\n", got, want);
		exit(1);
	}
	return b;
}

/* accept_client accepts the first connection, with what the client needs in the reply. */
static void accept_client(void)
{
	char b[sizeof(struct fi_eq_cm_entry) + 256];
	struct access a;
	set_up(&server, event(&server, FI_CONNREQ, b, sizeof b)->info);
	a = share(&server);
	check(fi_accept(server.ep, &a, sizeof a), "fi_accept");
	event(&server, FI_CONNECTED, b, sizeof b);
}

/* serve sends the start of each message back, until one of one byte. */
static void *serve(void *unused)
{
	size_t n;
	if (listener)
		accept_client();
	for (;;) {
		char *slot = receive(&server, &n);
		if (n == 1)
			return NULL;
		send_message(&server, slot, SMALL);
		post(&server, slot);
	}
}

static void open_fabric(struct side *s, struct fi_info *info, int rdm)
{
	struct fi_eq_attr a = { .wait_obj = FI_WAIT_UNSPEC };
	check(fi_fabric(info->fabric_attr, &s->fabric, NULL), "fi_fabric");
	if (!rdm)
		check(fi_eq_open(s->fabric, &a, &s->eq, NULL), "fi_eq_open");
}

static pthread_t started(void)
{
	pthread_t t;
	check(-pthread_create(&t, NULL, serve, NULL), "pthread_create");
	return t;
}

static pthread_t start(const char *address)
{
	struct fi_info *info = find(address, PORT, 0, FI_SOURCE);
	char b[sizeof(struct fi_eq_cm_entry) + 256];
	pthread_t t;
	open_fabric(&server, info, 0);
	check(fi_passive_ep(server.fabric, info, &listener, NULL), "fi_passive_ep");
	check(fi_pep_bind(listener, &server.eq->fid, 0), "fi_pep_bind");
	check(fi_listen(listener), "fi_listen");
	t = started();
	info = find(address, PORT, 0, 0);
	open_fabric(&client, info, 0);
	set_up(&client, info);
	check(fi_connect(client.ep, info->dest_addr, NULL, 0), "fi_connect");
	memcpy(&shared, event(&client, FI_CONNECTED, b, sizeof b)->data, sizeof shared);
	return t;
}

/* know enters the address of another endpoint. */
static void know(struct side *s, struct side *other)
{
	char name[256];
	size_t n = sizeof name;
	check(fi_getname(&other->ep->fid, name, &n), "fi_getname");
	if (fi_av_insert(s->av, name, 1, &s->peer, 0, NULL) != 1)
		check(-FI_EADDRNOTAVAIL, "fi_av_insert");
}

static pthread_t start_rdm(const char *address)
{
	struct fi_info *info = find(address, NULL, 1, FI_SOURCE);
	open_fabric(&server, info, 1);
	set_up(&server, info);
	open_fabric(&client, info, 1);
	set_up(&client, info);
	know(&server, &client);
	know(&client, &server);
	shared = share(&server);
	return started();
}

static void do_read(void)
{
	while (again(fi_read(client.ep, client.sends, SMALL, fi_mr_desc(client.sends_mr), client.peer, shared.addr,
		shared.key, NULL), &client, "fi_read"))
		;
	completed(client.sent, "completion of a READ");
}

static void do_write(void)
{
	while (again(fi_write(client.ep, client.sends, SMALL, fi_mr_desc(client.sends_mr), client.peer, shared.addr,
		shared.key, NULL), &client, "fi_write"))
		;
	completed(client.sent, "completion of a WRITE");
}

static void echo(size_t n)
{
	size_t got;
	send_message(&client, data, n);
	post(&client, receive(&client, &got));
	if (got != SMALL)
		check(-FI_ETRUNC, "length of an echo");
}

static void do_small(void) { echo(SMALL); }
static void do_large(void) { echo(LARGE); }

static const struct operation operations[] = { { "read", 150, 1, 1, do_read }, { "write", 150, 1, 1, do_write },
	{ "small", 150, 1, 1, do_small }, { "large", 20, 0, 1, do_large }, { 0 } };

int main(int argc, char **argv)
{
	pthread_t t;
	int n = argc >= 4 ? atoi(argv[3]) : 0, rdm = argc == 5 && !strcmp(argv[4], "rdm");
	if (n < 1 || argc != 4 + rdm || (strcmp(argv[2], "cost") && strcmp(argv[2], "tail"))) {
		fprintf(stderr, "usage: fabric ADDRESS cost ROUNDS [rdm] | fabric ADDRESS tail COUNT [rdm]\n");
		return 2;
	}
	/* ofi_rxm creates a CQ for this many peers, 256 by default: more entries than soft-RoCE allows. */
	setenv("FI_UNIVERSE_SIZE", "8", 0);
	data = allocate(LARGE);
	t = rdm ? start_rdm(argv[1]) : start(argv[1]);
	if (argv[2][0] == 'c')
		cost(operations, n);
	else
		tail(operations, n);
	send_message(&client, data, 1);
	pthread_join(t, NULL);
	return 0;
}
