package mlx5

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A proxied describes how gVisor's rdmaproxy forwards an attribute. The proxy forwards a command if its tables contain
// the method and each attribute (pkg/sentry/devices/rdmaproxy schema.go, ioctl.go and cxproxy, of 21 August 2026).
type proxied uint8

const (
	proxyIn      proxied = 1 + iota // a value of up to 8 bytes, or an address
	proxyOut                        // an address
	proxyInline                     // a value of up to 8 bytes
	proxyHandle                     // no bytes
	proxyFD                         // an asynchronous event file only
	proxyNewFD                      // no bytes
	proxyRefuses                    // known, and rejected
)

func handle(id uint16) map[uint16]proxied { return map[uint16]proxied{id: proxyHandle} }

func withReply(id, reply uint16) map[uint16]proxied {
	return map[uint16]proxied{id: proxyHandle, reply: proxyOut}
}

// several returns others with the attributes from first to last added, all of one kind.
func several(kind proxied, first, last uint16, others map[uint16]proxied) map[uint16]proxied {
	for id := first; id <= last; id++ {
		if _, there := others[id]; !there {
			others[id] = kind
		}
	}
	return others
}

const uhwIn, uhwOut = uapi.UVERBS_ATTR_UHW_IN, uapi.UVERBS_ATTR_UHW_OUT

