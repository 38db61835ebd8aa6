/* A server and many clients with endpoints of ofi_rxm (FI_EP_RDM) over verbs, as two processes of bench/clients, whose
 * lines both read (bench/measure/parts.go).
 *
 *   fabricclients CLIENTS own|shared serve ADDRESS	prints its own address and port
 *   fabricclients CLIENTS own|shared dial ADDRESS:PORT
 *
 * Each client has an endpoint of its own, and all have one domain. The server has one endpoint for all, whose
 * connections have receives of their own, which is the default, or share them.
 */
#include <pthread.h>
#include <arpa/inet.h>
#include <rdma/fi_cm.h>
#include "fabric.h"

/* A message of SMALL bytes. The name is the client's. */
struct message { uint32_t client; struct sockaddr_in name; char rest[SMALL - 4 - sizeof(struct sockaddr_in)]; };

static int clients, connected;
static struct side server = { .size = SMALL, .most = SMALL }, *all;

static void start(struct side *s, const char *address, struct side *first)
{
	struct fi_info *info = find(address, NULL, 1, FI_SOURCE);
	s->size = s->most = SMALL;
	if (first) {
		s->fabric = first->fabric;
		s->domain = first->domain;
	} else {
		open_fabric(s, info, 1);
	}
	set_up(s, info);
	fi_freeinfo(info);
}

static struct sockaddr_in name_of(struct side *s)
{
	struct sockaddr_in name;
	size_t n = sizeof name;
	check(fi_getname(&s->ep->fid, &name, &n), "fi_getname");
	return name;
}

static fi_addr_t know(struct side *s, struct sockaddr_in *name)
{
	fi_addr_t peer;
	if (fi_av_insert(s->av, name, 1, &peer, 0, NULL) != 1)
		check(-FI_EADDRNOTAVAIL, "fi_av_insert");
	return peer;
}

/* serve sends each message back. A client is known from its first message on. */
static void *serve(void *unused)
{
	fi_addr_t *peers = allocate((clients + 1) * sizeof *peers);
	char *known = allocate(clients + 1);
	for (;;) {
		size_t n;
		struct message *m = (struct message *)receive(&server, &n);
		if (n != SMALL || m->client > clients)
			check(-FI_EINVAL, "message");
		if (!known[m->client]) {
			peers[m->client] = know(&server, &m->name);
			known[m->client] = 1;
		}
		server.peer = peers[m->client];
		send_message(&server, (char *)m, SMALL);
		post(&server, (char *)m);
	}
	return NULL;
}

static void call(int i)
{
	struct message m = { .client = i, .name = name_of(&all[i]) };
	size_t n;
	send_message(&all[i], (char *)&m, SMALL);
	post(&all[i], receive(&all[i], &n));
	if (n != SMALL)
		check(-FI_EINVAL, "length of a reply");
}

static void dial(const char *at)
{
	char host[64] = "", port[16] = "";
	struct sockaddr_in name = { .sin_family = AF_INET };
	struct side *s = &all[connected];
	if (connected == clients || sscanf(at, "%63[0-9.]:%15s", host, port) != 2 || !inet_pton(AF_INET, host, &name.sin_addr))
		check(-FI_EINVAL, "a client too many, or the address");
	name.sin_port = htons(atoi(port));
	start(s, host, connected ? all : NULL);
	s->peer = know(s, &name);
	call(connected++);
}

int main(int argc, char **argv)
{
	char line[64], word[16], n[16];
	pthread_t t;
	int serves;
	if (argc != 5 || (clients = atoi(argv[1])) < 1 || (!(serves = !strcmp(argv[3], "serve")) && strcmp(argv[3], "dial"))) {
		fprintf(stderr, "usage: fabricclients CLIENTS own|shared serve|dial ADDRESS\n");
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	sprintf(n, "%d", serves ? clients + 1 : 8); /* peers, for each of which ofi_rxm makes a CQ longer */
	setenv("FI_UNIVERSE_SIZE", n, 0);
	setenv("FI_OFI_RXM_USE_SRX", serves && !strcmp(argv[2], "shared") ? "1" : "0", 1);
	if (serves) {
		struct sockaddr_in name;
		start(&server, argv[4], NULL);
		name = name_of(&server);
		check(-pthread_create(&t, NULL, serve, NULL), "pthread_create");
		printf("%s:%d\n", inet_ntoa(name.sin_addr), ntohs(name.sin_port));
	} else {
		all = allocate(clients * sizeof *all);
		puts("ready");
	}
	while (fgets(line, sizeof line, stdin)) {
		int count = 0;
		if (sscanf(line, "%15s %d", word, &count) != 2)
			check(-FI_EINVAL, "line");
		for (int i = 0; i < count; i++)
			if (!strcmp(word, "connect"))
				dial(argv[4]);
			else if (!strcmp(word, "call"))
				call(0);
		puts("done");
	}
	return 0;
}
