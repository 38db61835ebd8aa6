/*
 * Prints what each idle rsocket takes: memory, mappings, descriptors and threads. Both ends of the connections are in
 * this process. bench/rsocketmem does the same in Go.
 *
 *	rsockets ADDRESS NUMBER
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <pthread.h>
#include <sys/socket.h>
#include <rdma/rsocket.h>
#include "cost.h"

#define PORT 7479

struct account { struct usage memory; double files, threads; };

static int entries(const char *path)
{
	DIR *d = opendir(path);
	int n = 0;

	must(d != NULL, path);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static struct account account(void)
{
	struct account a = { usage(), entries("/proc/self/fd"), entries("/proc/self/task") };
	return a;
}

static int listener;

/* One thread accepts all connections, since rconnect waits for raccept. */
static void *serve(void *count)
{
	int i;

	for (i = 0; i < *(int *)count; i++)
		must(raccept(listener, NULL, NULL) >= 0, "raccept");
	return NULL;
}

static void pairs(struct sockaddr_in *to, int count)
{
	pthread_t server;
	int i, s;

	must(pthread_create(&server, NULL, serve, &count) == 0, "pthread_create");
	for (i = 0; i < count; i++) {
		s = rsocket(AF_INET, SOCK_STREAM, 0);
		must(s >= 0, "rsocket");
		must(rconnect(s, (struct sockaddr *)to, sizeof *to) == 0, "rconnect");
	}
	must(pthread_join(server, NULL) == 0, "pthread_join");
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	struct account a, b;
	double n;

	must(argc == 3 && inet_pton(AF_INET, argv[1], &at.sin_addr) == 1, "ADDRESS NUMBER");
	listener = rsocket(AF_INET, SOCK_STREAM, 0);
	must(listener >= 0, "rsocket");
	must(rbind(listener, (struct sockaddr *)&at, sizeof at) == 0, "rbind");
	must(rlisten(listener, 16) == 0, "rlisten");
	pairs(&at, 1);
	a = account();
	pairs(&at, atoi(argv[2]));
	b = account();
	n = 2.0 * atoi(argv[2]);
	printf("rsocket.rss %.0f\nrsocket.mapped %.0f\nrsocket.mappings %.3f\n", (b.memory.rss - a.memory.rss) / n,
	       (b.memory.mapped - a.memory.mapped) / n, (b.memory.mappings - a.memory.mappings) / n);
	printf("rsocket.files %.3f\nrsocket.threads %.3f\n", (b.files - a.files) / n, (b.threads - a.threads) / n);
	return 0;
}
