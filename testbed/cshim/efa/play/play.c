// The program of a comparison, for libefa.
#include <infiniband/verbs.h>
#include <infiniband/efadv.h>

static struct ibv_qp *create_srd(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr)
{
	struct efadv_qp_init_attr efa = {.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD};

	return efadv_create_qp_ex(ctx, attr, &efa, sizeof efa);
}

#define DRIVER_QP create_srd
#include "../../compare/play/play.c"
