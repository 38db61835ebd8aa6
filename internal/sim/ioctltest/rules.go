package ioctltest

import (
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A Class says how the kernel reads an attribute.
type Class uint8

// The classes of attributes.
const (
	In     Class = iota // bytes: inline up to 8, else by address
	Out                 // bytes, by address
	Handle              // an existing object
	New                 // an object that the method creates
	FD                  // an existing descriptor
	NewFD               // a descriptor that the method creates
)

// A Rule is the kernel's specification of one attribute.
type Rule struct {
	Class    Class
	Min, Max int  // bytes; Max -1: any number
	Zeroes   bool // more than Max bytes are accepted if the rest is zero
	Must     bool
}

// A Method identifies a method of an object.
type Method struct{ Object, Method uint16 }

func constant() Rule { return Rule{Class: In, Min: 8, Max: 8, Must: true} }
func flags() Rule    { return Rule{Class: In, Min: 4, Max: 8} }
func in(n int) Rule  { return Rule{Class: In, Min: n, Max: n, Must: true} }
func out(n int) Rule { return Rule{Class: Out, Min: n, Max: n, Must: true} }
func handle() Rule   { return Rule{Class: Handle, Must: true} }

func optional(r Rule) Rule {
	r.Must = false
	return r
}

// grown returns the rule of a struct that has been extended from minimum to n bytes.
func grown(c Class, minimum, n int) Rule {
	return Rule{Class: c, Min: minimum, Max: n, Zeroes: true, Must: true}
}

// command returns the rule of a command of the device, or of its reply.
func command(c Class) Rule { return Rule{Class: c, Min: 16, Max: -1, Must: true} }

func destroyed(id uint16) map[uint16]Rule { return map[uint16]Rule{id: handle()} }

func destroyedReply(id, resp uint16, n int) map[uint16]Rule {
	return map[uint16]Rule{id: handle(), resp: out(n)}
}

// Rules are the specifications of the methods that the library issues, after
// DECLARE_UVERBS_NAMED_METHOD in drivers/infiniband/core/uverbs_std_types_*.c of Linux. They are
// independent of the encoder's own table, so that each checks the other.
var Rules = map[Method]map[uint16]Rule{
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE}: {
		uapi.UVERBS_ATTR_WRITE_CMD: constant(),
		uapi.UVERBS_ATTR_CORE_IN:   {Class: In, Min: 4, Max: -1},
		uapi.UVERBS_ATTR_CORE_OUT:  {Class: Out, Max: -1},
	},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_GET_CONTEXT}: {
		uapi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS: optional(out(4)),
		uapi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT:     optional(out(8)),
	},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_CONTEXT}: {
		uapi.UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS: optional(out(4)),
		uapi.UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT:     optional(out(8)),
		uapi.MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX:       {Class: Out, Max: -1}, // mlx5_ib's
	},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_PORT}: {
		uapi.UVERBS_ATTR_QUERY_PORT_PORT_NUM: constant(),
		uapi.UVERBS_ATTR_QUERY_PORT_RESP:     grown(Out, 40, ioctl.SizeOf[uapi.IbUverbsQueryPortRespEx]()),
	},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_GID_TABLE}: {
		uapi.UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE:       constant(),
		uapi.UVERBS_ATTR_QUERY_GID_TABLE_FLAGS:            flags(),
		uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES:     {Class: Out, Max: -1, Must: true},
		uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES: out(8),
	},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_GID_ENTRY}: {
		uapi.UVERBS_ATTR_QUERY_GID_ENTRY_PORT:       constant(),
		uapi.UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX:  constant(),
		uapi.UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS:      {Class: In, Min: 4, Max: 8, Must: true},
		uapi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY: grown(Out, 32, 32),
	},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_PORT_SPEED}: {
		uapi.UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM: constant(),
		uapi.UVERBS_ATTR_QUERY_PORT_SPEED_RESP:     out(8),
	},
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_REG_DMABUF_MR}: {
		uapi.UVERBS_ATTR_REG_DMABUF_MR_HANDLE:       {Class: New, Must: true},
		uapi.UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE:    handle(),
		uapi.UVERBS_ATTR_REG_DMABUF_MR_OFFSET:       in(8),
		uapi.UVERBS_ATTR_REG_DMABUF_MR_LENGTH:       in(8),
		uapi.UVERBS_ATTR_REG_DMABUF_MR_IOVA:         in(8),
		uapi.UVERBS_ATTR_REG_DMABUF_MR_FD:           in(4),
		uapi.UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS: flags(),
		uapi.UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY:    out(4),
		uapi.UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY:    out(4),
	},
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_DM_MR_REG}: {
		uapi.UVERBS_ATTR_REG_DM_MR_HANDLE:       {Class: New, Must: true},
		uapi.UVERBS_ATTR_REG_DM_MR_OFFSET:       in(8),
		uapi.UVERBS_ATTR_REG_DM_MR_LENGTH:       in(8),
		uapi.UVERBS_ATTR_REG_DM_MR_PD_HANDLE:    handle(),
		uapi.UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS: flags(),
		uapi.UVERBS_ATTR_REG_DM_MR_DM_HANDLE:    handle(),
		uapi.UVERBS_ATTR_REG_DM_MR_RESP_LKEY:    out(4),
		uapi.UVERBS_ATTR_REG_DM_MR_RESP_RKEY:    out(4),
	},
	{uapi.UVERBS_OBJECT_DM, uapi.UVERBS_METHOD_DM_ALLOC}: {
		uapi.UVERBS_ATTR_ALLOC_DM_HANDLE:             {Class: New, Must: true},
		uapi.UVERBS_ATTR_ALLOC_DM_LENGTH:             in(8),
		uapi.UVERBS_ATTR_ALLOC_DM_ALIGNMENT:          in(4),
		uapi.MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET: out(8), // mlx5_ib's
		uapi.MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX:   out(2),
	},
	{uapi.UVERBS_OBJECT_DM, uapi.UVERBS_METHOD_DM_FREE}: destroyed(uapi.UVERBS_ATTR_FREE_DM_HANDLE),
	{uapi.UVERBS_OBJECT_ASYNC_EVENT, uapi.UVERBS_METHOD_ASYNC_EVENT_ALLOC}: {
		uapi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE: {Class: NewFD, Must: true},
	},
	{uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY}: destroyed(uapi.UVERBS_ATTR_DESTROY_PD_HANDLE),
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_MR_DESTROY}: destroyed(uapi.UVERBS_ATTR_DESTROY_MR_HANDLE),
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_QUERY_MR}: {
		uapi.UVERBS_ATTR_QUERY_MR_HANDLE:      handle(),
		uapi.UVERBS_ATTR_QUERY_MR_RESP_LKEY:   out(4),
		uapi.UVERBS_ATTR_QUERY_MR_RESP_RKEY:   out(4),
		uapi.UVERBS_ATTR_QUERY_MR_RESP_LENGTH: out(8),
		uapi.UVERBS_ATTR_QUERY_MR_RESP_IOVA:   optional(out(8)),
	},
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_ADVISE_MR}: {
		uapi.UVERBS_ATTR_ADVISE_MR_PD_HANDLE: handle(),
		uapi.UVERBS_ATTR_ADVISE_MR_ADVICE:    constant(),
		uapi.UVERBS_ATTR_ADVISE_MR_FLAGS:     {Class: In, Min: 4, Max: 8, Must: true},
		uapi.UVERBS_ATTR_ADVISE_MR_SGE_LIST:  {Class: In, Min: 16, Max: -1, Must: true},
	},
	{uapi.UVERBS_OBJECT_MW, uapi.UVERBS_METHOD_MW_DESTROY}: destroyed(uapi.UVERBS_ATTR_DESTROY_MW_HANDLE),
	{uapi.UVERBS_OBJECT_AH, uapi.UVERBS_METHOD_AH_DESTROY}: destroyed(uapi.UVERBS_ATTR_DESTROY_AH_HANDLE),
	{uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_CREATE}: {
		uapi.UVERBS_ATTR_CREATE_SRQ_HANDLE:       {Class: New, Must: true},
		uapi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE:    handle(),
		uapi.UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE:  optional(handle()),
		uapi.UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE:    optional(handle()),
		uapi.UVERBS_ATTR_CREATE_SRQ_TYPE:         constant(),
		uapi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE:  in(8),
		uapi.UVERBS_ATTR_CREATE_SRQ_MAX_WR:       in(4),
		uapi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE:      in(4),
		uapi.UVERBS_ATTR_CREATE_SRQ_LIMIT:        in(4),
		uapi.UVERBS_ATTR_CREATE_SRQ_EVENT_FD:     {Class: FD},
		uapi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR:  out(4),
		uapi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE: out(4),
		uapi.UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM: optional(out(4)),
	},
	{uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_DESTROY}: destroyedReply(uapi.UVERBS_ATTR_DESTROY_SRQ_HANDLE,
		uapi.UVERBS_ATTR_DESTROY_SRQ_RESP, ioctl.SizeOf[uapi.IbUverbsDestroySrqResp]()),
	{uapi.UVERBS_OBJECT_XRCD, uapi.UVERBS_METHOD_XRCD_DESTROY}: destroyed(uapi.UVERBS_ATTR_DESTROY_XRCD_HANDLE),
	{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE}: {
		uapi.UVERBS_ATTR_CREATE_CQ_HANDLE:       {Class: New, Must: true},
		uapi.UVERBS_ATTR_CREATE_CQ_CQE:          in(4),
		uapi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE:  in(8),
		uapi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL: {Class: FD},
		uapi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR:  in(4),
		uapi.UVERBS_ATTR_CREATE_CQ_FLAGS:        flags(),
		uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE:     out(4),
		uapi.UVERBS_ATTR_CREATE_CQ_EVENT_FD:     {Class: FD},
		uapi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX:   optional(in(4)), // mlx5_ib's
	},
	{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_DESTROY}: destroyedReply(uapi.UVERBS_ATTR_DESTROY_CQ_HANDLE,
		uapi.UVERBS_ATTR_DESTROY_CQ_RESP, ioctl.SizeOf[uapi.IbUverbsDestroyCqResp]()),
	{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE}: {
		uapi.UVERBS_ATTR_CREATE_QP_HANDLE:           {Class: New, Must: true},
		uapi.UVERBS_ATTR_CREATE_QP_XRCD_HANDLE:      optional(handle()),
		uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE:        optional(handle()),
		uapi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE:       optional(handle()),
		uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE:   optional(handle()),
		uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE:   optional(handle()),
		uapi.UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE: optional(handle()),
		uapi.UVERBS_ATTR_CREATE_QP_USER_HANDLE:      in(8),
		uapi.UVERBS_ATTR_CREATE_QP_CAP:              grown(In, 20, 20),
		uapi.UVERBS_ATTR_CREATE_QP_TYPE:             constant(),
		uapi.UVERBS_ATTR_CREATE_QP_FLAGS:            flags(),
		uapi.UVERBS_ATTR_CREATE_QP_EVENT_FD:         {Class: FD},
		uapi.UVERBS_ATTR_CREATE_QP_RESP_CAP:         grown(Out, 20, 20),
		uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM:      out(4),
	},
	{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_DESTROY}: destroyedReply(uapi.UVERBS_ATTR_DESTROY_QP_HANDLE,
		uapi.UVERBS_ATTR_DESTROY_QP_RESP, ioctl.SizeOf[uapi.IbUverbsDestroyQpResp]()),
	{uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_METHOD_WQ_CREATE}: {
		uapi.UVERBS_ATTR_CREATE_WQ_HANDLE:       {Class: New, Must: true},
		uapi.UVERBS_ATTR_CREATE_WQ_PD_HANDLE:    handle(),
		uapi.UVERBS_ATTR_CREATE_WQ_CQ_HANDLE:    optional(handle()),
		uapi.UVERBS_ATTR_CREATE_WQ_TYPE:         constant(),
		uapi.UVERBS_ATTR_CREATE_WQ_USER_HANDLE:  in(8),
		uapi.UVERBS_ATTR_CREATE_WQ_MAX_WR:       in(4),
		uapi.UVERBS_ATTR_CREATE_WQ_MAX_SGE:      in(4),
		uapi.UVERBS_ATTR_CREATE_WQ_FLAGS:        {Class: In, Min: 4, Max: 8, Must: true},
		uapi.UVERBS_ATTR_CREATE_WQ_EVENT_FD:     {Class: FD},
		uapi.UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR:  out(4),
		uapi.UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE: out(4),
		uapi.UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM:  optional(out(4)),
	},
	{uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_METHOD_WQ_DESTROY}: destroyedReply(uapi.UVERBS_ATTR_DESTROY_WQ_HANDLE,
		uapi.UVERBS_ATTR_DESTROY_WQ_RESP, 4),
	{uapi.UVERBS_OBJECT_FLOW,
		uapi.UVERBS_METHOD_FLOW_DESTROY}: destroyed(uapi.UVERBS_ATTR_DESTROY_FLOW_HANDLE),
	{uapi.UVERBS_OBJECT_RWQ_IND_TBL,
		uapi.UVERBS_METHOD_RWQ_IND_TBL_DESTROY}: destroyed(uapi.UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE),

	// After drivers/infiniband/hw/mlx5/std_types.c.
	{uapi.UVERBS_OBJECT_PD, uapi.MLX5_IB_METHOD_PD_QUERY}: {
		uapi.MLX5_IB_ATTR_QUERY_PD_HANDLE:   handle(),
		uapi.MLX5_IB_ATTR_QUERY_PD_RESP_PDN: out(4),
	},

	// After drivers/infiniband/hw/mlx5/dm.c.
	{uapi.UVERBS_OBJECT_DM, uapi.MLX5_IB_METHOD_DM_MAP_OP_ADDR}: {
		uapi.MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE:        handle(),
		uapi.MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP:            in(1),
		uapi.MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET: out(8),
		uapi.MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX:   out(2),
	},
	{uapi.UVERBS_OBJECT_DM, uapi.MLX5_IB_METHOD_DM_QUERY}: {
		uapi.MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE:        handle(),
		uapi.MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET: out(8),
		uapi.MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX:   out(2),
		uapi.MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH:       out(8),
	},

	// After drivers/infiniband/hw/mlx5/devx.c.
	{uapi.MLX5_IB_OBJECT_DEVX, uapi.MLX5_IB_METHOD_DEVX_OTHER}: {
		uapi.MLX5_IB_ATTR_DEVX_OTHER_CMD_IN:  command(In),
		uapi.MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT: command(Out),
	},
	{uapi.MLX5_IB_OBJECT_DEVX, uapi.MLX5_IB_METHOD_DEVX_QUERY_EQN}: {
		uapi.MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC: in(4),
		uapi.MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN:  out(4),
	},
	{uapi.MLX5_IB_OBJECT_DEVX, uapi.MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT}: {
		uapi.MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE:     {Class: FD, Must: true},
		uapi.MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE:    optional(handle()),
		uapi.MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST: {Class: In, Min: 2, Max: -1, Must: true},
		uapi.MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE:        optional(in(8)),
	},
	{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_CREATE}: {
		uapi.MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE:  {Class: New, Must: true},
		uapi.MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN:  command(In),
		uapi.MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT: command(Out),
	},
	{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_DESTROY}: destroyed(
		uapi.MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE),
	{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_MODIFY}: {
		uapi.MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE:  handle(),
		uapi.MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN:  command(In),
		uapi.MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT: command(Out),
	},
	{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_QUERY}: {
		uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE:  handle(),
		uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN:  command(In),
		uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT: command(Out),
	},
	{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY}: {
		uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE:  handle(),
		uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN:  command(In),
		uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD:      {Class: FD, Must: true},
		uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID:   in(8),
		uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN: constant(),
	},
	{uapi.MLX5_IB_OBJECT_DEVX_UMEM, uapi.MLX5_IB_METHOD_DEVX_UMEM_REG}: {
		uapi.MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE: {Class: New, Must: true},
		uapi.MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR:   in(8),
		uapi.MLX5_IB_ATTR_DEVX_UMEM_REG_LEN:    in(8),
		uapi.MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS: flags(),
		uapi.MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID: out(4),
	},
	{uapi.MLX5_IB_OBJECT_DEVX_UMEM, uapi.MLX5_IB_METHOD_DEVX_UMEM_DEREG}: destroyed(
		uapi.MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE),
	{uapi.MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, uapi.MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC}: {
		uapi.MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE: {Class: NewFD, Must: true},
	},
	{uapi.MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, uapi.MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC}: {
		uapi.MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE: {Class: NewFD, Must: true},
		uapi.MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS:  {Class: In, Min: 4, Max: 8, Must: true},
	},

	// After drivers/infiniband/hw/mlx5/main.c.
	{uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_ALLOC}: {
		uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE:      {Class: New, Must: true},
		uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE:        constant(),
		uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET: out(8),
		uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH: out(4),
		uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID:     out(4),
	},
	{uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_DESTROY}: destroyed(uapi.MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE),

	// After drivers/infiniband/hw/bnxt_re/ib_verbs.c.
	{Bnxt | uapi.BNXT_RE_OBJECT_ALLOC_PAGE, uapi.BNXT_RE_METHOD_ALLOC_PAGE}: {
		uapi.BNXT_RE_ALLOC_PAGE_HANDLE:      {Class: New, Must: true},
		uapi.BNXT_RE_ALLOC_PAGE_TYPE:        constant(),
		uapi.BNXT_RE_ALLOC_PAGE_DPI:         out(4),
		uapi.BNXT_RE_ALLOC_PAGE_MMAP_OFFSET: out(8),
		uapi.BNXT_RE_ALLOC_PAGE_MMAP_LENGTH: out(4),
	},
	{Bnxt | uapi.BNXT_RE_OBJECT_ALLOC_PAGE, uapi.BNXT_RE_METHOD_DESTROY_PAGE}: destroyed(uapi.BNXT_RE_DESTROY_PAGE_HANDLE),
	{Bnxt | uapi.BNXT_RE_OBJECT_NOTIFY_DRV, uapi.BNXT_RE_METHOD_NOTIFY_DRV}:   {},
	{Bnxt | uapi.BNXT_RE_OBJECT_GET_TOGGLE_MEM, uapi.BNXT_RE_METHOD_GET_TOGGLE_MEM}: {
		uapi.BNXT_RE_TOGGLE_MEM_HANDLE:      {Class: New, Must: true},
		uapi.BNXT_RE_TOGGLE_MEM_TYPE:        constant(),
		uapi.BNXT_RE_TOGGLE_MEM_RES_ID:      in(4),
		uapi.BNXT_RE_TOGGLE_MEM_MMAP_PAGE:   out(8),
		uapi.BNXT_RE_TOGGLE_MEM_MMAP_OFFSET: out(4),
		uapi.BNXT_RE_TOGGLE_MEM_MMAP_LENGTH: out(4),
	},
	{Bnxt | uapi.BNXT_RE_OBJECT_GET_TOGGLE_MEM, uapi.BNXT_RE_METHOD_RELEASE_TOGGLE_MEM}: destroyed(
		uapi.BNXT_RE_RELEASE_TOGGLE_MEM_HANDLE),
}

