package foreign_test

import (
	"cmp"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
)

// Random commands, of which many are well formed, end in an errno or do what they say. Nothing remains of them.
func TestRandomCommands(t *testing.T) {
	methods := slices.SortedFunc(maps.Keys(ioctltest.Rules), func(a, b ioctltest.Method) int {
		return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Method, b.Method))
	})
	for seed := range uint64(4) {
		s := start(t)
		r := &random{rand.New(rand.NewPCG(seed, 0)), open(t, s), map[string]int{}, nil, map[string][]uint64{}}
		for range 6000 {
			m := methods[r.IntN(len(methods))]
			if r.wanted = nil; r.IntN(4) == 0 {
				m = ioctltest.Method{Object: uapi.UVERBS_OBJECT_QP, Method: uapi.UVERBS_METHOD_QP_CREATE}
				r.wanted = map[uint16]string{uapi.UVERBS_ATTR_CREATE_QP_PD_HANDLE: "ALLOC_PD",
					uapi.UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE: "CQ", uapi.UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE: "CQ"}
			}
			r.command(m)
		}
		for _, name := range []string{"ALLOC_PD", "CQ", "QP", "REG_MR", "MODIFY_QP", "UAR"} {
			if r.done[name] == 0 {
				t.Errorf("seed %d: no %s has succeeded: %v", seed, name, r.done)
			}
		}
		must(t, r.conn.Close())
		idle(t, s)
	}
}

// random issues random commands.
type random struct {
	*rand.Rand
	*client
	done   map[string]int
	wanted map[uint16]string   // attributes that the next command has, mostly with a handle of the kind
	live   map[string][]uint64 // handles by kind
}

// A write is a command that INVOKE_WRITE carries.
type write struct {
	name    string
	number  uint64
	in, out int
}

func sized[In, Out any](name string, number uint64) write {
	return write{name, number, ioctl.SizeOf[In](), ioctl.SizeOf[Out]()}
}

const extended = uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED

var writes = []write{
	sized[uapi.IbUverbsAllocPd, uapi.IbUverbsAllocPdResp]("ALLOC_PD", uapi.IB_USER_VERBS_CMD_ALLOC_PD),
	sized[uapi.IbUverbsAllocMw, uapi.IbUverbsAllocMwResp]("ALLOC_MW", uapi.IB_USER_VERBS_CMD_ALLOC_MW),
	sized[uapi.IbUverbsRegMr, uapi.IbUverbsRegMrResp]("REG_MR", uapi.IB_USER_VERBS_CMD_REG_MR),
	sized[uapi.IbUverbsReregMr, uapi.IbUverbsReregMrResp]("REREG_MR", uapi.IB_USER_VERBS_CMD_REREG_MR),
	sized[uapi.IbUverbsCreateCompChannel, uapi.IbUverbsCreateCompChannelResp]("CREATE_COMP_CHANNEL",
		uapi.IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL),
	sized[uapi.IbUverbsResizeCq, uapi.IbUverbsResizeCqResp]("RESIZE_CQ", uapi.IB_USER_VERBS_CMD_RESIZE_CQ),
	sized[uapi.IbUverbsQueryQp, uapi.IbUverbsQueryQpResp]("QUERY_QP", uapi.IB_USER_VERBS_CMD_QUERY_QP),
	sized[uapi.IbUverbsModifyQp, ioctl.Void]("MODIFY_QP", uapi.IB_USER_VERBS_CMD_MODIFY_QP),
	sized[uapi.IbUverbsCreateAh, uapi.IbUverbsCreateAhResp]("CREATE_AH", uapi.IB_USER_VERBS_CMD_CREATE_AH),
	sized[uapi.IbUverbsAttachMcast, ioctl.Void]("ATTACH_MCAST", uapi.IB_USER_VERBS_CMD_ATTACH_MCAST),
	sized[uapi.IbUverbsDetachMcast, ioctl.Void]("DETACH_MCAST", uapi.IB_USER_VERBS_CMD_DETACH_MCAST),
	sized[uapi.IbUverbsModifySrq, ioctl.Void]("MODIFY_SRQ", uapi.IB_USER_VERBS_CMD_MODIFY_SRQ),
	sized[uapi.IbUverbsQuerySrq, uapi.IbUverbsQuerySrqResp]("QUERY_SRQ", uapi.IB_USER_VERBS_CMD_QUERY_SRQ),
	sized[uapi.IbUverbsOpenXrcd, uapi.IbUverbsOpenXrcdResp]("OPEN_XRCD", uapi.IB_USER_VERBS_CMD_OPEN_XRCD),
	sized[uapi.IbUverbsOpenQp, uapi.IbUverbsCreateQpResp]("OPEN_QP", uapi.IB_USER_VERBS_CMD_OPEN_QP),
	sized[uapi.IbUverbsExModifyQp, uapi.IbUverbsExModifyQpResp]("MODIFY_QP_EX",
		uapi.IB_USER_VERBS_EX_CMD_MODIFY_QP|extended),
	sized[uapi.IbUverbsExModifyWq, ioctl.Void]("MODIFY_WQ_EX", uapi.IB_USER_VERBS_EX_CMD_MODIFY_WQ|extended),
	sized[uapi.IbUverbsCreateFlow, uapi.IbUverbsCreateFlowResp]("CREATE_FLOW_EX",
		uapi.IB_USER_VERBS_EX_CMD_CREATE_FLOW|extended),
	sized[uapi.IbUverbsExCreateRwqIndTable, uapi.IbUverbsExCreateRwqIndTableResp]("CREATE_RWQ_IND_TBL_EX",
		uapi.IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL|extended),
}

