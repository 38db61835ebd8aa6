package verbstest

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/fabric"
	"github.com/goverbs/goverbs/internal/sim/rdmacmtest"
)

// TestConstants compares constants with those of the packages that use the same values.
func TestConstants(t *testing.T) {
	for _, c := range [][2]string{
		{string(ReceiveLate), string(engine.RuleReceiveLate)},
		{string(ReceiveLength), string(engine.RuleReceiveShort)},
		{string(ReceiveOverlap), string(engine.RuleReceiveOverlap)},
		{string(LocalKey), string(engine.RuleKey)},
		{string(LocalAccess), string(engine.RuleLocalAccess)},
		{string(RemoteAccess), string(engine.RuleRemoteAccess)},
		{string(BadRequest), string(engine.RuleRequest)},
		{string(AtomicSize), string(engine.RuleAtomicAddress)},
		{string(Destination), string(engine.RuleDestination)},
		{string(QKey), string(engine.RuleQKey)},
		{string(Connection), string(engine.RuleConnection)},
		{string(CQCapacity), string(engine.RuleCQCapacity)},
		{string(CQOverrun), string(engine.RuleCQOverrun)},
		{string(Unsignaled), string(engine.RuleUnsignaled)},
		{string(LostWakeup), string(engine.RuleLostWakeup)},
		{string(Drop), string(fabric.Drop)},
		{string(Duplicate), string(fabric.Duplicate)},
		{string(Delay), string(fabric.Delay)},
		{string(Reorder), string(fabric.Reorder)},
		{string(REQ), rdmacmtest.REQ},
		{string(MRA), rdmacmtest.MRA},
		{string(REP), rdmacmtest.REP},
		{string(RTU), rdmacmtest.RTU},
		{string(REJ), rdmacmtest.REJ},
		{string(DREQ), rdmacmtest.DREQ},
		{string(DREP), rdmacmtest.DREP},
		{string(DatagramREQ), rdmacmtest.SIDRReq},
		{string(DatagramReply), rdmacmtest.SIDRResp},
	} {
		if c[0] != c[1] {
			t.Errorf("%q, want %q", c[0], c[1])
		}
	}
}