// Bnxt is a bit of the objects of bnxt_re in Rules: those of mlx5_ib have the same numbers.
const Bnxt = 1 << 15

// MethodOf returns the key in Rules of a method of a driver.
func MethodOf(driver uint32, object, method uint16) Method {
	switch {
	case object >= Bnxt:
		return Method{object, ^uint16(0)} // there is none
	case driver == uapi.RDMA_DRIVER_BNXT_RE && object>>uapi.UVERBS_ID_NS_SHIFT != 0:
		object |= Bnxt
	}
	return Method{object, method}
}

// uhw are the rules of the driver's part, which most methods have.
var uhw = map[uint16]Rule{
	uapi.UVERBS_ATTR_UHW_IN:  {Class: In, Max: -1},
	uapi.UVERBS_ATTR_UHW_OUT: {Class: Out, Max: -1},
}

var noUHW = map[Method]bool{
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_CONTEXT}:            true,
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_QUERY_MR}:                     true,
	{uapi.UVERBS_OBJECT_PD, uapi.MLX5_IB_METHOD_PD_QUERY}:                    true,
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_PORT}:               true,
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_GID_TABLE}:          true,
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_GID_ENTRY}:          true,
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_PORT_SPEED}:         true,
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_REG_DMABUF_MR}:                true,
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_DM_MR_REG}:                    true,
	{uapi.UVERBS_OBJECT_DM, uapi.UVERBS_METHOD_DM_FREE}:                      true,
	{uapi.UVERBS_OBJECT_ASYNC_EVENT, uapi.UVERBS_METHOD_ASYNC_EVENT_ALLOC}:   true,
	{uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY}:                   true,
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_MR_DESTROY}:                   true,
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_ADVISE_MR}:                    true,
	{uapi.UVERBS_OBJECT_MW, uapi.UVERBS_METHOD_MW_DESTROY}:                   true,
	{uapi.UVERBS_OBJECT_AH, uapi.UVERBS_METHOD_AH_DESTROY}:                   true,
	{uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_DESTROY}:                 true,
	{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_DESTROY}:                   true,
	{uapi.UVERBS_OBJECT_XRCD, uapi.UVERBS_METHOD_XRCD_DESTROY}:               true,
	{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_DESTROY}:                   true,
	{uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_METHOD_WQ_DESTROY}:                   true,
	{uapi.UVERBS_OBJECT_FLOW, uapi.UVERBS_METHOD_FLOW_DESTROY}:               true,
	{uapi.UVERBS_OBJECT_RWQ_IND_TBL, uapi.UVERBS_METHOD_RWQ_IND_TBL_DESTROY}: true,
	{uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_ALLOC}:             true,
	{uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_DESTROY}:           true,
}

