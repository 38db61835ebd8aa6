package ioctl

import (
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/internal/uapi"
)

// A class says how the kernel reads an attribute.
type class uint8

const (
	classIn     class = iota // bytes: inline up to 8, else by address
	classOut                 // bytes, by address
	classNumber              // a constant, flags or the handle of an object that exists, inline
	classFD                  // a descriptor that exists
	classNew                 // an object or a descriptor that the method creates
)

// A method has the names of a method and of its attributes for the trace.
type method struct {
	name string
	// attrs has the names of the attributes with the ids 0, 1 and so on. - is an id that the library does not use.
	attrs string
	// driver has those of the driver's attributes, whose ids begin with that of UHW_IN. It is empty if the method has
	// only UHW_IN and UHW_OUT.
	driver string
}

// A methodKey is an object and a method. The objects of drivers have the same numbers: those of bnxt_re have ofBnxt.
type methodKey struct{ object, method uint16 }

const ofBnxt = 1 << 15

// keyOf returns the key of a command.
func keyOf(h *uapi.IbUverbsIoctlHdr) methodKey {
	key := methodKey{h.ObjectId, h.MethodId}
	if h.DriverId == uapi.RDMA_DRIVER_BNXT_RE && h.ObjectId>>uapi.UVERBS_ID_NS_SHIFT != 0 {
		key.object |= ofBnxt
	}
	return key
}

// attr returns the name of an attribute.
func (m method) attr(id uint16) string {
	list, i := m.attrs, int(id)
	if i >= uapi.UVERBS_ATTR_UHW_IN {
		list, i = m.driver, i-uapi.UVERBS_ATTR_UHW_IN
		if list == "" {
			list = "UHW_IN UHW_OUT"
		}
	}
	if names := strings.Fields(list); i < len(names) && names[i] != "-" {
		return names[i]
	}
	return fmt.Sprintf("attr %#x", id)
}

