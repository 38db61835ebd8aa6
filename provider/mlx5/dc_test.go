package mlx5

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

const (
	benchDCKey  = 0x0102030405060708
	benchDCTN   = 0x00abcdef
	benchStream = 0x1234
)

// An address is an AH without a kernel, whose address vector has no zero byte after the first two words.
func address(pd *driver.PD) *uverbs.AH {
	whole := new(uverbs.AH)
	a := provider.AHOf(whole)
	for i := 1; i < len(a.AV()); i++ {
		a.AV()[i] = 0x1111111111111111 * uint64(i+1)
	}
	a.AV()[1] &^= 0xffffffff // the DCT's number
	a.Open(pd)
	return whole
}

// dcLead returns the segments of a request that name its destination.
func dcLead(ah *driver.AH, dctn uint32, key uint64) []byte {
	be, av := binary.BigEndian, ah.AV()
	w := be.AppendUint64(nil, key)
	w = be.AppendUint32(w, 1<<31|dctn)
	w = append(w, binary.NativeEndian.AppendUint64(nil, av[1])[4:]...)
	for _, x := range av[2:] {
		w = binary.NativeEndian.AppendUint64(w, x)
	}
	return w
}

// dcWQE returns the WQE of a request of a DCI.
func dcWQE(o *oracle, cur uint32, wr *uverbs.SendWR, lead []byte, stream uint16) []byte {
	if wr.Opcode == uverbs.OpLocalInv {
		return o.wqe(cur, wr, nil, nil)
	}
	w := o.wqe(cur, wr, lead, nil)
	binary.BigEndian.PutUint16(w[9:], stream)
	return w
}

// buildDC adds a request to the batch of a DCI, a UD QP or an XRCSend QP. The address comes before the data if first is
// set, and after it otherwise.
func buildDC(b *bench, wr *uverbs.SendWR, first bool, once bool) {
	ex := wr.Imm
	if wr.Opcode == uverbs.OpSendInv || wr.Opcode == uverbs.OpLocalInv {
		ex = wr.InvalidateRKey
	}
	rest := *wr
	switch {
	case once && b.sq.ops[wr.Opcode]&(imm32|key) == 0 && wr.Inline != nil:
		b.OpInline(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, wr.Inline)
		rest.Inline = nil
	case once && b.sq.ops[wr.Opcode]&(imm32|key) == 0 && len(wr.SGL) > 0:
		b.OpSGE(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, wr.SGL[0])
		rest.SGL = wr.SGL[1:]
	default:
		b.Op(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, ex)
	}
	dest := func() {
		switch {
		case wr.Opcode == uverbs.OpLocalInv:
		case b.sq.typ == uverbs.DCI:
			b.DCAddr(provider.AHOf(wr.AH), wr.QPN, wr.DCKey, wr.DCStream)
		case b.sq.typ == uverbs.UD:
			b.UDAddr(provider.AHOf(wr.AH), wr.QPN, wr.QKey)
		default:
			b.RemoteSRQ(wr.RemoteSRQN)
		}
	}
	if first {
		dest()
	}
	if wr.Opcode == uverbs.OpCompareSwap || wr.Opcode == uverbs.OpFetchAdd {
		b.Atomic(wr.CompareAdd, wr.Swap)
	}
	if rest.Inline != nil {
		b.Inline(rest.Inline)
	}
	for _, s := range rest.SGL {
		b.SGE(s)
	}
	if !first {
		dest()
	}
}

