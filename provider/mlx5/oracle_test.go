package mlx5

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/sim/providertest"
	"github.com/goverbs/goverbs/uverbs"
)

// An oracle writes requests in the simplest way, byte after byte and without a ring. The encoder must write the same
// bytes.
type oracle struct {
	qpn       uint32
	signalAll bool
	fence     byte // flags that the next request must have
}

var oracleOpcodes = map[uverbs.Opcode]uint32{uverbs.OpWrite: 8, uverbs.OpWriteImm: 9, uverbs.OpSend: 0xa,
	uverbs.OpSendImm: 0xb, uverbs.OpRead: 0x10, uverbs.OpCompareSwap: 0x11, uverbs.OpFetchAdd: 0x12,
	uverbs.OpLocalInv: 0x25, uverbs.OpBindMW: 0x25, uverbs.OpSendInv: 1, uverbs.OpTSO: 0xe}

// TestEveryOperation checks that the oracle and batches know every operation that the provider has, and that it has
// all but those that no adapter has.
func TestEveryOperation(t *testing.T) {
	missing := map[uverbs.Opcode]bool{uverbs.OpFlush: true, uverbs.OpAtomicWrite: true}
	d := newDesk(t, standard())
	q := d.loop(t, uverbs.QPConfig{SendCQ: good(d.c.CreateCQ(uverbs.CQConfig{Entries: 64}))(t)})
	for op := range uverbs.Opcode(driver.Opcodes) {
		if driver.OperationOf(op) == nil {
			continue
		}
		hw := hwOpcodes[op]
		if missing[op] != (hw == 0) || oracleOpcodes[op] != uint32(hw) {
			t.Errorf("the opcode of %v is %#x, and %#x according to the oracle", op, hw, oracleOpcodes[op])
		}
		b := q.StartSend()
		if err := providertest.Add(&b, &uverbs.SendWR{Opcode: op, Bind: &uverbs.MWBind{}}); err != nil {
			t.Error(err)
		}
		b.Abort()
	}
}

// wqe returns the request that begins at block index.
func (o *oracle) wqe(index uint32, wr *uverbs.SendWR, av []byte, bind *driver.Bind) []byte {
	be := binary.BigEndian
	body := append([]byte(nil), av...)
	switch wr.Opcode {
	case uverbs.OpWrite, uverbs.OpWriteImm, uverbs.OpRead, uverbs.OpCompareSwap, uverbs.OpFetchAdd:
		body = be.AppendUint32(be.AppendUint32(be.AppendUint64(body, wr.RemoteAddr), wr.RKey), 0)
	}
	var tail uint32
	var next byte
	switch wr.Opcode {
	case uverbs.OpWriteImm, uverbs.OpSendImm:
		tail = wr.Imm
	case uverbs.OpSendInv:
		tail = wr.InvalidateRKey
	case uverbs.OpCompareSwap:
		body = be.AppendUint64(be.AppendUint64(body, wr.Swap), wr.CompareAdd)
	case uverbs.OpFetchAdd:
		body = be.AppendUint64(be.AppendUint64(body, wr.CompareAdd), 0)
	case uverbs.OpTSO:
		body = append(body, 0, 0, 0, 0, byte(wr.Flags&driver.SendIPCsum>>4*0xc0), 0)
		body = append(be.AppendUint16(body, wr.MSS), 0, 0, 0, 0)
		body = append(be.AppendUint16(body, uint16(len(wr.Inline))), wr.Inline...)
	case uverbs.OpLocalInv:
		tail, next = wr.InvalidateRKey, 0x20
		body = append(body, o.umr(&driver.Bind{Type2: true})...)
	case uverbs.OpBindMW:
		tail, next = bind.MWRKey, 0x20
		body = append(body, o.umr(bind)...)
	}
	if n := len(wr.Inline); n > 0 && wr.Opcode != uverbs.OpTSO {
		body = append(be.AppendUint32(body, 1<<31|uint32(n)), wr.Inline...)
	}
	for len(wr.SGL) > 0 && len(body)%16 != 0 {
		body = append(body, 0)
	}
	for _, s := range wr.SGL {
		if s.Length > 0 {
			body = be.AppendUint64(be.AppendUint32(be.AppendUint32(body, s.Length&(1<<31-1)), s.LKey), s.Addr)
		}
	}
	for len(body)%16 != 0 {
		body = append(body, 0)
	}
	var flags byte
	if wr.Flags&uverbs.Signaled != 0 || o.signalAll {
		flags |= 8
	}
	if wr.Flags&uverbs.Solicited != 0 {
		flags |= 2
	}
	if wr.Flags&uverbs.Fence != 0 {
		flags |= 0x80
	} else {
		flags |= o.fence
	}
	o.fence = next
	w := be.AppendUint32(nil, index&0xffff<<8|oracleOpcodes[wr.Opcode])
	w = be.AppendUint32(w, o.qpn<<8|uint32(1+len(body)/16))
	w = append(w, 0, 0, 0, flags)
	w = be.AppendUint32(w, tail)
	return append(w, body...)
}

