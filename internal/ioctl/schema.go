package ioctl

import (
	"fmt"

	"github.com/goverbs/goverbs/internal/uapi"
)

// A class says how the kernel reads an attribute.
type class uint8

const (
	classIn       class = iota // bytes: inline up to 8, else by address
	classOut                   // bytes, by address
	classConst                 // a number, inline
	classHandle                // an object that exists
	classNew                   // an object that the method creates
	classFD                    // a descriptor that exists
	classNewFD                 // a descriptor that the method creates
	classWriteCmd              // the number of a legacy command
)

type attrDef struct {
	name  string
	class class
}

type method struct {
	name  string
	attrs map[uint16]attrDef
}

type methodKey struct{ object, method uint16 }

func (m method) attr(id uint16) attrDef {
	if d, ok := m.attrs[id]; ok {
		return d
	}
	switch id {
	case uapi.UVERBS_ATTR_UHW_IN:
		return attrDef{"UHW_IN", classIn}
	case uapi.UVERBS_ATTR_UHW_OUT:
		return attrDef{"UHW_OUT", classOut}
	}
	return attrDef{fmt.Sprintf("attr %#x", id), classIn}
}

// destroy describes a method with a handle as its only attribute.
func destroy(name string, id uint16) method {
	return method{name, map[uint16]attrDef{id: {"HANDLE", classHandle}}}
}