// command issues a random command, which often is of a method.
func (r *random) command(m ioctltest.Method) {
	name := ""
	var attrs []uapi.IbUverbsAttr
	w := writes[r.IntN(len(writes))]
	if w.name == "ALLOC_PD" && r.done[w.name] > 1 && r.IntN(50) > 0 {
		w = writes[r.IntN(len(writes))] // else most of the low handles are PDs
	}
	carried := m == ioctltest.Method{Object: uapi.UVERBS_OBJECT_DEVICE, Method: uapi.UVERBS_METHOD_INVOKE_WRITE} ||
		r.IntN(2) == 0
	if carried {
		name = w.name
		m = ioctltest.Method{Object: uapi.UVERBS_OBJECT_DEVICE, Method: uapi.UVERBS_METHOD_INVOKE_WRITE}
		in := r.data(uapi.UVERBS_ATTR_CORE_IN, w.in)
		if w.name == "REG_MR" && r.IntN(4) > 0 {
			at := addressOf(r.memory) + uint64(r.IntN(1<<19))
			copy(r.memory[in.Data-addressOf(r.memory):], ioctl.BytesOf(&uapi.IbUverbsRegMr{Start: at, HcaVa: at,
				Length: uint64(r.IntN(1 << 19)), PdHandle: uint32(r.IntN(8)), AccessFlags: uint32(r.IntN(16))}))
		}
		if w.name == "MODIFY_QP" && r.IntN(2) == 0 { // from RESET to INIT, or to an error
			const initial = 1<<0 | 1<<3 | 1<<4 | 1<<5 // state, access, P_Key, port
			q := uapi.IbUverbsModifyQp{QpHandle: uint32(r.handle("QP")), AttrMask: initial, QpState: 1, PortNum: 1}
			if r.IntN(3) == 0 {
				q.AttrMask, q.QpState = 1, uint8(r.IntN(7))
			}
			copy(r.memory[in.Data-addressOf(r.memory):], ioctl.BytesOf(&q))
		}
		attrs = append(attrs, uapi.IbUverbsAttr{AttrId: uapi.UVERBS_ATTR_WRITE_CMD, Len: 8, Data: w.number},
			in, r.data(uapi.UVERBS_ATTR_CORE_OUT, w.out))
	} else {
		for _, id := range slices.Sorted(maps.Keys(ioctltest.Rules[m])) {
			attrs = r.attr(attrs, id, ioctltest.Rules[m][id])
		}
		switch m.Object {
		case uapi.UVERBS_OBJECT_CQ:
			name = "CQ"
		case uapi.UVERBS_OBJECT_QP:
			name = "QP"
		case uapi.MLX5_IB_OBJECT_UAR:
			name = "UAR"
		}
	}
	if m.Object < uapi.UVERBS_ATTR_UHW_IN {
		attrs = append(attrs, r.driverInput(m), r.data(uapi.UVERBS_ATTR_UHW_OUT, 16+8*r.IntN(8)))
	}
	if r.issue(m, attrs) {
		r.done[name]++
		r.created(name, m, attrs)
	}
}

// created notes the handle of an object that a command has created.
func (r *random) created(name string, m ioctltest.Method, attrs []uapi.IbUverbsAttr) {
	if name == "ALLOC_PD" {
		at := attrs[2].Data - addressOf(r.memory)
		r.live[name] = append(r.live[name], uint64(binary.NativeEndian.Uint32(r.memory[at:])))
	}
	for i, a := range attrs {
		if c, _ := ioctltest.ClassOf(uapi.RDMA_DRIVER_MLX5, m.Object, m.Method, a.AttrId); c == ioctltest.New {
			r.live[name] = append(r.live[name], binary.NativeEndian.Uint64(r.memory[24+16*i+8:]))
		}
	}
}

// handle returns a handle, mostly of a kind.
func (r *random) handle(kind string) uint64 {
	if live := r.live[kind]; len(live) > 0 && r.IntN(10) > 0 {
		return live[r.IntN(len(live))]
	}
	return uint64(r.IntN(16))
}