// TestDCRequests posts requests of every kind and size on a DCI, at every place of the ring, with batches in every
// order of calls, and compares the contents of the ring and of the register with the oracle's.
func TestDCRequests(t *testing.T) {
	const maxSGE, maxInline = 6, 100
	all := requests(maxSGE, maxInline)
	b := newBench(t, uverbs.QPConfig{Type: uverbs.DCI, MaxSendWR: 4, MaxSendSGE: maxSGE, MaxInline: maxInline,
		DCIStreams: uverbs.DCIStreams{Concurrent: 4}}, nil)
	ah := address(&b.pd)
	lead := dcLead(provider.AHOf(ah), benchDCTN, benchDCKey)
	o := oracle{qpn: benchQPN}
	blocks := uint32(len(b.sq.blocks))
	for start := range blocks {
		for i := range all {
			for way := range 6 {
				b.sq.cur = b.sq.cur&^(blocks-1) + blocks + start
				clear(b.regs)
				stream := uint16(0)
				if way%2 == 1 {
					stream = benchStream
				}
				cur, half := b.sq.cur, b.sq.db.Half
				if way < 4 {
					b.Begin()
					buildDC(b, &toDCT(ah, stream, all[i])[0], way < 2, i%2 == 0)
					check(t, b.Submit())
				} else if n, err := b.dci.PostSend(toDCT(ah, stream, all[i])); n != 1 || err != nil {
					t.Fatalf("%+v: %d, %v", all[i], n, err)
				}
				b.posted(t, &all[i], dcWQE(&o, cur, &all[i], lead, stream), cur, half)
			}
		}
	}
}

// toDCT returns the requests with a destination.
func toDCT(ah *uverbs.AH, stream uint16, wrs ...uverbs.SendWR) []uverbs.SendWR {
	for i := range wrs {
		wrs[i].AH, wrs[i].QPN, wrs[i].DCKey, wrs[i].DCStream = ah, benchDCTN, benchDCKey, stream
	}
	return wrs
}

// TestSeveralDC checks that lists and batches of several requests of a DCI ring one doorbell.
func TestSeveralDC(t *testing.T) {
	const maxSGE, maxInline = 4, 60
	all := requests(maxSGE, maxInline)
	b := newBench(t, uverbs.QPConfig{Type: uverbs.DCI, MaxSendWR: 64, MaxSendSGE: maxSGE, MaxInline: maxInline,
		SignalAll: true, DCIStreams: uverbs.DCIStreams{Concurrent: 4}}, nil)
	ah := address(&b.pd)
	lead := dcLead(provider.AHOf(ah), benchDCTN, benchDCKey)
	o := oracle{qpn: benchQPN, signalAll: true}
	r := rand.New(rand.NewPCG(1, 2))
	for lap := range 2000 {
		var wrs []uverbs.SendWR
		for range 2 + r.IntN(12) {
			wrs = append(wrs, all[r.IntN(len(all))])
		}
		clear(b.regs)
		cur, half := b.sq.cur, b.sq.db.Half
		if lap%3 == 0 {
			if n, err := b.dci.PostSend(toDCT(ah, uint16(lap), wrs...)); n != len(wrs) || err != nil {
				t.Fatal(n, err)
			}
		} else {
			b.Begin()
			for i := range toDCT(ah, uint16(lap), wrs...) {
				buildDC(b, &wrs[i], (lap+i)%4 == 0, i%2 == 0)
			}
			check(t, b.Submit())
		}
		var last []byte
		for i := range wrs {
			last = dcWQE(&o, cur, &wrs[i], lead, uint16(lap))
			if got := b.at(cur, len(last)); string(got) != string(last) {
				t.Fatalf("lap %d: %+v:\n got %x\nwant %x", lap, wrs[i], got, last)
			}
			cur += uint32(align(len(last), blockSize) / blockSize)
		}
		if cur != b.sq.cur || string(b.regs[half:][:8]) != string(last[:8]) || !zero(b.regs[half+8:][:248]) {
			t.Fatalf("lap %d: the queue is at %d, want %d; the register has %x", lap, b.sq.cur, cur, b.regs[half:][:16])
		}
		b.complete()
	}
}

