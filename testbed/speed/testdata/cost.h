/* What the programs of this directory share. */
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <infiniband/verbs.h>

/* Messages, and receives for them. */
#define SMALL 64
#define LARGE (1 << 20)
#define SLOTS 4

static inline void must(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(errno));
		exit(1);
	}
}

static inline double clock_ns(clockid_t id)
{
	struct timespec t;
	must(!clock_gettime(id, &t), "clock_gettime");
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static inline double now(void) { return clock_ns(CLOCK_MONOTONIC); }

/* clock_cost returns what two calls of now measure if nothing is between them. */
static inline double clock_cost(void)
{
	double best = 1e9, began, took;
	int i;
	for (i = 0; i < 10; i++) {
		began = now();
		took = now() - began;
		if (took < best)
			best = took;
	}
	return best;
}

/* allocate returns pages of zeros. */
static inline void *allocate(size_t n)
{
	void *p = NULL;
	must(!posix_memalign(&p, 4096, n), "memory");
	return memset(p, 0, n);
}

static inline int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* option returns the argument after a name. */
static inline const char *option(int argc, char **argv, const char *name, const char *otherwise)
{
	int i;
	for (i = 1; i + 1 < argc; i += 2)
		if (!strcmp(argv[i], name))
			otherwise = argv[i + 1];
	return otherwise;
}

static inline struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;
	int i;
	must(list != NULL, "ibv_get_device_list");
	for (i = 0; list[i] && strcmp(ibv_get_device_name(list[i]), name); i++)
		;
	must(list[i] != NULL, name);
	ctx = ibv_open_device(list[i]);
	must(ctx != NULL, "ibv_open_device");
	return ctx;
}

/* own_address returns the address of the device's port. */
static inline struct ibv_ah_attr own_address(struct ibv_context *ctx)
{
	struct ibv_ah_attr a = { .port_num = 1 };
	struct ibv_port_attr port;
	must(!ibv_query_port(ctx, 1, &port), "ibv_query_port");
	a.dlid = port.lid;
	if (port.link_layer == IBV_LINK_LAYER_ETHERNET) {
		a.is_global = 1;
		a.grh.hop_limit = 1;
		must(!ibv_query_gid(ctx, 1, 0, &a.grh.dgid), "ibv_query_gid");
	}
	return a;
}

/* connect_to takes a queue pair, RC or XRC, to RTS, with one of the same device as its peer. */
static inline void connect_to(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr a = { .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .max_dest_rd_atomic = 1,
		.max_rd_atomic = 1, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC };
	int rtr = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	int rts = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN;
	if (qp->qp_type != IBV_QPT_XRC_SEND)
		rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if (qp->qp_type != IBV_QPT_XRC_RECV)
		rts |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	a.ah_attr = own_address(qp->context);
	a.qp_state = IBV_QPS_INIT;
	must(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS), "INIT");
	a.qp_state = IBV_QPS_RTR;
	must(!ibv_modify_qp(qp, &a, rtr), "RTR");
	a.qp_state = IBV_QPS_RTS;
	must(!ibv_modify_qp(qp, &a, rts), "RTS");
}

/* connect_self connects an RC queue pair with itself. */
static inline struct ibv_qp *connect_self(struct ibv_qp *qp)
{
	connect_to(qp, qp->qp_num);
	return qp;
}

/* settle has the device execute what has been posted: it serves a command after the doorbells before it. */
static inline void settle(struct ibv_context *ctx)
{
	struct ibv_port_attr port;
	int i;
	for (i = 0; i < 3; i++) {
		must(!ibv_query_port(ctx, 1, &port), "ibv_query_port");
		usleep(2000);
	}
}

/* take polls the completions of n requests, all of which must have succeeded, most at a time. It returns how many calls
 * found none. */
static inline int take(struct ibv_cq *cq, int n, int most)
{
	int (*poll)(struct ibv_cq *, int, struct ibv_wc *) = cq->context->ops.poll_cq;
	struct ibv_wc wc[32];
	int got = 0, empty = 0, i, k;
	while (got < n) {
		k = poll(cq, most, wc);
		must(k >= 0, "poll");
		for (i = 0; i < k; i++)
			must(wc[i].status == IBV_WC_SUCCESS, "poll");
		if (k == 0)
			empty++;
		got += k;
	}
	return empty;
}

/* usage is what the process has. */
struct usage { double rss, mapped, mappings; };

static inline struct usage usage(void)
{
	struct usage u = { 0 };
	char line[512];
	long kib;
	FILE *f = fopen("/proc/self/status", "r");
	must(f != NULL, "/proc/self/status");
	while (fgets(line, sizeof line, f)) {
		if (sscanf(line, "VmRSS: %ld", &kib) == 1)
			u.rss = kib * 1024.0;
		if (sscanf(line, "VmSize: %ld", &kib) == 1)
			u.mapped = kib * 1024.0;
	}
	fclose(f);
	f = fopen("/proc/self/maps", "r");
	must(f != NULL, "/proc/self/maps");
	while (fgets(line, sizeof line, f))
		u.mappings++;
	fclose(f);
	return u;
}