// driverInput returns the driver's part of a command. Mostly it is well formed.
func (r *random) driverInput(m ioctltest.Method) uapi.IbUverbsAttr {
	buffer := addressOf(r.memory) + 4096*uint64(16+r.IntN(200))
	record := addressOf(r.memory) + 4096*15 + 64*uint64(r.IntN(64))
	var b []byte
	switch {
	case r.IntN(4) == 0:
	case m == ioctltest.Method{Object: uapi.UVERBS_OBJECT_CQ, Method: uapi.UVERBS_METHOD_CQ_CREATE}:
		b = ioctl.BytesOf(&uapi.Mlx5IbCreateCq{BufAddr: buffer, DbAddr: record, CqeSize: 64 << r.IntN(2),
			Flags: uapi.MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX})
	case m == ioctltest.Method{Object: uapi.UVERBS_OBJECT_QP, Method: uapi.UVERBS_METHOD_QP_CREATE}:
		b = ioctl.BytesOf(&uapi.Mlx5IbCreateQp{BufAddr: buffer, DbAddr: record, SqWqeCount: 1 << r.IntN(8),
			RqWqeCount: 1 << r.IntN(8), RqWqeShift: uint32(4 + r.IntN(3)), BfregIndex: uint32(r.IntN(100)),
			Flags: uint32(r.IntN(2)) * uapi.MLX5_QP_FLAG_SCATTER_CQE})
	case m == ioctltest.Method{Object: uapi.UVERBS_OBJECT_SRQ, Method: uapi.UVERBS_METHOD_SRQ_CREATE}:
		b = ioctl.BytesOf(&uapi.Mlx5IbCreateSrq{BufAddr: buffer, DbAddr: record})
	}
	a := r.data(uapi.UVERBS_ATTR_UHW_IN, max(8*r.IntN(16), len(b)))
	if len(b) > 0 {
		a.Len = uint16(len(b))
		copy(r.memory[a.Data-addressOf(r.memory):], b)
	}
	return a
}

// attr appends an attribute that fits a rule, mostly.
func (r *random) attr(attrs []uapi.IbUverbsAttr, id uint16, rule ioctltest.Rule) []uapi.IbUverbsAttr {
	often := rule.Class == ioctltest.In || rule.Class == ioctltest.Out
	if live := r.live[r.wanted[id]]; r.wanted[id] != "" && len(live) > 0 && r.IntN(20) > 0 {
		return append(attrs, uapi.IbUverbsAttr{AttrId: id, Data: live[r.IntN(len(live))]})
	}
	if !rule.Must && (often && r.IntN(2) == 0 || !often && r.IntN(8) > 0) || r.IntN(100) == 0 {
		return attrs
	}
	switch rule.Class {
	case ioctltest.In, ioctltest.Out:
		n := rule.Min
		if r.IntN(30) == 0 {
			n = r.IntN(200)
		}
		return append(attrs, r.data(id, n))
	}
	return append(attrs, uapi.IbUverbsAttr{AttrId: id, Data: uint64(r.IntN(8))})
}

// data returns an attribute of n bytes in the memory of the program, which are random numbers, most of them small, and
// addresses.
func (r *random) data(id uint16, n int) uapi.IbUverbsAttr {
	at := 4096 + 8*r.IntN(2048)
	for i := 0; i < n; i += 8 {
		var x uint64
		switch r.IntN(6) {
		case 0:
			x = r.Uint64() >> r.IntN(64)
		case 1:
			x = addressOf(r.memory) + uint64(8*r.IntN(1<<17))
		case 2, 3:
			x = uint64(r.IntN(8)) | uint64(r.IntN(8))<<32
		default:
			x = uint64(r.IntN(8))
		}
		binary.NativeEndian.PutUint64(r.memory[at+i:], x)
	}
	a := uapi.IbUverbsAttr{AttrId: id, Len: uint16(n), Data: addressOf(r.memory) + uint64(at)}
	if n <= 8 && r.IntN(20) > 0 {
		a.Data = uint64(r.IntN(8))
	}
	return a
}

// issue issues a command, and reports whether it succeeds.
func (r *random) issue(m ioctltest.Method, attrs []uapi.IbUverbsAttr) bool {
	h := uapi.IbUverbsIoctlHdr{Length: uint16(24 + 16*len(attrs)), ObjectId: m.Object, MethodId: m.Method,
		NumAttrs: uint16(len(attrs)), DriverId: uapi.RDMA_DRIVER_MLX5}
	b := append([]byte(nil), ioctl.BytesOf(&h)...)
	for i := range attrs {
		c, known := ioctltest.ClassOf(uapi.RDMA_DRIVER_MLX5, m.Object, m.Method, attrs[i].AttrId)
		if known && c == ioctltest.Out {
			attrs[i].Data = addressOf(r.memory) + uint64(32<<10+8*r.IntN(1024))
		}
		b = append(b, ioctl.BytesOf(&attrs[i])...)
	}
	copy(r.memory, b)
	errno, _ := r.call(opIoctl, addressOf(r.memory), 0, nil)
	return errno == 0
}