// TestDCRefusals checks that invalid requests of a DCI are errors, and that no part of them is posted.
func TestDCRefusals(t *testing.T) {
	b := newBench(t, uverbs.QPConfig{Type: uverbs.DCI, MaxSendWR: 4, MaxSendSGE: 2, MaxInline: 100}, nil)
	var other driver.PD
	ah, foreign, closed := provider.AHOf(address(&b.pd)), provider.AHOf(address(&other)), provider.AHOf(address(&b.pd))
	closed.Close()
	sge := uverbs.SGE{Addr: 1, Length: 8, LKey: 3}
	addr := func(a *driver.AH) { b.dci.DCAddr(a, benchDCTN, benchDCKey, 0) }
	send := func() { b.dci.OpSGE(uverbs.OpSend, 0, 1, 0, 0, sge) }
	inline := func(op uverbs.Opcode, n int) { b.dci.OpInline(op, 0, 1, 2, 3, make([]byte, n)) }
	long := uverbs.SGE{Length: 1<<31 + 1}
	for name, x := range map[string]struct {
		want  error
		build func()
	}{
		"no address":               {uverbs.ErrNoAH, func() { b.dci.Op(uverbs.OpSend, 0, 1, 0, 0, 0) }},
		"no address of the first":  {uverbs.ErrNoAH, func() { send(); send(); addr(ah) }},
		"no address of the second": {uverbs.ErrNoAH, func() { send(); addr(ah); send() }},
		"no address, inline":       {uverbs.ErrNoAH, func() { inline(uverbs.OpWrite, 20) }},
		"nil address":              {driver.ErrNoAH, func() { send(); addr(nil) }},
		"closed address":           {driver.ErrClosedAH, func() { send(); addr(closed) }},
		"foreign address":          {uverbs.ErrForeignAH, func() { send(); addr(foreign) }},
		"address for nothing":      {uverbs.ErrMalformed, func() { addr(ah) }},
		"address of a LOCAL_INV":   {uverbs.ErrMalformed, func() { b.dci.Op(uverbs.OpLocalInv, 0, 1, 0, 0, 5); addr(ah) }},
		"address of a datagram":    {uverbs.ErrQPType, func() { send(); b.dci.UDAddr(ah, 1, 2) }},
		"stream":                   {uverbs.ErrNoStreams, func() { send(); b.dci.DCAddr(ah, benchDCTN, benchDCKey, 1) }},
		"SRQ":                      {uverbs.ErrQPType, func() { send(); b.dci.RemoteSRQ(1) }},
		"FLUSH":                    {uverbs.ErrOpNotSupported, func() { b.dci.Op(uverbs.OpFlush, 0, 1, 0, 0, 0); addr(ah) }},
		"too many SGEs":            {uverbs.ErrTooManySGEs, func() { send(); addr(ah); b.dci.SGE(sge); b.dci.SGE(sge) }},
		"inline data after an SGE": {uverbs.ErrMalformed, func() { send(); addr(ah); b.dci.Inline([]byte{1}) }},
		"inline data, too long":    {uverbs.ErrInlineTooLong, func() { inline(uverbs.OpSend, 1000); addr(ah) }},
		"inline data of a READ":    {uverbs.ErrMalformed, func() { inline(uverbs.OpRead, 1); addr(ah) }},
		"size of an atomic":        {uverbs.ErrAtomicSize, func() { b.dci.Op(uverbs.OpFetchAdd, 0, 1, 0, 0, 0); addr(ah) }},
		"message over 2^31 bytes":  {uverbs.ErrRange, func() { b.dci.OpSGE(uverbs.OpSend, 0, 1, 0, 0, long); addr(ah) }},
		"unknown flag":             {uverbs.ErrOpcode, func() { b.dci.OpSGE(uverbs.OpSend, 0x80, 1, 0, 0, sge); addr(ah) }},
		"full": {uverbs.ErrQueueFull, func() {
			for range b.sq.maxPost + 1 {
				send()
				addr(ah)
			}
		}},
	} {
		cur, head := b.sq.cur, b.sq.head
		b.Begin()
		x.build()
		if err := b.Submit(); !errors.Is(err, x.want) {
			t.Errorf("%s: %v, want %v", name, err, x.want)
		}
		if b.sq.cur != cur || b.sq.head != head {
			t.Errorf("%s: part of it was posted", name)
		}
	}
	// A good batch works after them.
	b.Begin()
	b.dci.OpSGE(uverbs.OpSend, 0, 1, 0, 0, sge)
	addr(ah)
	check(t, b.Submit())
}