// schema describes every method that this library issues. The trace uses it, and tests check each
// encoded command against it.
var schema = map[methodKey]method{
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE}: {"INVOKE_WRITE", map[uint16]attrDef{
		uapi.UVERBS_ATTR_CORE_IN:   {"IN", classIn},
		uapi.UVERBS_ATTR_CORE_OUT:  {"OUT", classOut},
		uapi.UVERBS_ATTR_WRITE_CMD: {"CMD", classWriteCmd},
	}},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_GET_CONTEXT}: {"DEVICE.GET_CONTEXT", map[uint16]attrDef{
		uapi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS: {"NUM_COMP_VECTORS", classOut},
		uapi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT:     {"CORE_SUPPORT", classOut},
	}},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_CONTEXT}: {"DEVICE.QUERY_CONTEXT", map[uint16]attrDef{
		uapi.UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS: {"NUM_COMP_VECTORS", classOut},
		uapi.UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT:     {"CORE_SUPPORT", classOut},
		uapi.MLX5_IB_ATTR_QUERY_CONTEXT_RESP_UCTX:       {"UCTX", classOut},
	}},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_PORT}: {"DEVICE.QUERY_PORT", map[uint16]attrDef{
		uapi.UVERBS_ATTR_QUERY_PORT_PORT_NUM: {"PORT", classConst},
		uapi.UVERBS_ATTR_QUERY_PORT_RESP:     {"RESP", classOut},
	}},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_GID_TABLE}: {"DEVICE.QUERY_GID_TABLE", map[uint16]attrDef{
		uapi.UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE:       {"ENTRY_SIZE", classConst},
		uapi.UVERBS_ATTR_QUERY_GID_TABLE_FLAGS:            {"FLAGS", classConst},
		uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES:     {"ENTRIES", classOut},
		uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES: {"NUM_ENTRIES", classOut},
	}},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_GID_ENTRY}: {"DEVICE.QUERY_GID_ENTRY", map[uint16]attrDef{
		uapi.UVERBS_ATTR_QUERY_GID_ENTRY_PORT:       {"PORT", classConst},
		uapi.UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX:  {"GID_INDEX", classConst},
		uapi.UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS:      {"FLAGS", classConst},
		uapi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY: {"ENTRY", classOut},
	}},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_PORT_SPEED}: {"DEVICE.QUERY_PORT_SPEED", map[uint16]attrDef{
		uapi.UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM: {"PORT", classConst},
		uapi.UVERBS_ATTR_QUERY_PORT_SPEED_RESP:     {"RESP", classOut},
	}},
	{uapi.UVERBS_OBJECT_ASYNC_EVENT, uapi.UVERBS_METHOD_ASYNC_EVENT_ALLOC}: {"ASYNC_EVENT.ALLOC", map[uint16]attrDef{
		uapi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE: {"FD", classNewFD},
	}},
	{uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY}: destroy("PD.DESTROY", uapi.UVERBS_ATTR_DESTROY_PD_HANDLE),
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_MR_DESTROY}: destroy("MR.DESTROY", uapi.UVERBS_ATTR_DESTROY_MR_HANDLE),
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_QUERY_MR}: {"MR.QUERY", map[uint16]attrDef{
		uapi.UVERBS_ATTR_QUERY_MR_HANDLE:      {"HANDLE", classHandle},
		uapi.UVERBS_ATTR_QUERY_MR_RESP_LKEY:   {"RESP_LKEY", classOut},
		uapi.UVERBS_ATTR_QUERY_MR_RESP_RKEY:   {"RESP_RKEY", classOut},
		uapi.UVERBS_ATTR_QUERY_MR_RESP_LENGTH: {"RESP_LENGTH", classOut},
		uapi.UVERBS_ATTR_QUERY_MR_RESP_IOVA:   {"RESP_IOVA", classOut},
	}},
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_ADVISE_MR}:     mrAdvise,
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_REG_DMABUF_MR}: mrDMABuf,
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_DM_MR_REG}:     mrDM,
	{uapi.UVERBS_OBJECT_DM, uapi.UVERBS_METHOD_DM_ALLOC}:      dmAlloc,
	{uapi.UVERBS_OBJECT_DM, uapi.UVERBS_METHOD_DM_FREE}:       destroy("DM.FREE", uapi.UVERBS_ATTR_FREE_DM_HANDLE),
	{uapi.UVERBS_OBJECT_MW, uapi.UVERBS_METHOD_MW_DESTROY}:    destroy("MW.DESTROY", uapi.UVERBS_ATTR_DESTROY_MW_HANDLE),
	{uapi.UVERBS_OBJECT_AH, uapi.UVERBS_METHOD_AH_DESTROY}:    destroy("AH.DESTROY", uapi.UVERBS_ATTR_DESTROY_AH_HANDLE),
	{uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_CREATE}:   srqCreate,
	{uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_DESTROY}: destroyWithReply("SRQ.DESTROY",
		uapi.UVERBS_ATTR_DESTROY_SRQ_HANDLE, uapi.UVERBS_ATTR_DESTROY_SRQ_RESP),
	{uapi.UVERBS_OBJECT_XRCD, uapi.UVERBS_METHOD_XRCD_DESTROY}: destroy("XRCD.DESTROY",
		uapi.UVERBS_ATTR_DESTROY_XRCD_HANDLE),
	{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE}: cqCreate,
	{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_DESTROY}: destroyWithReply("CQ.DESTROY",
		uapi.UVERBS_ATTR_DESTROY_CQ_HANDLE, uapi.UVERBS_ATTR_DESTROY_CQ_RESP),
	{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE}: qpCreate,
	{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_DESTROY}: destroyWithReply("QP.DESTROY",
		uapi.UVERBS_ATTR_DESTROY_QP_HANDLE, uapi.UVERBS_ATTR_DESTROY_QP_RESP),
	{uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_METHOD_WQ_CREATE}: wqCreate,
	{uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_METHOD_WQ_DESTROY}: destroyWithReply("WQ.DESTROY",
		uapi.UVERBS_ATTR_DESTROY_WQ_HANDLE, uapi.UVERBS_ATTR_DESTROY_WQ_RESP),
	{uapi.UVERBS_OBJECT_FLOW, uapi.UVERBS_METHOD_FLOW_DESTROY}: destroy("FLOW.DESTROY",
		uapi.UVERBS_ATTR_DESTROY_FLOW_HANDLE),
	{uapi.UVERBS_OBJECT_RWQ_IND_TBL, uapi.UVERBS_METHOD_RWQ_IND_TBL_DESTROY}: destroy("RWQ_IND_TBL.DESTROY",
		uapi.UVERBS_ATTR_DESTROY_RWQ_IND_TBL_HANDLE),

	{uapi.UVERBS_OBJECT_DM, uapi.MLX5_IB_METHOD_DM_QUERY}: {"DM.QUERY", map[uint16]attrDef{
		uapi.MLX5_IB_ATTR_QUERY_DM_REQ_HANDLE:        {"HANDLE", classHandle},
		uapi.MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET: {"START_OFFSET", classOut},
		uapi.MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX:   {"PAGE_INDEX", classOut},
		uapi.MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH:       {"LENGTH", classOut},
	}},
	{uapi.UVERBS_OBJECT_DM, uapi.MLX5_IB_METHOD_DM_MAP_OP_ADDR}: {"DM.MAP_OP_ADDR", map[uint16]attrDef{
		uapi.MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_HANDLE:        {"HANDLE", classHandle},
		uapi.MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP:            {"OP", classConst},
		uapi.MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET: {"START_OFFSET", classOut},
		uapi.MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX:   {"PAGE_INDEX", classOut},
	}},
	{uapi.UVERBS_OBJECT_PD, uapi.MLX5_IB_METHOD_PD_QUERY}: {"PD.QUERY", map[uint16]attrDef{
		uapi.MLX5_IB_ATTR_QUERY_PD_HANDLE:   {"HANDLE", classHandle},
		uapi.MLX5_IB_ATTR_QUERY_PD_RESP_PDN: {"RESP_PDN", classOut},
	}},
	{uapi.MLX5_IB_OBJECT_DEVX, uapi.MLX5_IB_METHOD_DEVX_OTHER}: {"DEVX.COMMAND", map[uint16]attrDef{
		uapi.MLX5_IB_ATTR_DEVX_OTHER_CMD_IN:  {"IN", classIn},
		uapi.MLX5_IB_ATTR_DEVX_OTHER_CMD_OUT: {"OUT", classOut},
	}},
	{uapi.MLX5_IB_OBJECT_DEVX, uapi.MLX5_IB_METHOD_DEVX_QUERY_EQN}: {"DEVX.QUERY_EQN", map[uint16]attrDef{
		uapi.MLX5_IB_ATTR_DEVX_QUERY_EQN_USER_VEC: {"VECTOR", classIn},
		uapi.MLX5_IB_ATTR_DEVX_QUERY_EQN_DEV_EQN:  {"EQN", classOut},
	}},
	{uapi.MLX5_IB_OBJECT_DEVX, uapi.MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT}: {"DEVX.SUBSCRIBE_EVENT", map[uint16]attrDef{
		uapi.MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_FD_HANDLE:     {"CHANNEL", classFD},
		uapi.MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_OBJ_HANDLE:    {"HANDLE", classHandle},
		uapi.MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_TYPE_NUM_LIST: {"TYPES", classIn},
		uapi.MLX5_IB_ATTR_DEVX_SUBSCRIBE_EVENT_COOKIE:        {"COOKIE", classIn},
	}},
	{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_CREATE}: {"DEVX_OBJ.CREATE", map[uint16]attrDef{
		uapi.MLX5_IB_ATTR_DEVX_OBJ_CREATE_HANDLE:  {"HANDLE", classNew},
		uapi.MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_IN:  {"IN", classIn},
		uapi.MLX5_IB_ATTR_DEVX_OBJ_CREATE_CMD_OUT: {"OUT", classOut},
	}},
	{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_DESTROY}: destroy("DEVX_OBJ.DESTROY",
		uapi.MLX5_IB_ATTR_DEVX_OBJ_DESTROY_HANDLE),
	{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_MODIFY}: {"DEVX_OBJ.MODIFY", map[uint16]attrDef{
		uapi.MLX5_IB_ATTR_DEVX_OBJ_MODIFY_HANDLE:  {"HANDLE", classHandle},
		uapi.MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_IN:  {"IN", classIn},
		uapi.MLX5_IB_ATTR_DEVX_OBJ_MODIFY_CMD_OUT: {"OUT", classOut},
	}},
	{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_QUERY}: {"DEVX_OBJ.QUERY", map[uint16]attrDef{
		uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_HANDLE:  {"HANDLE", classHandle},
		uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_IN:  {"IN", classIn},
		uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_CMD_OUT: {"OUT", classOut},
	}},
	{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY}: {"DEVX_OBJ.ASYNC_QUERY",
		map[uint16]attrDef{
			uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_HANDLE:  {"HANDLE", classHandle},
			uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_CMD_IN:  {"IN", classIn},
			uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_FD:      {"FD", classFD},
			uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_WR_ID:   {"WR_ID", classIn},
			uapi.MLX5_IB_ATTR_DEVX_OBJ_QUERY_ASYNC_OUT_LEN: {"OUT_LEN", classConst},
		}},
	{uapi.MLX5_IB_OBJECT_DEVX_UMEM, uapi.MLX5_IB_METHOD_DEVX_UMEM_REG}: {"DEVX_UMEM.REG", map[uint16]attrDef{
		uapi.MLX5_IB_ATTR_DEVX_UMEM_REG_HANDLE: {"HANDLE", classNew},
		uapi.MLX5_IB_ATTR_DEVX_UMEM_REG_ADDR:   {"ADDR", classIn},
		uapi.MLX5_IB_ATTR_DEVX_UMEM_REG_LEN:    {"LEN", classIn},
		uapi.MLX5_IB_ATTR_DEVX_UMEM_REG_ACCESS: {"ACCESS", classConst},
		uapi.MLX5_IB_ATTR_DEVX_UMEM_REG_OUT_ID: {"ID", classOut},
	}},
	{uapi.MLX5_IB_OBJECT_DEVX_UMEM, uapi.MLX5_IB_METHOD_DEVX_UMEM_DEREG}: destroy("DEVX_UMEM.DEREG",
		uapi.MLX5_IB_ATTR_DEVX_UMEM_DEREG_HANDLE),
	{uapi.MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, uapi.MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC}: {"DEVX_ASYNC_CMD_FD.ALLOC",
		map[uint16]attrDef{uapi.MLX5_IB_ATTR_DEVX_ASYNC_CMD_FD_ALLOC_HANDLE: {"FD", classNewFD}}},
	{uapi.MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, uapi.MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC}: {
		"DEVX_ASYNC_EVENT_FD.ALLOC", map[uint16]attrDef{
			uapi.MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_HANDLE: {"FD", classNewFD},
			uapi.MLX5_IB_ATTR_DEVX_ASYNC_EVENT_FD_ALLOC_FLAGS:  {"FLAGS", classConst},
		}},
	{uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_ALLOC}: uarAlloc,
	{uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_DESTROY}: destroy("UAR.DESTROY",
		uapi.MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE),
}

