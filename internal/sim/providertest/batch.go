package providertest

import (
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// Add adds a request to a batch. It returns an error, and adds nothing, if a batch has no method for the operation.
func Add(b *uverbs.SendBatch, wr *uverbs.SendWR) error {
	rest := *wr
	wr = &rest
	if wr.WRID%2 == 0 || !addOnce(b, wr) {
		if err := addOperation(b, wr); err != nil {
			return err
		}
	}
	switch {
	case wr.AH != nil && wr.DCKey != 0:
		b.DCAddrStream(wr.AH, wr.QPN, wr.DCKey, wr.DCStream)
	case wr.AH != nil:
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
	return nil
}

// addOnce adds an operation with a method that also adds data, and removes that data from wr. It
// reports whether there is such a method.
func addOnce(b *uverbs.SendBatch, wr *uverbs.SendWR) bool {
	switch op := wr.Opcode; {
	case wr.Inline != nil && op == uverbs.OpSend:
		b.SendInline(wr.WRID, wr.Flags, wr.Inline)
		wr.Inline = nil
	case wr.Inline != nil && op == uverbs.OpWrite:
		b.WriteInline(wr.WRID, wr.Flags, wr.RemoteAddr, wr.RKey, wr.Inline)
		wr.Inline = nil
	case wr.Inline != nil || len(wr.SGL) == 0:
		return false
	case op == uverbs.OpSend:
		b.SendSGE(wr.WRID, wr.Flags, wr.SGL[0])
		wr.SGL = wr.SGL[1:]
	case op == uverbs.OpWrite:
		b.WriteSGE(wr.WRID, wr.Flags, wr.RemoteAddr, wr.RKey, wr.SGL[0])
		wr.SGL = wr.SGL[1:]
	case op == uverbs.OpRead:
		b.ReadSGE(wr.WRID, wr.Flags, wr.RemoteAddr, wr.RKey, wr.SGL[0])
		wr.SGL = wr.SGL[1:]
	default:
		return false
	}
	return true
}

func addOperation(b *uverbs.SendBatch, wr *uverbs.SendWR) error {
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
	case uverbs.OpTSO:
		b.TSO(wr.WRID, wr.Flags, wr.Inline, wr.MSS)
		wr.Inline = nil
	case uverbs.OpLocalInv:
		b.LocalInv(wr.WRID, wr.Flags, wr.InvalidateRKey)
	case uverbs.OpBindMW:
		b.BindMW(wr.WRID, wr.Flags, wr.Bind.MW, wr.Bind.RKey, wr.Bind.MWRange)
	default:
		return fmt.Errorf("providertest: a batch has no method for operation %v", wr.Opcode)
	}
	return nil
}
