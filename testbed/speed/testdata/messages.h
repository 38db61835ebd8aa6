/* What messages.c and fabric.c share: the measurements of operations, as in bench/measure. */
#include <pthread.h>
#include "cost.h"

#define PORT "7479"
#define BLOCKS (1 << 20) /* of SMALL bytes that the churning thread holds */
#define PER_TICK 128 /* of them that it replaces every millisecond */

/* An operation is run count times in a round of cost, and once for so many of READ, every, in tail, 0 for never. It
 * has several, of, of what the figure is for. */
struct operation { const char *name; int count, every, of; void (*run)(void); };

/* cost prints the median CPU time of several rounds. */
static void cost(const struct operation *o, int rounds)
{
	double *all = allocate(rounds * sizeof *all);
	for (; o->name; o++) {
		for (int r = 0; r < rounds; r++) {
			double began;
			o->run(); /* what follows begins in the same state */
			began = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
			for (int i = 0; i < o->count; i++)
				o->run();
			all[r] = (clock_ns(CLOCK_PROCESS_CPUTIME_ID) - began) / o->count / o->of;
		}
		qsort(all, rounds, sizeof *all, compare);
		printf("%s %.0f\n", o->name, (all[(rounds - 1) / 2] + all[rounds / 2]) / 2);
	}
	free(all);
}

/* times prints the quantiles of count times, or of fewer, of which there are enough. */
static void times(const char *name, int count, const struct operation *o)
{
	static const struct { const char *name; double q; int least; } quantiles[] = {
		{ "p50", 0.5, 1 }, { "p99", 0.99, 100 }, { "p99.9", 0.999, 1000 } };
	int n = count / o->every ? count / o->every : 1;
	double *all = allocate(n * sizeof *all);
	for (int i = 0; i < 100 / o->every || i == 0; i++)
		o->run();
	for (int i = 0; i < n; i++) {
		double began = now();
		o->run();
		all[i] = (now() - began) / 1e3 / o->of;
	}
	qsort(all, n, sizeof *all, compare);
	for (int i = 0; i < 3; i++)
		if (n >= quantiles[i].least)
			printf("%s.%s %.2f\n", name, quantiles[i].name, all[(int)(n * quantiles[i].q)]);
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

/* churned measures an operation beside a thread that churns the heap. */
static void churned(int count, const struct operation *o)
{
	struct block **all = allocate(BLOCKS * sizeof *all);
	pthread_t t;
	for (int i = 0; i < BLOCKS; i++)
		must((all[i] = calloc(1, sizeof **all)) != NULL, "malloc");
	must(!pthread_create(&t, NULL, churn, all), "pthread_create");
	times("churned", count, o);
	stop = 1;
	pthread_join(t, NULL);
}

static void tail(const struct operation *o, int count)
{
	for (; o->name; o++) {
		if (o->every)
			times(o->name, count, o);
		if (!strcmp(o->name, "small"))
			churned(count, o);
	}
}
