package mlx5

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestResetDCIStream checks that a stream that has failed flushes its requests until it is reset, that others go on
// meanwhile, and that a stream that was reset does not count among the failed ones.
func TestResetDCIStream(t *testing.T) {
	const most = 4
	d := newStar(t, standard(), uverbs.DCIStreams{Concurrent: 8, Errored: most})
	write := func(stream uint16, rkey uint32) uverbs.WCStatus {
		t.Helper()
		wr := uverbs.SendWR{Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, SGL: []uverbs.SGE{d.mr.SGE(0, 8)},
			RemoteAddr: d.mr.Addr(), RKey: rkey, DCStream: stream}
		d.to(0, &wr)
		_, err := d.dci.PostSend(wr)
		check(t, err)
		return one(t, d.sends).Status
	}
	for i := range uint16(2 * most) {
		stream := 1 + i%3
		if s := write(stream, d.mr.RKey()^0xff00); s != uverbs.WCRemAccessErr {
			t.Fatalf("%d: a WRITE with a wrong key: %v", i, s)
		}
		if s := write(stream, d.mr.RKey()); s != uverbs.WCWRFlushErr {
			t.Fatalf("%d: in the failed stream: %v", i, s)
		}
		if s := write(9, d.mr.RKey()); s != uverbs.WCSuccess {
			t.Fatalf("%d: in another stream: %v", i, s)
		}
		check(t, ResetDCIStream(d.dci, stream))
		if s := write(stream, d.mr.RKey()); s != uverbs.WCSuccess {
			t.Fatalf("%d: after the reset: %v", i, s)
		}
		if err := ResetDCIStream(d.dci, stream); !errors.Is(err, uverbs.ErrInvalid) {
			t.Fatalf("%d: a second reset: %v", i, err)
		}
	}
}

// TestResetDCIStreamErrors checks the QPs whose streams cannot be reset, and a device without DevX.
func TestResetDCIStreamErrors(t *testing.T) {
	d := newStar(t, standard(), uverbs.DCIStreams{Concurrent: 4})
	without := newStar(t, standard(), uverbs.DCIStreams{Concurrent: 4})
	without.s.Set(func() { without.s.NoDevX = true })
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
		"no streams": {newStar(t, standard(), uverbs.DCIStreams{}).dci, uverbs.ErrInvalid},
		"not failed": {d.dci, uverbs.ErrInvalid},
		"no DevX":    {without.dci, uverbs.ErrNotSupported},
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