// schema names every method that this library issues.
var schema = map[methodKey]method{
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE}: {name: invokeWrite, attrs: "IN OUT CMD"},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_GET_CONTEXT}: {name: "DEVICE.GET_CONTEXT",
		attrs: "NUM_COMP_VECTORS CORE_SUPPORT"},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_CONTEXT}: {name: "DEVICE.QUERY_CONTEXT",
		attrs: "NUM_COMP_VECTORS CORE_SUPPORT", driver: "UCTX"},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_PORT}: {name: "DEVICE.QUERY_PORT", attrs: "PORT RESP"},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_GID_TABLE}: {name: "DEVICE.QUERY_GID_TABLE",
		attrs: "ENTRY_SIZE FLAGS ENTRIES NUM_ENTRIES"},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_GID_ENTRY}: {name: "DEVICE.QUERY_GID_ENTRY",
		attrs: "PORT GID_INDEX FLAGS ENTRY"},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_PORT_SPEED}: {name: "DEVICE.QUERY_PORT_SPEED",
		attrs: "PORT RESP"},
	{uapi.UVERBS_OBJECT_ASYNC_EVENT, uapi.UVERBS_METHOD_ASYNC_EVENT_ALLOC}: {name: "ASYNC_EVENT.ALLOC", attrs: "FD"},
	{uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY}:                 {name: "PD.DESTROY", attrs: "HANDLE"},
	{uapi.UVERBS_OBJECT_PD, uapi.MLX5_IB_METHOD_PD_QUERY}:                  {name: "PD.QUERY", driver: "HANDLE RESP_PDN"},
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_MR_DESTROY}:                 {name: "MR.DESTROY", attrs: "HANDLE"},
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_QUERY_MR}: {name: "MR.QUERY",
		attrs: "HANDLE RESP_LKEY RESP_RKEY RESP_LENGTH RESP_IOVA"},
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_ADVISE_MR}: {name: "MR.ADVISE", attrs: "PD ADVICE FLAGS SGE_LIST"},
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_REG_DMABUF_MR}: {name: "MR.REG_DMABUF",
		attrs: "HANDLE PD OFFSET LENGTH IOVA FD ACCESS RESP_LKEY RESP_RKEY"},
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_DM_MR_REG}: {name: "MR.REG_DM",
		attrs: "HANDLE OFFSET LENGTH PD ACCESS DM RESP_LKEY RESP_RKEY"},
	{uapi.UVERBS_OBJECT_MW, uapi.UVERBS_METHOD_MW_DESTROY}: {name: "MW.DESTROY", attrs: "HANDLE"},
	{uapi.UVERBS_OBJECT_DM, uapi.UVERBS_METHOD_DM_ALLOC}: {name: "DM.ALLOC", attrs: "HANDLE LENGTH ALIGNMENT",
		driver: "START_OFFSET PAGE_INDEX"},
	{uapi.UVERBS_OBJECT_DM, uapi.UVERBS_METHOD_DM_FREE}: {name: "DM.FREE", attrs: "HANDLE"},
	{uapi.UVERBS_OBJECT_DM, uapi.MLX5_IB_METHOD_DM_QUERY}: {name: "DM.QUERY",
		driver: "HANDLE START_OFFSET PAGE_INDEX LENGTH"},
	{uapi.UVERBS_OBJECT_DM, uapi.MLX5_IB_METHOD_DM_MAP_OP_ADDR}: {name: "DM.MAP_OP_ADDR",
		driver: "HANDLE OP START_OFFSET PAGE_INDEX"},
	{uapi.UVERBS_OBJECT_AH, uapi.UVERBS_METHOD_AH_DESTROY}:     {name: "AH.DESTROY", attrs: "HANDLE"},
	{uapi.UVERBS_OBJECT_XRCD, uapi.UVERBS_METHOD_XRCD_DESTROY}: {name: "XRCD.DESTROY", attrs: "HANDLE"},
	{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE}: {name: "CQ.CREATE",
		attrs:  "HANDLE CQE USER_HANDLE COMP_CHANNEL COMP_VECTOR FLAGS RESP_CQE EVENT_FD",
		driver: "UHW_IN UHW_OUT UAR_INDEX"},
	{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_DESTROY}: {name: "CQ.DESTROY", attrs: "HANDLE RESP"},
	{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE}: {name: "QP.CREATE",
		attrs: "HANDLE XRCD PD SRQ SEND_CQ RECV_CQ IND_TABLE USER_HANDLE CAP TYPE FLAGS - EVENT_FD RESP_CAP RESP_QPN"},
	{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_DESTROY}: {name: "QP.DESTROY", attrs: "HANDLE RESP"},
	{uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_CREATE}: {name: "SRQ.CREATE",
		attrs: "HANDLE PD XRCD CQ USER_HANDLE MAX_WR MAX_SGE LIMIT - TYPE EVENT_FD RESP_MAX_WR RESP_MAX_SGE RESP_SRQ_NUM"},
	{uapi.UVERBS_OBJECT_SRQ, uapi.UVERBS_METHOD_SRQ_DESTROY}: {name: "SRQ.DESTROY", attrs: "HANDLE RESP"},
	{uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_METHOD_WQ_CREATE}: {name: "WQ.CREATE",
		attrs: "HANDLE PD CQ USER_HANDLE TYPE EVENT_FD MAX_WR MAX_SGE FLAGS RESP_MAX_WR RESP_MAX_SGE RESP_WQN"},
	{uapi.UVERBS_OBJECT_WQ, uapi.UVERBS_METHOD_WQ_DESTROY}:     {name: "WQ.DESTROY", attrs: "HANDLE RESP"},
	{uapi.UVERBS_OBJECT_FLOW, uapi.UVERBS_METHOD_FLOW_DESTROY}: {name: "FLOW.DESTROY", attrs: "HANDLE"},
	{uapi.UVERBS_OBJECT_RWQ_IND_TBL, uapi.UVERBS_METHOD_RWQ_IND_TBL_DESTROY}: {name: "RWQ_IND_TBL.DESTROY",
		attrs: "HANDLE"},

	{uapi.MLX5_IB_OBJECT_DEVX, uapi.MLX5_IB_METHOD_DEVX_OTHER}:     {name: "DEVX.COMMAND", driver: "IN OUT"},
	{uapi.MLX5_IB_OBJECT_DEVX, uapi.MLX5_IB_METHOD_DEVX_QUERY_EQN}: {name: "DEVX.QUERY_EQN", driver: "VECTOR EQN"},
	{uapi.MLX5_IB_OBJECT_DEVX, uapi.MLX5_IB_METHOD_DEVX_SUBSCRIBE_EVENT}: {name: "DEVX.SUBSCRIBE_EVENT",
		driver: "CHANNEL HANDLE TYPES - COOKIE"},
	{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_CREATE}: {name: "DEVX_OBJ.CREATE",
		driver: "HANDLE IN OUT"},
	{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_DESTROY}: {name: "DEVX_OBJ.DESTROY", driver: "HANDLE"},
	{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_MODIFY}: {name: "DEVX_OBJ.MODIFY",
		driver: "HANDLE IN OUT"},
	{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_QUERY}: {name: "DEVX_OBJ.QUERY",
		driver: "HANDLE IN OUT"},
	{uapi.MLX5_IB_OBJECT_DEVX_OBJ, uapi.MLX5_IB_METHOD_DEVX_OBJ_ASYNC_QUERY}: {name: "DEVX_OBJ.ASYNC_QUERY",
		driver: "HANDLE IN FD WR_ID OUT_LEN"},
	{uapi.MLX5_IB_OBJECT_DEVX_UMEM, uapi.MLX5_IB_METHOD_DEVX_UMEM_REG}: {name: "DEVX_UMEM.REG",
		driver: "HANDLE ADDR LEN ACCESS ID"},
	{uapi.MLX5_IB_OBJECT_DEVX_UMEM, uapi.MLX5_IB_METHOD_DEVX_UMEM_DEREG}: {name: "DEVX_UMEM.DEREG", driver: "HANDLE"},
	{uapi.MLX5_IB_OBJECT_DEVX_ASYNC_CMD_FD, uapi.MLX5_IB_METHOD_DEVX_ASYNC_CMD_FD_ALLOC}: {
		name: "DEVX_ASYNC_CMD_FD.ALLOC", driver: "FD"},
	{uapi.MLX5_IB_OBJECT_DEVX_ASYNC_EVENT_FD, uapi.MLX5_IB_METHOD_DEVX_ASYNC_EVENT_FD_ALLOC}: {
		name: "DEVX_ASYNC_EVENT_FD.ALLOC", driver: "FD FLAGS"},
	{uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_ALLOC}: {name: "UAR.ALLOC",
		driver: "HANDLE TYPE MMAP_OFFSET MMAP_LENGTH PAGE_ID"},
	{uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_DESTROY}: {name: "UAR.DESTROY", driver: "HANDLE"},
	{ofBnxt | uapi.BNXT_RE_OBJECT_ALLOC_PAGE, uapi.BNXT_RE_METHOD_ALLOC_PAGE}: {name: "PAGE.ALLOC",
		driver: "HANDLE TYPE DPI MMAP_OFFSET MMAP_LENGTH"},
	{ofBnxt | uapi.BNXT_RE_OBJECT_ALLOC_PAGE, uapi.BNXT_RE_METHOD_DESTROY_PAGE}: {name: "PAGE.DESTROY", driver: "HANDLE"},
	{ofBnxt | uapi.BNXT_RE_OBJECT_NOTIFY_DRV, uapi.BNXT_RE_METHOD_NOTIFY_DRV}:   {name: "PACING.NOTIFY", driver: "-"},
	{ofBnxt | uapi.BNXT_RE_OBJECT_GET_TOGGLE_MEM, uapi.BNXT_RE_METHOD_GET_TOGGLE_MEM}: {name: "TOGGLE_MEM.GET",
		driver: "HANDLE TYPE RES_ID MMAP_PAGE MMAP_OFFSET MMAP_LENGTH"},
	{ofBnxt | uapi.BNXT_RE_OBJECT_GET_TOGGLE_MEM, uapi.BNXT_RE_METHOD_RELEASE_TOGGLE_MEM}: {name: "TOGGLE_MEM.DESTROY",
		driver: "HANDLE"},
}

