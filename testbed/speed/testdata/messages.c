/* Messages and one-sided access with the C library, as rping does them: librdmacm's
 * synchronous calls, which sleep until there is a completion. It is bench/rdmacost,
 * in C: both ends of connections of a device with itself, each with a thread.
 *
 *   messages ADDRESS cost ROUNDS	CPU time of the process for each operation, ns
 *   messages ADDRESS tail COUNT	quantiles of single times, us
 */
#include <semaphore.h>
#include "endpoint.h"
#include "messages.h"

#define MANY 100
#define SMALL_PORT "7480" /* of connections for small messages */
#define BRIEF_PORT "7481" /* of connections that carry none */

static const char *address;
static struct side *client, *many[MANY];
static struct access shared;
static char *data;
static sem_t closed;

/* send_message sends n bytes, and waits for the completions of earlier sends. */
static void send_message(struct side *s, const char *b, size_t n)
{
	int flags = ++s->sent % 8 == 0 || n > SMALL ? IBV_SEND_SIGNALED : 0;
	if (n > SMALL)
		memcpy(s->sends, b, n);
	post_message(s, n > SMALL ? NULL : b, n, flags);
	if (flags)
		sent(s);
}

/* serve sends the start of each message back. */
static void *serve(void *side)
{
	struct side *s = side;
	uint32_t n;
	for (;;) {
		long i = receive(s, &n);
		send_message(s, s->recvs + i * s->size, SMALL);
		post(s, i);
	}
	return NULL;
}

static void started(void *(*run)(void *), void *with)
{
	pthread_t t;
	must(!pthread_create(&t, NULL, run, with), "pthread_create");
	pthread_detach(t);
}

static void *accept_large(void *listener) { return serve(accept_one(listener, LARGE)); }

static void *accept_small(void *listener)
{
	for (;;)
		started(serve, accept_one(listener, SMALL));
	return NULL;
}

static void *accept_brief(void *listener)
{
	for (;;) {
		struct side *s = accept_one(listener, SMALL);
		ended(s);
		close_side(s);
		must(!sem_post(&closed), "sem_post");
	}
	return NULL;
}

static void start(void)
{
	must(!sem_init(&closed, 0, 0), "sem_init");
	started(accept_large, listen_on(address, PORT));
	started(accept_small, listen_on(address, SMALL_PORT));
	started(accept_brief, listen_on(address, BRIEF_PORT));
	client = dial(address, PORT, LARGE);
	shared = shared_with(client);
	data = allocate(LARGE);
}

static void do_read(void)
{
	post_read(client, shared);
	sent(client);
}

static void do_write(void)
{
	post_write(client, shared);
	sent(client);
}

static void receive_echo(struct side *s)
{
	uint32_t got;
	post(s, receive(s, &got));
	must(got == SMALL, "length of an echo");
}

static void echo(size_t n)
{
	send_message(client, data, n);
	receive_echo(client);
}

static void do_small(void) { echo(SMALL); }
static void do_large(void) { echo(LARGE); }

static void do_connect(void)
{
	hang_up(dial(address, BRIEF_PORT, SMALL));
	must(!sem_wait(&closed), "sem_wait");
}

static void do_many(void)
{
	for (int i = 0; i < MANY; i++)
		if (!many[i])
			many[i] = dial(address, SMALL_PORT, SMALL);
	for (int i = 0; i < MANY; i++)
		send_message(many[i], data, SMALL);
	for (int i = 0; i < MANY; i++)
		receive_echo(many[i]);
}

static const struct operation operations[] = { { "read", 150, 1, 1, do_read }, { "write", 150, 1, 1, do_write },
	{ "small", 150, 1, 1, do_small }, { "large", 20, 0, 1, do_large }, { "connect", 5, 50, 1, do_connect },
	{ "many", 2, 50, MANY, do_many }, { 0 } };

int main(int argc, char **argv)
{
	int n = argc == 4 ? atoi(argv[3]) : 0;
	if (n < 1 || (strcmp(argv[2], "cost") && strcmp(argv[2], "tail"))) {
		fprintf(stderr, "usage: messages ADDRESS cost ROUNDS | messages ADDRESS tail COUNT\n");
		return 2;
	}
	address = argv[1];
	start();
	if (argv[2][0] == 'c')
		cost(operations, n);
	else
		tail(operations, n);
	return 0;
}