// uarAlloc is a method of mlx5_ib.
var uarAlloc = method{"UAR.ALLOC", map[uint16]attrDef{
	uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE:      {"HANDLE", classNew},
	uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE:        {"TYPE", classConst},
	uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET: {"MMAP_OFFSET", classOut},
	uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH: {"MMAP_LENGTH", classOut},
	uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID:     {"PAGE_ID", classOut},
}}

func destroyWithReply(name string, id, resp uint16) method {
	m := destroy(name, id)
	m.attrs[resp] = attrDef{"RESP", classOut}
	return m
}

var mrAdvise = method{"MR.ADVISE", map[uint16]attrDef{
	uapi.UVERBS_ATTR_ADVISE_MR_PD_HANDLE: {"PD", classHandle},
	uapi.UVERBS_ATTR_ADVISE_MR_ADVICE:    {"ADVICE", classConst},
	uapi.UVERBS_ATTR_ADVISE_MR_FLAGS:     {"FLAGS", classConst},
	uapi.UVERBS_ATTR_ADVISE_MR_SGE_LIST:  {"SGE_LIST", classIn},
}}

var mrDMABuf = method{"MR.REG_DMABUF", map[uint16]attrDef{
	uapi.UVERBS_ATTR_REG_DMABUF_MR_HANDLE:       {"HANDLE", classNew},
	uapi.UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE:    {"PD", classHandle},
	uapi.UVERBS_ATTR_REG_DMABUF_MR_OFFSET:       {"OFFSET", classConst},
	uapi.UVERBS_ATTR_REG_DMABUF_MR_LENGTH:       {"LENGTH", classConst},
	uapi.UVERBS_ATTR_REG_DMABUF_MR_IOVA:         {"IOVA", classConst},
	uapi.UVERBS_ATTR_REG_DMABUF_MR_FD:           {"FD", classConst},
	uapi.UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS: {"ACCESS", classConst},
	uapi.UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY:    {"RESP_LKEY", classOut},
	uapi.UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY:    {"RESP_RKEY", classOut},
}}