const invokeWrite = "INVOKE_WRITE"

// writeNames are the names of the legacy commands, in the order of their numbers.
var writeNames = strings.Fields(`
	GET_CONTEXT QUERY_DEVICE QUERY_PORT ALLOC_PD DEALLOC_PD CREATE_AH MODIFY_AH QUERY_AH DESTROY_AH REG_MR
	REG_SMR REREG_MR QUERY_MR DEREG_MR ALLOC_MW BIND_MW DEALLOC_MW CREATE_COMP_CHANNEL CREATE_CQ RESIZE_CQ
	DESTROY_CQ POLL_CQ PEEK_CQ REQ_NOTIFY_CQ CREATE_QP QUERY_QP MODIFY_QP DESTROY_QP POST_SEND POST_RECV
	ATTACH_MCAST DETACH_MCAST CREATE_SRQ MODIFY_SRQ QUERY_SRQ DESTROY_SRQ POST_SRQ_RECV OPEN_XRCD CLOSE_XRCD
	CREATE_XSRQ OPEN_QP - - - - - - - - - CREATE_FLOW DESTROY_FLOW CREATE_WQ MODIFY_WQ DESTROY_WQ
	CREATE_RWQ_IND_TBL DESTROY_RWQ_IND_TBL MODIFY_CQ
`)

func writeName(cmd uint64) string {
	number := cmd &^ uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED
	switch {
	case number >= uint64(len(writeNames)) || writeNames[number] == "-":
		return fmt.Sprintf("command %#x", cmd)
	case number != cmd:
		return writeNames[number] + "_EX"
	}
	return writeNames[number]
}