// rule returns the specification of an attribute.
func (m Method) rule(id uint16) (Rule, bool) {
	if r, ok := Rules[m][id]; ok {
		return r, true
	}
	if noUHW[m] || m.Object&Bnxt != 0 {
		return Rule{}, false
	}
	r, ok := uhw[id]
	return r, ok
}

// A legacy is a legacy command with the sizes of its request and reply, without the header, as
// INVOKE_WRITE carries them.
type legacy struct {
	name     string
	req, rep int
	table    bool // the request has a table after its struct
}

// ex is the flag of an extended command number.
const ex = uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED

func sizes[Req, Rep any](name string) legacy {
	return legacy{name: name, req: ioctl.SizeOf[Req](), rep: ioctl.SizeOf[Rep]()}
}

// withTable returns the sizes of a command whose request has a table after its struct.
func withTable[Req, Rep any](name string) legacy {
	l := sizes[Req, Rep](name)
	l.table = true
	return l
}

// legacies are the legacy commands by number, after the UAPI_DEF_WRITE_* tables in
// drivers/infiniband/core/uverbs_cmd.c.
var legacies = map[uint64]legacy{
	ex | uapi.IB_USER_VERBS_EX_CMD_QUERY_DEVICE: sizes[uapi.IbUverbsExQueryDevice,
		uapi.IbUverbsExQueryDeviceResp]("QUERY_DEVICE_EX"),
	ex | uapi.IB_USER_VERBS_EX_CMD_MODIFY_QP: sizes[uapi.IbUverbsExModifyQp,
		uapi.IbUverbsExModifyQpResp]("MODIFY_QP_EX"),
	ex | uapi.IB_USER_VERBS_EX_CMD_MODIFY_CQ: sizes[uapi.IbUverbsExModifyCq, ioctl.Void]("MODIFY_CQ_EX"),
	ex | uapi.IB_USER_VERBS_EX_CMD_MODIFY_WQ: sizes[uapi.IbUverbsExModifyWq, ioctl.Void]("MODIFY_WQ_EX"),
	ex | uapi.IB_USER_VERBS_EX_CMD_CREATE_FLOW: withTable[uapi.IbUverbsCreateFlow,
		uapi.IbUverbsCreateFlowResp]("CREATE_FLOW_EX"),
	ex | uapi.IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL: withTable[uapi.IbUverbsExCreateRwqIndTable,
		uapi.IbUverbsExCreateRwqIndTableResp]("CREATE_RWQ_IND_TBL_EX"),
	uapi.IB_USER_VERBS_CMD_QUERY_DEVICE: sizes[uapi.IbUverbsQueryDevice,
		uapi.IbUverbsQueryDeviceResp]("QUERY_DEVICE"),
	uapi.IB_USER_VERBS_CMD_ALLOC_PD: sizes[uapi.IbUverbsAllocPd, uapi.IbUverbsAllocPdResp]("ALLOC_PD"),
	uapi.IB_USER_VERBS_CMD_ALLOC_MW: sizes[uapi.IbUverbsAllocMw, uapi.IbUverbsAllocMwResp]("ALLOC_MW"),
	uapi.IB_USER_VERBS_CMD_REG_MR:   sizes[uapi.IbUverbsRegMr, uapi.IbUverbsRegMrResp]("REG_MR"),
	uapi.IB_USER_VERBS_CMD_REREG_MR: sizes[uapi.IbUverbsReregMr, uapi.IbUverbsReregMrResp]("REREG_MR"),
	uapi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL: sizes[uapi.IbUverbsCreateCompChannel,
		uapi.IbUverbsCreateCompChannelResp]("CREATE_COMP_CHANNEL"),
	uapi.IB_USER_VERBS_CMD_RESIZE_CQ:     sizes[uapi.IbUverbsResizeCq, uapi.IbUverbsResizeCqResp]("RESIZE_CQ"),
	uapi.IB_USER_VERBS_CMD_POLL_CQ:       sizes[uapi.IbUverbsPollCq, polledCQ]("POLL_CQ"),
	uapi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ: sizes[uapi.IbUverbsReqNotifyCq, ioctl.Void]("REQ_NOTIFY_CQ"),
	uapi.IB_USER_VERBS_CMD_QUERY_QP:      sizes[uapi.IbUverbsQueryQp, uapi.IbUverbsQueryQpResp]("QUERY_QP"),
	uapi.IB_USER_VERBS_CMD_MODIFY_QP:     sizes[uapi.IbUverbsModifyQp, ioctl.Void]("MODIFY_QP"),
	uapi.IB_USER_VERBS_CMD_POST_SEND:     sizes[uapi.IbUverbsPostSend, uapi.IbUverbsPostSendResp]("POST_SEND"),
	uapi.IB_USER_VERBS_CMD_CREATE_AH:     sizes[uapi.IbUverbsCreateAh, uapi.IbUverbsCreateAhResp]("CREATE_AH"),
	uapi.IB_USER_VERBS_CMD_ATTACH_MCAST:  sizes[uapi.IbUverbsAttachMcast, ioctl.Void]("ATTACH_MCAST"),
	uapi.IB_USER_VERBS_CMD_DETACH_MCAST:  sizes[uapi.IbUverbsDetachMcast, ioctl.Void]("DETACH_MCAST"),
	uapi.IB_USER_VERBS_CMD_MODIFY_SRQ:    sizes[uapi.IbUverbsModifySrq, ioctl.Void]("MODIFY_SRQ"),
	uapi.IB_USER_VERBS_CMD_OPEN_XRCD:     sizes[uapi.IbUverbsOpenXrcd, uapi.IbUverbsOpenXrcdResp]("OPEN_XRCD"),
	uapi.IB_USER_VERBS_CMD_OPEN_QP:       sizes[uapi.IbUverbsOpenQp, uapi.IbUverbsCreateQpResp]("OPEN_QP"),
	uapi.IB_USER_VERBS_CMD_QUERY_SRQ:     sizes[uapi.IbUverbsQuerySrq, uapi.IbUverbsQuerySrqResp]("QUERY_SRQ"),
}
