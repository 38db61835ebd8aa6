/* What fabric.c and fabricclients.c share: endpoints of libfabric's provider for verbs. */
#include <stdint.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include "cost.h"

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
	int size, most; /* of receives, and of sends */
};

static inline void check(long ret, const char *what)
{
	if (ret < 0) {
		fprintf(stderr, "fabric: %s: %s\n", what, fi_strerror(-ret));
		exit(1);
	}
}

/* again reports whether a request that found its queue full is to be repeated. */
static inline int again(long ret, struct side *s, const char *what)
{
	if (ret == -FI_EAGAIN) {
		fi_cq_read(s->sent, NULL, 0); /* takes requests that have completed from the queue */
		return 1;
	}
	check(ret, what);
	return 0;
}

static inline void post(struct side *s, char *slot)
{
	check(fi_recv(s->ep, slot, s->size, fi_mr_desc(s->recvs_mr), FI_ADDR_UNSPEC, slot), "fi_recv");
}

static inline struct fi_info *find(const char *address, const char *port, int rdm, uint64_t flags)
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

static inline struct fid_mr *registered(struct side *s, void *b, size_t n, uint64_t access, uint64_t key)
{
	struct fid_mr *mr;
	check(fi_mr_reg(s->domain, b, n, access, 0, key, 0, &mr, NULL), "fi_mr_reg");
	return mr;
}

/* set_up creates an endpoint and, if there is none, a domain, with memory, and receives for messages. */
static inline void set_up(struct side *s, struct fi_info *info)
{
	/* Injected messages have no completion here, but verbs has one for each, and reads them when its queue is full. */
	struct fi_cq_attr a = { .size = QUEUE, .format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD };
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	if (!s->domain)
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
	s->sends = allocate(s->most);
	s->recvs_mr = registered(s, s->recvs, SLOTS * s->size, FI_RECV, 1);
	s->sends_mr = registered(s, s->sends, s->most, FI_SEND | FI_READ | FI_WRITE, 2);
	for (int i = 0; i < SLOTS; i++)
		post(s, s->recvs + i * s->size);
}

/* completed waits for a completion. */
static inline struct fi_cq_msg_entry completed(struct fid_cq *cq, const char *what)
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
static inline void send_message(struct side *s, const char *b, size_t n)
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
static inline char *receive(struct side *s, size_t *n)
{
	struct fi_cq_msg_entry e = completed(s->received, "completion of a receive");
	*n = e.len;
	return e.op_context;
}

static inline void open_fabric(struct side *s, struct fi_info *info, int rdm)
{
	struct fi_eq_attr a = { .wait_obj = FI_WAIT_UNSPEC };
	check(fi_fabric(info->fabric_attr, &s->fabric, NULL), "fi_fabric");
	if (!rdm)
		check(fi_eq_open(s->fabric, &a, &s->eq, NULL), "fi_eq_open");
}