// TestDCTCommands checks the driver's part of the commands of a DCT, and that its number is the reply's.
func TestDCTCommands(t *testing.T) {
	for _, indexed := range []bool{true, false} {
		c := &deviceContext{indexed: indexed, ece: true}
		s := &srq{ctx: c}
		var req uapi.Mlx5IbCreateQp
		var creation uapi.Mlx5IbCreateQpResp
		creation.EceOptions = 0x10000001
		q, reply, err := c.CreateQP(&uverbs.QPConfig{Type: uverbs.DCT, DCKey: benchDCKey}, provider.QPEnv{SRQ: s},
			func(in, out []byte) (driver.Reply, error) {
				copy(ioctl.BytesOf(&req), in)
				copy(out, ioctl.BytesOf(&creation))
				return driver.Reply{Handle: 3, Number: 9}, nil
			})
		check(t, err)
		want := uapi.Mlx5IbCreateQp{Flags: uapi.MLX5_QP_FLAG_TYPE_DCT, SqBufAddr: benchDCKey, EceOptions: 1 << 28}
		if !indexed {
			want.Uidx = 0xffffff
		}
		if req != want || reply.Handle != 3 || reply.Number != 0 {
			t.Errorf("indexed %v: the request is %+v, want %+v; the reply is %+v", indexed, req, want, reply)
		}
		d := q.(*dct)
		in, n := d.ModifyECE(false)
		if len(in) != 16 && len(in) != ioctl.SizeOf[uapi.Mlx5IbModifyQp]() || n < 8 || !zero(in) {
			t.Errorf("MODIFY_QP has %x and a reply of %d bytes", in, n)
		}
		d.ModifiedECE(ioctl.BytesOf(&uapi.Mlx5IbModifyQpResp{ResponseLength: 4})) // RESET to INIT
		if d.Number() != 0 {
			t.Errorf("in INIT the DCT has number %d", d.Number())
		}
		check(t, d.SetECE(vendorID, 0x10000001))
		if in, _ = d.ModifyECE(false); binary.NativeEndian.Uint32(in[12:]) != 0x10000001 {
			t.Errorf("options in %x", in)
		}
		d.ModifiedECE(ioctl.BytesOf(&uapi.Mlx5IbModifyQpResp{ResponseLength: 12, Dctn: 0x55, EceOptions: 5}))
		if _, options := d.QueryECE(); d.Number() != 0x55 || options != 5 {
			t.Errorf("in RTR the DCT has number %#x and options %#x", d.Number(), options)
		}
		if indexed != (c.targets.find(0) == &d.target) || indexed != (c.targets.find(0x55) == nil) {
			t.Errorf("indexed %v: completions do not find the DCT", indexed)
		}
		if d.Unfinished() {
			t.Error("a DCT has sends")
		}
		check(t, d.Reset())
		check(t, d.Retire(false))
		check(t, d.Retire(false))
		if c.targets.find(0) != nil || c.targets.find(0x55) != nil {
			t.Errorf("indexed %v: completions still find the DCT", indexed)
		}
	}
}

// TestDCICommand checks the driver's part of the create command of a DCI.
func TestDCICommand(t *testing.T) {
	for _, x := range []struct {
		streams uverbs.DCIStreams
		flags   uint32
		want    uapi.Mlx5IbCreateQpDciStreams
	}{
		{uverbs.DCIStreams{}, 0, uapi.Mlx5IbCreateQpDciStreams{}},
		{uverbs.DCIStreams{Concurrent: 1}, uapi.MLX5_QP_FLAG_DCI_STREAM, uapi.Mlx5IbCreateQpDciStreams{}},
		{uverbs.DCIStreams{Concurrent: 8, Errored: 4}, uapi.MLX5_QP_FLAG_DCI_STREAM,
			uapi.Mlx5IbCreateQpDciStreams{LogNumConcurent: 3, LogNumErrored: 2}},
	} {
		var req uapi.Mlx5IbCreateQp
		setDCI(&req, x.streams)
		if req.Flags != x.flags|uapi.MLX5_QP_FLAG_TYPE_DCI || req.DciStreams != x.want {
			t.Errorf("%+v: flags %#x, streams %+v", x.streams, req.Flags, req.DciStreams)
		}
	}
	// libmlx5: 240 bytes of overhead with all operations, and 16 bytes for each SGE.
	l := limits{sqDesc: 1024, sqBlocks: 1 << 15}
	got, err := l.sizesOf(&uverbs.QPConfig{Type: uverbs.DCI, MaxSendWR: 100, MaxSendSGE: 1}, false)
	check(t, err)
	if want := (sizes{sqBlocks: 512, maxSend: 128, maxInline: 12}); got != want {
		t.Errorf("a DCI has %+v, want %+v", got, want)
	}
}
