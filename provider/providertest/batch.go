package providertest

import "github.com/goverbs/goverbs/uverbs"

// Add adds to a batch what PostSend would post as wr. It panics where a batch has
// no such operation.
func Add(b *uverbs.SendBatch, wr *uverbs.SendWR) {
	addOperation(b, wr)
	if wr.AH != nil {
		b.UDAddr(wr.AH, wr.QPN, wr.QKey)
	}
	if wr.RemoteSRQN != 0 {
		b.RemoteSRQ(wr.RemoteSRQN)
	}
	if wr.Inline != nil {
		b.Inline(wr.Inline)
	}
	for _, s := range wr.SGL {
		b.SGE(s)
	}
}

func addOperation(b *uverbs.SendBatch, wr *uverbs.SendWR) {
	switch wr.Opcode {
	case uverbs.OpSend:
		b.Send(wr.WRID, wr.Flags)
	case uverbs.OpSendImm:
		b.SendImm(wr.WRID, wr.Flags, wr.Imm)
	case uverbs.OpSendInv:
		b.SendInv(wr.WRID, wr.Flags, wr.InvalidateRKey)
	case uverbs.OpWrite:
		b.Write(wr.WRID, wr.Flags, wr.RemoteAddr, wr.RKey)
	case uverbs.OpWriteImm:
		b.WriteImm(wr.WRID, wr.Flags, wr.RemoteAddr, wr.RKey, wr.Imm)
	case uverbs.OpRead:
		b.Read(wr.WRID, wr.Flags, wr.RemoteAddr, wr.RKey)
	case uverbs.OpCompareSwap:
		b.CompareSwap(wr.WRID, wr.Flags, wr.RemoteAddr, wr.RKey, wr.CompareAdd, wr.Swap)
	case uverbs.OpFetchAdd:
		b.FetchAdd(wr.WRID, wr.Flags, wr.RemoteAddr, wr.RKey, wr.CompareAdd)
	case uverbs.OpAtomicWrite:
		b.AtomicWrite(wr.WRID, wr.Flags, wr.RemoteAddr, wr.RKey, wr.Swap)
	case uverbs.OpFlush:
		b.Flush(wr.WRID, wr.Flags, wr.RemoteAddr, wr.RKey, wr.FlushLength, wr.Placement, wr.Selectivity)
	case uverbs.OpLocalInv:
		b.LocalInv(wr.WRID, wr.Flags, wr.InvalidateRKey)
	case uverbs.OpBindMW:
		b.BindMW(wr.WRID, wr.Flags, wr.Bind.MW, wr.Bind.RKey, wr.Bind.MWRange)
	default:
		panic("no such operation in a batch: " + wr.Opcode.String())
	}
}
