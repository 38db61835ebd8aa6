package mlx5

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestResetDCIStreamErrors checks the QPs whose streams cannot be reset, and a device without DevX.
func TestResetDCIStreamErrors(t *testing.T) {
	d := newStar(t, standard(), uverbs.DCIStreams{Concurrent: 4})
	early := good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCI, SendCQ: d.sends, MaxSendWR: 1}))(t)
	connected := d.loop(t, uverbs.QPConfig{SendCQ: d.sends})
	for name, c := range map[string]struct {
		qp   *uverbs.QP
		want error
	}{
		"nil":        {nil, uverbs.ErrInvalid},
		"not in RTS": {early, uverbs.ErrInvalid},
		"RC":         {connected, uverbs.ErrInvalid},
		"DCT":        {d.dcts[0], uverbs.ErrInvalid},
		"no DevX":    {d.dci, uverbs.ErrNotSupported},
	} {
		if err := ResetDCIStream(c.qp, 1); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	check(t, early.Close())
	if err := ResetDCIStream(early, 1); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("a closed QP: %v", err)
	}
}