var mrDM = method{"MR.REG_DM", map[uint16]attrDef{
	uapi.UVERBS_ATTR_REG_DM_MR_HANDLE:       {"HANDLE", classNew},
	uapi.UVERBS_ATTR_REG_DM_MR_OFFSET:       {"OFFSET", classConst},
	uapi.UVERBS_ATTR_REG_DM_MR_LENGTH:       {"LENGTH", classConst},
	uapi.UVERBS_ATTR_REG_DM_MR_PD_HANDLE:    {"PD", classHandle},
	uapi.UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS: {"ACCESS", classConst},
	uapi.UVERBS_ATTR_REG_DM_MR_DM_HANDLE:    {"DM", classHandle},
	uapi.UVERBS_ATTR_REG_DM_MR_RESP_LKEY:    {"RESP_LKEY", classOut},
	uapi.UVERBS_ATTR_REG_DM_MR_RESP_RKEY:    {"RESP_RKEY", classOut},
}}

var dmAlloc = method{"DM.ALLOC", map[uint16]attrDef{
	uapi.UVERBS_ATTR_ALLOC_DM_HANDLE:             {"HANDLE", classNew},
	uapi.UVERBS_ATTR_ALLOC_DM_LENGTH:             {"LENGTH", classConst},
	uapi.UVERBS_ATTR_ALLOC_DM_ALIGNMENT:          {"ALIGNMENT", classConst},
	uapi.MLX5_IB_ATTR_ALLOC_DM_RESP_START_OFFSET: {"START_OFFSET", classOut},
	uapi.MLX5_IB_ATTR_ALLOC_DM_RESP_PAGE_INDEX:   {"PAGE_INDEX", classOut},
}}

