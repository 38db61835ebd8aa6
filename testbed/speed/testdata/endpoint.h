/* What messages.c and bench/cgo share: ends of connections with librdmacm's synchronous calls. */
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include "cost.h"

struct side {
	struct rdma_cm_id *id;
	char *recvs, *sends;
	struct ibv_mr *recvs_mr, *sends_mr;
	int size, most; /* of receives, and of sends */
	unsigned sent; /* messages, for the caller */
};

/* Access to memory of the server, which it sends as private data. */
struct access { uint64_t addr; uint32_t rkey; };

static inline void post(struct side *s, long i)
{
	must(!rdma_post_recv(s->id, (void *)i, s->recvs + i * s->size, s->size, s->recvs_mr), "rdma_post_recv");
}

static inline void set_up(struct side *s)
{
	long i;
	s->recvs = allocate(SLOTS * s->size);
	s->sends = allocate(s->most);
	must((s->recvs_mr = rdma_reg_msgs(s->id, s->recvs, SLOTS * s->size)) != NULL, "rdma_reg_msgs");
	must((s->sends_mr = rdma_reg_msgs(s->id, s->sends, s->most)) != NULL, "rdma_reg_msgs");
	for (i = 0; i < SLOTS; i++)
		post(s, i);
}

static inline struct rdma_cm_id *endpoint(const char *address, const char *port, int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP }, *found;
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 16, .max_recv_wr = 16,
		.max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = SMALL } };
	struct rdma_cm_id *id;
	must(!rdma_getaddrinfo(address, port, &hints, &found), "rdma_getaddrinfo");
	must(!rdma_create_ep(&id, found, NULL, &a), "rdma_create_ep");
	rdma_freeaddrinfo(found);
	return id;
}

static inline struct rdma_cm_id *listen_on(const char *address, const char *port)
{
	struct rdma_cm_id *id = endpoint(address, port, RAI_PASSIVE);
	must(!rdma_listen(id, 128), "rdma_listen");
	return id;
}

static inline struct side *new_side(int size, int most)
{
	struct side *s = allocate(sizeof *s);
	s->size = size;
	s->most = most;
	return s;
}

/* dial connects an end that sends messages of up to most bytes. */
static inline struct side *dial(const char *address, const char *port, int most)
{
	struct rdma_conn_param p = { .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };
	struct side *s = new_side(SMALL, most);
	s->id = endpoint(address, port, 0);
	set_up(s);
	must(!rdma_connect(s->id, &p), "rdma_connect");
	return s;
}

/* accept_one accepts a connection, with receives of size bytes. If they are large, the client may access memory. */
static inline struct side *accept_one(struct rdma_cm_id *listener, int size)
{
	struct rdma_conn_param p = { .responder_resources = 1, .initiator_depth = 1, .rnr_retry_count = 7 };
	struct side *s = new_side(size, SMALL);
	struct access a;
	struct ibv_mr *mr;
	must(!rdma_get_request(listener, &s->id), "rdma_get_request");
	set_up(s);
	if (size == LARGE) {
		must((mr = ibv_reg_mr(s->id->pd, allocate(4096), 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
			IBV_ACCESS_REMOTE_WRITE)) != NULL, "ibv_reg_mr");
		a.addr = (uintptr_t)mr->addr;
		a.rkey = mr->rkey;
		p.private_data = &a;
		p.private_data_len = sizeof a;
	}
	must(!rdma_accept(s->id, &p), "rdma_accept");
	return s;
}

static inline struct access shared_with(struct side *s)
{
	struct access a;
	must(s->id->event->param.conn.private_data_len >= sizeof a, "no private data");
	memcpy(&a, s->id->event->param.conn.private_data, sizeof a);
	return a;
}

static inline void sent(struct side *s)
{
	struct ibv_wc wc;
	must(rdma_get_send_comp(s->id, &wc) > 0 && wc.status == IBV_WC_SUCCESS, "completion of a send");
}

/* post_message posts a send of n bytes: of b, or of what has been copied to the memory of the side. */
static inline void post_message(struct side *s, const void *b, size_t n, int flags)
{
	if (b)
		must(!rdma_post_send(s->id, NULL, (void *)b, n, NULL, flags | IBV_SEND_INLINE), "rdma_post_send");
	else
		must(!rdma_post_send(s->id, NULL, s->sends, n, s->sends_mr, flags), "rdma_post_send");
}

/* receive returns the slot of the next message. */
static inline long receive(struct side *s, uint32_t *n)
{
	struct ibv_wc wc;
	must(rdma_get_recv_comp(s->id, &wc) > 0 && wc.status == IBV_WC_SUCCESS, "completion of a receive");
	*n = wc.byte_len;
	return (long)wc.wr_id;
}

static inline void post_read(struct side *s, struct access a)
{
	must(!rdma_post_read(s->id, NULL, s->sends, SMALL, s->sends_mr, IBV_SEND_SIGNALED, a.addr, a.rkey), "rdma_post_read");
}

static inline void post_write(struct side *s, struct access a)
{
	must(!rdma_post_write(s->id, NULL, s->sends, SMALL, s->sends_mr, IBV_SEND_SIGNALED, a.addr, a.rkey),
		"rdma_post_write");
}

/* ended waits until the peer has disconnected, which receive does not notice. */
static inline void ended(struct side *s)
{
	struct rdma_cm_event *e;
	must(!rdma_get_cm_event(s->id->channel, &e) && e->event == RDMA_CM_EVENT_DISCONNECTED, "end of a connection");
	must(!rdma_ack_cm_event(e), "rdma_ack_cm_event");
}

static inline void close_side(struct side *s)
{
	must(!rdma_dereg_mr(s->recvs_mr) && !rdma_dereg_mr(s->sends_mr), "rdma_dereg_mr");
	rdma_destroy_ep(s->id);
	free(s->recvs);
	free(s->sends);
	free(s);
}

/* hang_up disconnects and closes. */
static inline void hang_up(struct side *s)
{
	must(!rdma_disconnect(s->id), "rdma_disconnect");
	close_side(s);
}
