package mlx5

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestSourcePortErrors checks the QPs whose UDP source port cannot be changed, and a device without DevX.
func TestSourcePortErrors(t *testing.T) {
	d := newDesk(t, standard())
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
	cfg := uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: 1}
	early := good(d.pd.CreateQP(cfg))(t)
	cfg.Type = uverbs.UD
	ud := good(d.pd.CreateQP(cfg))(t)
	connected := d.loop(t, uverbs.QPConfig{SendCQ: cq})
	for name, c := range map[string]struct {
		qp   *uverbs.QP
		want error
	}{
		"nil":        {nil, uverbs.ErrInvalid},
		"not in RTS": {early, uverbs.ErrInvalid},
		"UD":         {ud, uverbs.ErrInvalid},
		"no DevX":    {connected, uverbs.ErrNotSupported},
	} {
		if err := ModifyUDPSourcePort(c.qp, 55555); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	check(t, connected.Close())
	if err := ModifyUDPSourcePort(connected, 55555); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("a closed QP: %v", err)
	}
}