var cqCreate = method{"CQ.CREATE", map[uint16]attrDef{
	uapi.UVERBS_ATTR_CREATE_CQ_HANDLE:       {"HANDLE", classNew},
	uapi.UVERBS_ATTR_CREATE_CQ_CQE:          {"CQE", classConst},
	uapi.UVERBS_ATTR_CREATE_CQ_USER_HANDLE:  {"USER_HANDLE", classConst},
	uapi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL: {"COMP_CHANNEL", classFD},
	uapi.UVERBS_ATTR_CREATE_CQ_COMP_VECTOR:  {"COMP_VECTOR", classConst},
	uapi.UVERBS_ATTR_CREATE_CQ_FLAGS:        {"FLAGS", classConst},
	uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE:     {"RESP_CQE", classOut},
	uapi.UVERBS_ATTR_CREATE_CQ_EVENT_FD:     {"EVENT_FD", classFD},
	uapi.MLX5_IB_ATTR_CREATE_CQ_UAR_INDEX:   {"UAR_INDEX", classConst},
}}

var qpCreate = method{"QP.CREATE", map[uint16]attrDef{
	uapi.UVERBS_ATTR_CREATE_QP_HANDLE:           {"HANDLE", classNew},
	uapi.UVERBS_ATTR_CREATE_QP_XRCD_HANDLE:      {"XRCD", classHandle},
	uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE:        {"PD", classHandle},
	uapi.UVERBS_ATTR_CREATE_QP_SRQ_HANDLE:       {"SRQ", classHandle},
	uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE:   {"SEND_CQ", classHandle},
	uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE:   {"RECV_CQ", classHandle},
	uapi.UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE: {"IND_TABLE", classHandle},
	uapi.UVERBS_ATTR_CREATE_QP_USER_HANDLE:      {"USER_HANDLE", classConst},
	uapi.UVERBS_ATTR_CREATE_QP_CAP:              {"CAP", classIn},
	uapi.UVERBS_ATTR_CREATE_QP_TYPE:             {"TYPE", classConst},
	uapi.UVERBS_ATTR_CREATE_QP_FLAGS:            {"FLAGS", classConst},
	uapi.UVERBS_ATTR_CREATE_QP_EVENT_FD:         {"EVENT_FD", classFD},
	uapi.UVERBS_ATTR_CREATE_QP_RESP_CAP:         {"RESP_CAP", classOut},
	uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM:      {"RESP_QPN", classOut},
}}

var srqCreate = method{"SRQ.CREATE", map[uint16]attrDef{
	uapi.UVERBS_ATTR_CREATE_SRQ_HANDLE:       {"HANDLE", classNew},
	uapi.UVERBS_ATTR_CREATE_SRQ_PD_HANDLE:    {"PD", classHandle},
	uapi.UVERBS_ATTR_CREATE_SRQ_XRCD_HANDLE:  {"XRCD", classHandle},
	uapi.UVERBS_ATTR_CREATE_SRQ_CQ_HANDLE:    {"CQ", classHandle},
	uapi.UVERBS_ATTR_CREATE_SRQ_USER_HANDLE:  {"USER_HANDLE", classConst},
	uapi.UVERBS_ATTR_CREATE_SRQ_MAX_WR:       {"MAX_WR", classConst},
	uapi.UVERBS_ATTR_CREATE_SRQ_MAX_SGE:      {"MAX_SGE", classConst},
	uapi.UVERBS_ATTR_CREATE_SRQ_LIMIT:        {"LIMIT", classConst},
	uapi.UVERBS_ATTR_CREATE_SRQ_TYPE:         {"TYPE", classConst},
	uapi.UVERBS_ATTR_CREATE_SRQ_EVENT_FD:     {"EVENT_FD", classFD},
	uapi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR:  {"RESP_MAX_WR", classOut},
	uapi.UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE: {"RESP_MAX_SGE", classOut},
	uapi.UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM: {"RESP_SRQ_NUM", classOut},
}}