// proxyList has the commands that the proxy forwards to mlx5, by object and method.
var proxyList = map[[2]uint16]map[uint16]proxied{
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_INVOKE_WRITE}: {
		uapi.UVERBS_ATTR_CORE_IN:   proxyIn,
		uapi.UVERBS_ATTR_CORE_OUT:  proxyOut,
		uapi.UVERBS_ATTR_WRITE_CMD: proxyInline,
		uhwIn:                      proxyIn,
		uhwOut:                     proxyOut,
	},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_GET_CONTEXT}: {
		uapi.UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS: proxyOut,
		uapi.UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT:     proxyOut,
		2:      proxyRefuses, // an array of descriptors
		uhwIn:  proxyIn,
		uhwOut: proxyOut,
	},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_CONTEXT}: {
		uapi.UVERBS_ATTR_QUERY_CONTEXT_NUM_COMP_VECTORS: proxyOut,
		uapi.UVERBS_ATTR_QUERY_CONTEXT_CORE_SUPPORT:     proxyOut,
	},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_PORT}: {
		uapi.UVERBS_ATTR_QUERY_PORT_PORT_NUM: proxyIn,
		uapi.UVERBS_ATTR_QUERY_PORT_RESP:     proxyOut,
	},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_GID_TABLE}: {
		uapi.UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE:       proxyIn,
		uapi.UVERBS_ATTR_QUERY_GID_TABLE_FLAGS:            proxyIn,
		uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES:     proxyOut,
		uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES: proxyOut,
	},
	{uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_GID_ENTRY}: {
		uapi.UVERBS_ATTR_QUERY_GID_ENTRY_PORT:       proxyIn,
		uapi.UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX:  proxyIn,
		uapi.UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS:      proxyIn,
		uapi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY: proxyOut,
	},
	{uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY}: handle(uapi.UVERBS_ATTR_DESTROY_PD_HANDLE),
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_MR_DESTROY}: handle(uapi.UVERBS_ATTR_DESTROY_MR_HANDLE),
	{uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_REG_DMABUF_MR}: several(
		proxyIn,
		uapi.UVERBS_ATTR_REG_DMABUF_MR_OFFSET,
		uapi.UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS,
		map[uint16]proxied{
			uapi.UVERBS_ATTR_REG_DMABUF_MR_HANDLE:    proxyHandle,
			uapi.UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE: proxyHandle,
			uapi.UVERBS_ATTR_REG_DMABUF_MR_FD:        proxyInline,
			uapi.UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY: proxyOut,
			uapi.UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY: proxyOut,
		},
	),
	{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_CREATE}: several(
		proxyIn,
		uapi.UVERBS_ATTR_CREATE_CQ_CQE,
		uapi.UVERBS_ATTR_CREATE_CQ_FLAGS,
		several(
			proxyRefuses,
			8,
			12, // memory of other kinds
			map[uint16]proxied{
				uapi.UVERBS_ATTR_CREATE_CQ_HANDLE:       proxyHandle,
				uapi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL: proxyFD,
				uapi.UVERBS_ATTR_CREATE_CQ_RESP_CQE:     proxyOut,
				uapi.UVERBS_ATTR_CREATE_CQ_EVENT_FD:     proxyFD,
				uhwIn:                                   proxyIn,
				uhwOut:                                  proxyOut,
			},
		),
	),
	{uapi.UVERBS_OBJECT_CQ, uapi.UVERBS_METHOD_CQ_DESTROY}: withReply(
		uapi.UVERBS_ATTR_DESTROY_CQ_HANDLE,
		uapi.UVERBS_ATTR_DESTROY_CQ_RESP,
	),
	{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_CREATE}: several(
		proxyHandle,
		uapi.UVERBS_ATTR_CREATE_QP_HANDLE,
		uapi.UVERBS_ATTR_CREATE_QP_IND_TABLE_HANDLE,
		several(
			proxyIn,
			uapi.UVERBS_ATTR_CREATE_QP_USER_HANDLE,
			11, // of the number that an underlay has
			several(
				proxyRefuses,
				15,
				17, // memory of other kinds
				map[uint16]proxied{
					uapi.UVERBS_ATTR_CREATE_QP_EVENT_FD:    proxyFD,
					uapi.UVERBS_ATTR_CREATE_QP_RESP_CAP:    proxyOut,
					uapi.UVERBS_ATTR_CREATE_QP_RESP_QP_NUM: proxyOut,
					uhwIn:                                  proxyIn,
					uhwOut:                                 proxyOut,
				},
			),
		),
	),
	{uapi.UVERBS_OBJECT_QP, uapi.UVERBS_METHOD_QP_DESTROY}: withReply(
		uapi.UVERBS_ATTR_DESTROY_QP_HANDLE,
		uapi.UVERBS_ATTR_DESTROY_QP_RESP,
	),
	{uapi.UVERBS_OBJECT_ASYNC_EVENT, uapi.UVERBS_METHOD_ASYNC_EVENT_ALLOC}: {
		uapi.UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE: proxyNewFD,
	},
	{uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_ALLOC}: {
		uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE:      proxyHandle,
		uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE:        proxyIn,
		uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET: proxyOut,
		uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH: proxyOut,
		uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID:     proxyOut,
	},
	{uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_DESTROY}: handle(uapi.MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE),
}

// unproxied are the commands and attributes that the proxy does not forward correctly, with the
// feature that a program must do without. An attribute is named after its method.
var unproxied = map[string]string{
	"SRQ.CREATE":          "shared receive queues: it has no such method, for it mirrors the memory of CQs and QPs alone",
	"SRQ.DESTROY":         "the same",
	"XRCD.DESTROY":        "XRC: it has no such method",
	"AH.DESTROY":          "datagrams: it has no such method",
	"DM.ALLOC":            "device memory: it has no such method",
	"DM.FREE":             "the same",
	"DM.QUERY":            "the same",
	"DM.MAP_OP_ADDR":      "the same",
	"MR.REG_DM":           "the same",
	"MW.DESTROY":          "memory windows: it has no such method",
	"WQ.CREATE":           "work queues, as SRQs",
	"WQ.DESTROY":          "the same",
	"RWQ_IND_TBL.DESTROY": "the same",
	"FLOW.DESTROY":        "raw packets: it has no such method, and does not mirror their QPs' second ring",
	"MR.ADVISE":           "advice on memory that is paged on demand: it pins all",
	"MR.QUERY":            "importing: contexts are shared among no processes of a sandbox",
	"PD.QUERY":            "the same",

	"DEVICE.QUERY_PORT_SPEED": "speeds above those that QUERY_PORT tells",

	"DEVICE.QUERY_CONTEXT 0x1000": "importing",
	"CQ.CREATE 0x3":               "completion channels: CQConfig.NoEvents leaves them out",

	"CREATE_COMP_CHANNEL": "completion channels: the descriptor that is answered is the sentry's",
	"RESIZE_CQ":           "CQ.Resize: the new ring's address passes as it is, and is the sentry's to the kernel",
	"REREG_MR":            "MR.Rereg with ReregTranslation: so does the new memory's",
}