// umr returns the segments that change a memory key.
func (o *oracle) umr(b *driver.Bind) []byte {
	be := binary.BigEndian
	w := make([]byte, 48+64)
	flags, mask := byte(0x90), uint64(1<<29|1<<13)
	if b.Type2 {
		mask |= 1 << 14
	}
	key := w[48:]
	be.PutUint32(key[4:], 0xffffff00|b.RKey&0xff)
	if b.Length == 0 {
		if b.Type2 {
			flags |= 1 << 3
		}
		key[0] = 1 << 6
	} else {
		if b.Type2 {
			flags |= 1 << 5
			be.PutUint32(key[4:], o.qpn<<8|b.RKey&0xff)
		}
		mask |= 1<<0 | 1<<6 | 1<<18 | 1<<19 | 1<<20 | 1<<21
		be.PutUint16(w[4:], 4)
		for a, bit := range map[uverbs.Access]byte{uverbs.LocalWrite: 1 << 3, uverbs.RemoteRead: 1 << 4,
			uverbs.RemoteWrite: 1 << 5, uverbs.RemoteAtomic: 1 << 6} {
			if uverbs.Access(b.Access)&a != 0 {
				key[2] |= bit
			}
		}
		if uverbs.Access(b.Access)&uverbs.ZeroBased == 0 {
			be.PutUint64(key[16:], b.Addr)
		}
		be.PutUint64(key[24:], b.Length)
		klm := make([]byte, 64)
		be.PutUint32(klm, uint32(b.Length))
		be.PutUint32(klm[4:], b.LKey)
		be.PutUint64(klm[8:], b.Addr)
		w = append(w, klm...)
	}
	w[0] = flags
	be.PutUint64(w[8:], mask)
	return w
}

// queues are what QPs of all types have in common.
type queues struct{ *qp }

// A bench is a QP without a device.
type bench struct {
	queues
	provider.QP
	regs []byte
	pd   driver.PD
	dci  *dci // if the QP is one
}

// A benchOwner is the owner of a bench's QP.
type benchOwner struct{}

func (benchOwner) Bind(*uverbs.SendWR) (driver.Bind, error) { return driver.Bind{}, nil }
func (benchOwner) MTU() uint64                              { return 4096 }
func (benchOwner) Checksums() bool                          { return false }
func (benchOwner) DoorbellError(err error) error            { return err }

// newBench creates a queue pair without a kernel.
func newBench(t testing.TB, cfg uverbs.QPConfig, change func(*deviceContext)) *bench {
	t.Helper()
	mem := good(provider.Anon(uarSize))(t)
	c := &deviceContext{indexed: true, dynamic: true, set: standard().set,
		limits: limits{sqDesc: 1024, rqDesc: 512, sqBlocks: 1 << 15, recvWR: 1 << 15, srqWR: 1 << 15}}
	c.records.line = 64
	c.uars.split = 256
	r := &register{reg: registerOf(mem.Bytes()[uarSend:]), mem: mem, toggle: 256, most: 4}
	c.uars.free, c.uars.base, c.uars.arm = []*register{r}, &uarPage{mem: mem, id: 16}, registerOf(mem.Bytes()[uarArm:])
	if change != nil {
		change(c)
	}
	if cfg.Type == 0 {
		cfg.Type = uverbs.RC
	}
	b := &bench{regs: mem.Bytes()[uarSend:]}
	env := provider.QPEnv{PD: &b.pd, Owner: benchOwner{}}
	u, _, err := c.CreateQP(&cfg, env, func([]byte, []byte) (driver.Reply, error) {
		return driver.Reply{Handle: 1, Number: benchQPN}, nil
	})
	check(t, err)
	b.qp, b.QP = queuesOf(u), u
	b.dci, _ = u.(*dci)
	t.Cleanup(func() {
		check(t, b.Retire(true))
		check(t, c.records.retire())
		check(t, mem.Retire())
	})
	return b
}

const benchQPN = 0x123456

// at returns n bytes of the ring, beginning at block cur.
func (b *bench) at(cur uint32, n int) []byte {
	w := make([]byte, n)
	for i := range w {
		w[i] = b.sq.bytes[(int(cur)*blockSize+i)&(len(b.sq.bytes)-1)]
	}
	return w
}

// complete marks all posted requests as completed.
func (b *bench) complete() { *b.sq.tail = b.sq.head }
