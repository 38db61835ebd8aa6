package provider

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

func TestRefusal(t *testing.T) {
	for _, c := range []struct {
		typ  uverbs.QPType
		op   uverbs.Opcode
		f    uverbs.SendFlags
		want error
	}{
		{uverbs.RC, 10, 0, uverbs.ErrOpcode},
		{uverbs.RC, 77, 0, uverbs.ErrOpcode},
		{uverbs.UD, uverbs.OpSend, 1 << 7, uverbs.ErrOpcode},
		{uverbs.RC, uverbs.OpSend, ether.IPCsum, uverbs.ErrQPType},
		{uverbs.RawPacket, uverbs.OpSend, ether.IPCsum, uverbs.ErrOpNotSupported},
		{uverbs.RawPacket, uverbs.OpSendImm, 0, uverbs.ErrQPType},
		{uverbs.UD, uverbs.OpWrite, 0, uverbs.ErrQPType},
		{uverbs.UC, uverbs.OpRead, 0, uverbs.ErrQPType},
		{uverbs.UC, uverbs.OpSendInv, 0, uverbs.ErrQPType},
		{uverbs.UC, uverbs.OpFlush, 0, uverbs.ErrQPType},
		{uverbs.UC, uverbs.OpLocalInv, 0, uverbs.ErrOpNotSupported},
		{uverbs.RC, uverbs.OpFlush, 0, uverbs.ErrOpNotSupported},
		{uverbs.XRCSend, uverbs.OpAtomicWrite, 0, uverbs.ErrOpNotSupported},
	} {
		err := Refusal(c.typ, c.op, c.f)
		if err != c.want {
			t.Errorf("%v with flags %#x on %v: %v, want %v", c.op, c.f, c.typ, err, c.want)
		}
		if !errors.Is(err, uverbs.ErrOpcode) {
			t.Errorf("%v on %v: %v is not ErrOpcode", c.op, c.typ, err)
		}
	}
}