var wqCreate = method{"WQ.CREATE", map[uint16]attrDef{
	uapi.UVERBS_ATTR_CREATE_WQ_HANDLE:       {"HANDLE", classNew},
	uapi.UVERBS_ATTR_CREATE_WQ_PD_HANDLE:    {"PD", classHandle},
	uapi.UVERBS_ATTR_CREATE_WQ_CQ_HANDLE:    {"CQ", classHandle},
	uapi.UVERBS_ATTR_CREATE_WQ_USER_HANDLE:  {"USER_HANDLE", classConst},
	uapi.UVERBS_ATTR_CREATE_WQ_TYPE:         {"TYPE", classConst},
	uapi.UVERBS_ATTR_CREATE_WQ_EVENT_FD:     {"EVENT_FD", classFD},
	uapi.UVERBS_ATTR_CREATE_WQ_MAX_WR:       {"MAX_WR", classConst},
	uapi.UVERBS_ATTR_CREATE_WQ_MAX_SGE:      {"MAX_SGE", classConst},
	uapi.UVERBS_ATTR_CREATE_WQ_FLAGS:        {"FLAGS", classConst},
	uapi.UVERBS_ATTR_CREATE_WQ_RESP_MAX_WR:  {"RESP_MAX_WR", classOut},
	uapi.UVERBS_ATTR_CREATE_WQ_RESP_MAX_SGE: {"RESP_MAX_SGE", classOut},
	uapi.UVERBS_ATTR_CREATE_WQ_RESP_WQ_NUM:  {"RESP_WQN", classOut},
}}

var writeNames = map[uint64]string{
	uapi.IB_USER_VERBS_CMD_QUERY_DEVICE:          "QUERY_DEVICE",
	uapi.IB_USER_VERBS_CMD_ALLOC_PD:              "ALLOC_PD",
	uapi.IB_USER_VERBS_CMD_ALLOC_MW:              "ALLOC_MW",
	uapi.IB_USER_VERBS_CMD_REG_MR:                "REG_MR",
	uapi.IB_USER_VERBS_CMD_REREG_MR:              "REREG_MR",
	uapi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL:   "CREATE_COMP_CHANNEL",
	uapi.IB_USER_VERBS_CMD_RESIZE_CQ:             "RESIZE_CQ",
	uapi.IB_USER_VERBS_CMD_REQ_NOTIFY_CQ:         "REQ_NOTIFY_CQ",
	uapi.IB_USER_VERBS_CMD_QUERY_QP:              "QUERY_QP",
	uapi.IB_USER_VERBS_CMD_MODIFY_QP:             "MODIFY_QP",
	uapi.IB_USER_VERBS_CMD_POST_SEND:             "POST_SEND",
	uapi.IB_USER_VERBS_EX_CMD_MODIFY_CQ:          "MODIFY_CQ",
	uapi.IB_USER_VERBS_EX_CMD_MODIFY_WQ:          "MODIFY_WQ",
	uapi.IB_USER_VERBS_EX_CMD_CREATE_FLOW:        "CREATE_FLOW",
	uapi.IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL: "CREATE_RWQ_IND_TBL",
	uapi.IB_USER_VERBS_CMD_CREATE_AH:             "CREATE_AH",
	uapi.IB_USER_VERBS_CMD_ATTACH_MCAST:          "ATTACH_MCAST",
	uapi.IB_USER_VERBS_CMD_DETACH_MCAST:          "DETACH_MCAST",
	uapi.IB_USER_VERBS_CMD_MODIFY_SRQ:            "MODIFY_SRQ",
	uapi.IB_USER_VERBS_CMD_QUERY_SRQ:             "QUERY_SRQ",
	uapi.IB_USER_VERBS_CMD_OPEN_XRCD:             "OPEN_XRCD",
	uapi.IB_USER_VERBS_CMD_OPEN_QP:               "OPEN_QP",
}

func writeName(cmd uint64) string {
	if s, ok := writeNames[cmd&^uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED]; ok {
		if cmd&uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED != 0 {
			s += "_EX"
		}
		return s
	}
	return fmt.Sprintf("command %#x", cmd)
}
