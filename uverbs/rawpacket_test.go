package uverbs

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
)

// TestRawPacketQP checks that a raw packet QP needs only a port to go to RTS, and the errors of its
// creation.
func TestRawPacketQP(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	raw := QPConfig{Type: RawPacket, SendCQ: b.cq, MaxSendWR: 4, MaxRecvWR: 4, MaxInline: 32}
	_, err := b.pd.CreateQP(raw)
	if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Errorf("without CAP_NET_RAW: %v", err)
	}
	r.k.Set(func() { r.k.NetRaw = true })
	if _, err = b.pd.CreateQP(raw); !errors.Is(err, ErrNotSupported) {
		t.Errorf("without raw packets: %v", err)
	}
	r.k.Set(func() { r.k.Raw = true })
	qp := good(b.pd.CreateQP(raw))(t)
	check(t, qp.Ready())
	if s := qp.State(); s != StateRTS {
		t.Errorf("the QP is in %v", s)
	}
	good(qp.PostSend(SendWR{Opcode: OpSend, Inline: []byte("frame"), Flags: Signaled}))(t)
	good(qp.PostRecv(RecvWR{}))(t)
	if err := qp.Connect(Endpoint{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("Connect: %v", err)
	}
	unknown := raw
	unknown.CreateFlags = 1
	if _, err := b.pd.CreateQP(unknown); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "unknown bits") {
		t.Errorf("with unknown flags: %v", err)
	}
	for _, other := range []QPType{RC, UC, UD, XRCSend, DCI} {
		_, err := b.pd.CreateQP(QPConfig{Type: other, SendCQ: b.cq, MaxSendWR: 4, MaxTSOHeader: 54})
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "MaxTSOHeader") {
			t.Errorf("%v with MaxTSOHeader: %v", other, err)
		}
	}
	r.k.Set(func() {
		r.k.Ports[0].LinkLayer, r.k.Refuse = uint8(LinkInfiniBand), map[string]unix.Errno{"QP.CREATE": unix.EINVAL}
	})
	if _, err := b.pd.CreateQP(raw); !errors.Is(err, ErrNotSupported) || !errors.Is(err, unix.EINVAL) ||
		!strings.Contains(err.Error(), "InfiniBand") {
		t.Errorf("on InfiniBand: %v", err)
	}
	r.k.Set(func() { r.k.Ports[0].LinkLayer, r.k.Refuse = uint8(LinkEthernet), nil })
}

// TestExtensionParents checks that an object of another package keeps its parents open, and the order
// in which Close of the Context closes such objects.
func TestExtensionParents(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	var closed []string
	extend := func(name string, rank driver.Rank, parents ...any) driver.Extension {
		return good(driver.Extend(r.c, "create a thing", driver.ExtensionConfig{Kind: name, Rank: rank, Parents: parents,
			Create:  func(driver.Extension) (uint32, error) { return 7, nil },
			Destroy: func() error { closed = append(closed, name); return nil }}))(t)
	}
	late := extend("late", driver.AfterTables, b.cq)
	extend("first", driver.BeforeAll, b.qp)
	extend("middle", driver.AfterQPs, late)
	for what, err := range map[string]error{"QP": b.qp.Close(), "CQ": b.cq.Close(), "extension": late.Close()} {
		if !errors.Is(err, ErrBusy) {
			t.Errorf("Close of the %s: %v, want ErrBusy", what, err)
		}
	}
	check(t, r.c.Close())
	if got := strings.Join(closed, " "); got != "first middle late" {
		t.Errorf("closed in the order %s", got)
	}
}
