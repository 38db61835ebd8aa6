/* Messages and one-sided access with libfabric: bench/rdmacost and messages.c on its provider for verbs. Both ends of a
 * connection of a device with itself, each with a thread and a domain, wait in fi_cq_sread, which sleeps.
 *
 *   fabric ADDRESS cost ROUNDS [rdm]	CPU time of the process for each operation, ns
 *   fabric ADDRESS tail COUNT [rdm]	quantiles of single times, us
 *
 * The endpoints are connected ones, FI_EP_MSG, which verbs has. With rdm they are FI_EP_RDM, of the provider ofi_rxm on
 * top of verbs.
 */
#include <rdma/fi_cm.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>
#include "fabric.h"
#include "messages.h"

struct access { uint64_t addr, key; };

static struct side client = { .size = SMALL, .most = LARGE }, server = { .size = LARGE, .most = LARGE };
static struct fid_pep *listener;
static struct access shared;
static char *data;

/* share returns what the client needs for its READs and WRITEs. */
static struct access share(struct side *s)
{
	char *b = allocate(4096);
	struct fid_mr *mr = registered(s, b, 4096, FI_REMOTE_READ | FI_REMOTE_WRITE, 3);
	struct access a = { (uintptr_t)b, fi_mr_key(mr) };
	return a;
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
