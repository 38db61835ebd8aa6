/* What messages.c and fabric.c share: the measurements of operations that each of them defines. */
#include <pthread.h>
#include "cost.h"

#define SMALL 64
#define LARGE (1 << 20)
#define SLOTS 4
#define PORT "7479"
#define BLOCKS (1 << 20) /* of SMALL bytes that the churning thread holds */
#define PER_TICK 128 /* of them that it replaces every millisecond */

static void do_read(void), do_write(void), do_small(void), do_large(void);

static const struct operation { const char *name; int count; void (*run)(void); } operations[] = {
	{ "read", 150, do_read }, { "write", 150, do_write }, { "small", 150, do_small }, { "large", 20, do_large } };

/* cost prints the median CPU time of several rounds. */
static void cost(int rounds)
{
	double *all = allocate(rounds * sizeof *all);
	for (size_t k = 0; k < sizeof operations / sizeof *operations; k++) {
		const struct operation *o = &operations[k];
		for (int r = 0; r < rounds; r++) {
			double began;
			o->run(); /* what follows begins in the same state */
			began = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
			for (int i = 0; i < o->count; i++)
				o->run();
			all[r] = (clock_ns(CLOCK_PROCESS_CPUTIME_ID) - began) / o->count;
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
		double began = now();
		run();
		all[i] = (now() - began) / 1e3;
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
