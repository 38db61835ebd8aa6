package rxe

import (
	"testing"
	"unsafe"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// TestLayout compares the word structs with the kernel's structs, and both with numbers.
func TestLayout(t *testing.T) {
	var (
		s  sendWQE
		ks uapi.RxeSendWqe
		r  recvWQE
		kr uapi.RxeRecvWqe
		q  uapi.RxeQueueBuf
		g  uverbs.SGE
		kg uapi.RxeSge
		a  uapi.RxeAtomicWr
		ud uapi.RxeUdWr
	)
	const wr = unsafe.Offsetof(ks.Wr) + unsafe.Offsetof(ks.Wr.Wr)
	for _, c := range []struct {
		name            string
		got, abi, plain uintptr
	}{
		{"send wr_id", unsafe.Offsetof(s.wrID), unsafe.Offsetof(ks.Wr) + unsafe.Offsetof(ks.Wr.WrId), 0},
		{"send opcode", unsafe.Offsetof(s.opcode) + 4, unsafe.Offsetof(ks.Wr.Opcode), 12},
		{"send flags", unsafe.Offsetof(s.flags), unsafe.Offsetof(ks.Wr.SendFlags), 16},
		{"send ex", unsafe.Offsetof(s.flags) + 4, unsafe.Offsetof(ks.Wr.Ex), 20},
		{"send raddr", unsafe.Offsetof(s.raddr), wr, 24},
		{"send rkey", unsafe.Offsetof(s.rkey), wr + unsafe.Offsetof(uapi.RxeRdmaWr{}.Rkey), 32},
		{"send operands", unsafe.Offsetof(s.operands), wr + unsafe.Offsetof(a.Swap), 40},
		{"send operands end", unsafe.Offsetof(s.operands) + unsafe.Sizeof(s.operands), wr + unsafe.Sizeof(a), 56},
		{"send remote_qpn", unsafe.Offsetof(s.raddr), wr + unsafe.Offsetof(ud.RemoteQpn), 24},
		{"send remote_qkey", unsafe.Offsetof(s.raddr) + 4, wr + unsafe.Offsetof(ud.RemoteQkey), 28},
		{"send pkey_index", unsafe.Offsetof(s.rkey), wr + unsafe.Offsetof(ud.PkeyIndex), 32},
		{"send ah_num", unsafe.Offsetof(s.rkey) + 4, wr + unsafe.Offsetof(ud.AhNum), 36},
		{"send av end", unsafe.Offsetof(s.status), wr + unsafe.Offsetof(ud.Av) + unsafe.Sizeof(ud.Av), 144},
		{"send status", unsafe.Offsetof(s.status), unsafe.Offsetof(ks.Status), 144},
		{"send state", unsafe.Offsetof(s.status) + 4, unsafe.Offsetof(ks.State), 148},
		{"send iova", unsafe.Offsetof(s.iova), unsafe.Offsetof(ks.Iova), 152},
		{"send mask", unsafe.Offsetof(s.progress), unsafe.Offsetof(ks.Mask), 160},
		{"send has_rd_atomic", unsafe.Offsetof(s.progress) + 20, unsafe.Offsetof(ks.HasRdAtomic), 180},
		{"send length", unsafe.Offsetof(s.length), unsafe.Offsetof(ks.Dma) + unsafe.Offsetof(ks.Dma.Length), 184},
		{"send resid", unsafe.Offsetof(s.length) + 4, unsafe.Offsetof(ks.Dma) + unsafe.Offsetof(ks.Dma.Resid), 188},
		{"send cur_sge", unsafe.Offsetof(s.sgeCount), unsafe.Offsetof(ks.Dma) + unsafe.Offsetof(ks.Dma.CurSge), 192},
		{"send num_sge", unsafe.Offsetof(s.sgeCount) + 4, unsafe.Offsetof(ks.Dma) + unsafe.Offsetof(ks.Dma.NumSge), 196},
		{"send sge_offset", unsafe.Offsetof(s.offset), unsafe.Offsetof(ks.Dma) + unsafe.Offsetof(ks.Dma.SgeOffset), 200},
		{"send size", unsafe.Sizeof(s), unsafe.Sizeof(ks), 208},

		{"recv wr_id", unsafe.Offsetof(r.wrID), unsafe.Offsetof(kr.WrId), 0},
		{"recv length", unsafe.Offsetof(r.length), unsafe.Offsetof(kr.Dma), 16},
		{"recv num_sge", unsafe.Offsetof(r.sgeCount) + 4, unsafe.Offsetof(kr.Dma) + unsafe.Offsetof(kr.Dma.NumSge), 28},
		{"recv size", unsafe.Sizeof(r), unsafe.Sizeof(kr), 40},

		{"log2_elem_size", offLog2Size, unsafe.Offsetof(q.Log2ElemSize), 0},
		{"index_mask", offMask, unsafe.Offsetof(q.IndexMask), 4},
		{"producer_index", offProducer, unsafe.Offsetof(q.ProducerIndex), 128},
		{"consumer_index", offConsumer, unsafe.Offsetof(q.ConsumerIndex), 256},
		{"data", offElements, unsafe.Sizeof(q), 384},

		{"sge addr", unsafe.Offsetof(g.Addr), unsafe.Offsetof(kg.Addr), 0},
		{"sge length", unsafe.Offsetof(g.Length), unsafe.Offsetof(kg.Length), 8},
		{"sge lkey", unsafe.Offsetof(g.LKey), unsafe.Offsetof(kg.Lkey), 12},
		{"sge size", unsafe.Sizeof(g), unsafe.Sizeof(kg), 16},
		{"cqe size", uintptr(cqeSize), unsafe.Sizeof(uapi.IbUverbsWc{}), 48},
	} {
		if c.got != c.abi || c.got != c.plain {
			t.Errorf("%s at %d, in the ABI at %d, expected %d", c.name, c.got, c.abi, c.plain)
		}
	}
}

// offered returns the memory where MODIFY_SRQ lets the kernel write the offer of a
// ring.
func offered(uhwIn []byte) *uapi.Mminfo {
	return *(**uapi.Mminfo)(unsafe.Pointer(&uhwIn[0]))
}