// unmirrored are legacy commands that contain addresses or descriptors. The proxy replaces only
// those of REG_MR.
var unmirrored = map[uint64]string{uapi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL: "CREATE_COMP_CHANNEL",
	uapi.IB_USER_VERBS_CMD_RESIZE_CQ: "RESIZE_CQ", uapi.IB_USER_VERBS_CMD_REREG_MR: "REREG_MR"}

// proxies returns the parts of a command that the proxy does not accept.
func proxies(c ioctl.Call) (bad []string) {
	h := c.Header()
	name, _, _ := strings.Cut(c.String(), "(")
	list, known := proxyList[[2]uint16{h.ObjectId, h.MethodId}]
	if !known {
		return []string{name}
	}
	if h.ObjectId == uapi.UVERBS_OBJECT_DEVICE && h.MethodId == uapi.UVERBS_METHOD_INVOKE_WRITE {
		if addresses := unmirrored[call.Num(c, uapi.UVERBS_ATTR_WRITE_CMD)]; addresses != "" {
			bad = append(bad, addresses)
		}
	}
	for _, a := range c.Attrs() {
		ok := false
		switch list[a.AttrId] {
		case proxyIn:
			ok = true
		case proxyOut:
			ok = a.Len > 0
		case proxyInline:
			ok = a.Len <= 8
		case proxyHandle, proxyNewFD:
			ok = a.Len == 0
		case proxyFD:
			ok = a.Len == 0 && a.AttrId != uapi.UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL
		}
		if !ok {
			bad = append(bad, fmt.Sprintf("%s %#x", name, a.AttrId))
		}
	}
	return bad
}

// TestProxied checks that the commands and attributes for mlx5_ib that the proxy does not accept are exactly those in
// unproxied.
func TestProxied(t *testing.T) {
	seen := map[string]bool{}
	everyCommand(t, func(s *soft) {
		s.OnCommand = func(c ioctl.Call) {
			for _, bad := range proxies(c) {
				if seen[bad] = true; unproxied[bad] == "" {
					t.Errorf("gVisor's proxy does not take %s: find another way, or list what is done without", bad)
				}
			}
		}
	})
	for _, bad := range slices.Sorted(maps.Keys(unproxied)) {
		if !seen[bad] {
			t.Errorf("%s is listed as what gVisor's proxy does not take, and was not sent, or would be taken", bad)
		}
	}
}

// TestProxiedProgram checks that a program that sends, reads and writes on an RC queue pair, and polls, uses only
// commands that the proxy accepts.
func TestProxiedProgram(t *testing.T) {
	k := standard()
	s := newSoft(t, k)
	s.OnCommand = func(c ioctl.Call) {
		if bad := proxies(c); bad != nil {
			t.Errorf("%v of %v", bad, c)
		}
	}
	d := &desk{s: s, c: s.open(k)}
	good(d.c.QueryDevice())(t)
	good(d.c.GIDs(1))(t)
	d.pd = good(d.c.AllocPD())(t)
	d.mr = good(d.pd.Alloc(4096, allAccess))(t)
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15, NoEvents: true}))(t)
	q := d.loop(t, uverbs.QPConfig{SendCQ: cq})
	good(q.Query(uverbs.MaskState))(t)
	d.write(t, q, 1)
	poll(t, cq, 1)
	check(t, q.Close())
	check(t, cq.Close())
	check(t, d.mr.Close())
	check(t, d.pd.Close())
}
