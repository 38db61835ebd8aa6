package provider

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
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
		{uverbs.RC, driver.Opcodes, 0, uverbs.ErrOpcode},
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

// manPage has the types of QP on which ibv_post_send(3) allows each operation. RC stands for the
// types that allow the same: XRC and DC. The man page also has TSO on UD, for IPoIB, and SEND_INV on UC, which the
// InfiniBand specification does not have. It has no FLUSH and no ATOMIC_WRITE.
// The operations of SRD are those of efadv_create_qp_ex(3).
const manPage = `
WRITE        RC UC SRD
WRITE_IMM    RC UC SRD
SEND         RC UC UD RawPacket SRD
SEND_IMM     RC UC UD SRD
READ         RC SRD
COMPARE_SWAP RC
FETCH_ADD    RC
LOCAL_INV    RC UC
BIND_MW      RC UC
SEND_INV     RC
TSO          RawPacket
FLUSH        RC
ATOMIC_WRITE RC
`

// TestRefusalOfEveryOperation compares the table of operations with the man page.
func TestRefusalOfEveryOperation(t *testing.T) {
	got := "\n"
	for op := range uverbs.Opcode(driver.Opcodes) {
		if driver.OperationOf(op) == nil {
			if err := Refusal(uverbs.RC, op, 0); err != uverbs.ErrOpcode {
				t.Errorf("%v: %v, want %v", op, err, uverbs.ErrOpcode)
			}
			continue
		}
		types := []string{fmt.Sprintf("%-12v", op)}
		for _, typ := range []uverbs.QPType{uverbs.RC, uverbs.UC, uverbs.UD, uverbs.RawPacket, uverbs.SRD} {
			if Refusal(typ, op, 0) != uverbs.ErrQPType {
				types = append(types, typ.String())
			}
		}
		for _, typ := range []uverbs.QPType{uverbs.XRCSend, uverbs.DCI} {
			if got, want := Refusal(typ, op, 0), Refusal(uverbs.RC, op, 0); got != want {
				t.Errorf("%v on %v: %v, want %v", op, typ, got, want)
			}
		}
		got += strings.Join(types, " ") + "\n"
	}
	if got != manPage {
		t.Errorf("the operations are%s", got)
	}
}
