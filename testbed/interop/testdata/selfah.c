/*
 * A library for LD_PRELOAD. A datagram rsocket of librdmacm creates an address handle for its own QP with a LID only,
 * which RoCE does not have: the kernel refuses it (EINVAL), and every call that needs the QP fails. This library adds
 * a GID of the port to such an address.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct ibv_ah *(*create)(struct ibv_pd *, struct ibv_ah_attr *) = dlsym(RTLD_NEXT, "ibv_create_ah");
	static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
	union ibv_gid gid;
	int i;

	for (i = 0; i < 16 && !attr->is_global; i++) {
		if (ibv_query_gid(pd->context, attr->port_num, i, &gid) || memcmp(gid.raw, mapped, sizeof mapped))
			continue;
		attr->is_global = 1;
		attr->grh.dgid = gid;
		attr->grh.sgid_index = i;
		attr->grh.hop_limit = 64;
	}
	return create(pd, attr);
}
