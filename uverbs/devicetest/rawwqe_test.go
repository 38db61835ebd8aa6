package devicetest

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
)

// sendWQE returns a WQE of mlx5 that sends two buffers: a control segment that requests a completion, and two data
// segments.
func sendWQE(qpn uint32, sges [2]uverbs.SGE) []byte {
	const opcodeSend, signaled, segments = 0x0a, 0x08, 3
	b := binary.BigEndian.AppendUint32(nil, opcodeSend)
	b = binary.BigEndian.AppendUint32(b, qpn<<8|segments)
	b = binary.BigEndian.AppendUint32(b, signaled)
	b = binary.BigEndian.AppendUint32(b, 0)
	for _, s := range sges {
		b = binary.BigEndian.AppendUint32(b, s.Length)
		b = binary.BigEndian.AppendUint32(b, s.LKey)
		b = binary.BigEndian.AppendUint64(b, s.Addr)
	}
	return b
}

// rawLoop returns a connection whose send queue is shorter than the messages that tests send. It skips the test if the
// device has no format of its own.
func rawLoop(t *testing.T) *loop {
	l := newLoop(t, func(c *uverbs.QPConfig) { c.MaxSendWR, c.MaxSendSGE, c.MaxInline = 1, 2, 0 })
	b := l.a.qp.StartSend()
	b.RawWQE(0, nil)
	if err := b.Submit(); errors.Is(err, uverbs.ErrOpNotSupported) {
		features.Missing(t, features.RawWQE, err)
	}
	return l
}

// TestDeviceParityRawWQE has the test of tests/test_mlx5_raw_wqe.py.
func TestDeviceParityRawWQE(t *testing.T) {
	t.Run("test_mixed_raw_wqe_traffic", rawTraffic)
}

// rawTraffic posts WQEs that the program builds and ordinary requests in turn.
func rawTraffic(t *testing.T) {
	l := rawLoop(t)
	const n = 1000
	sges := [2]uverbs.SGE{l.a.mr.SGE(0, n/2), l.a.mr.SGE(n/2, n/2)}
	wqe := sendWQE(l.a.qp.QPN(), sges)
	for i := range 100 {
		l.a.fill(byte(i))
		receive(t, l.b.qp, uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{l.b.mr.SGE(0, n)}})
		b, want := l.a.qp.StartSend(), uverbs.WCSend
		if i%2 == 0 {
			b.RawWQE(uint64(i), wqe)
			want = uverbs.WCRawWQE
		} else {
			b.SendSGE(uint64(i), uverbs.Signaled, l.a.mr.SGE(0, n))
		}
		check(t, b.Submit())
		l.success(t, l.a, uint64(i), want)
		l.success(t, l.b, 1, uverbs.WCRecv)
		same(t, l.b.mr.Bytes()[:n], l.a.mr.Bytes()[:n])
	}
}

// TestDeviceRawWQEErrors checks that a WQE that does not fit is refused before the device sees it, and that the queue
// remains usable.
func TestDeviceRawWQEErrors(t *testing.T) {
	l := rawLoop(t)
	l.a.fill(7)
	sges := [2]uverbs.SGE{l.a.mr.SGE(0, 10), l.a.mr.SGE(10, 20)}
	good := sendWQE(l.a.qp.QPN(), sges)
	long := append(sendWQE(l.a.qp.QPN(), sges), make([]byte, 45*16)...)
	long[7] = byte(len(long) / 16)
	longest := append(sendWQE(l.a.qp.QPN(), sges), make([]byte, 1<<16)...)
	for name, c := range map[string]struct {
		wqes [][]byte
		want error
	}{
		"empty":              {[][]byte{nil}, uverbs.ErrMalformed},
		"half a segment":     {[][]byte{good[:40]}, uverbs.ErrMalformed},
		"fewer segments":     {[][]byte{good[:32]}, uverbs.ErrMalformed},
		"longer than a slot": {[][]byte{long}, uverbs.ErrMalformed},
		"longer than a WQE":  {[][]byte{longest}, uverbs.ErrMalformed},
		"another QP":         {[][]byte{sendWQE(l.a.qp.QPN()+1, sges)}, uverbs.ErrMalformed},
		"a full queue":       {repeat(good, l.a.qp.Cap().MaxSendWR+1), uverbs.ErrQueueFull},
	} {
		t.Run(name, func(t *testing.T) {
			b := l.a.qp.StartSend()
			for i, w := range c.wqes {
				b.RawWQE(uint64(i), w)
			}
			if err := b.Submit(); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if n := l.a.qp.SendsOutstanding(); n != 0 {
				t.Errorf("%d requests are in the queue", n)
			}
		})
	}
	b := l.a.qp.StartSend()
	b.RawWQE(0, good)
	b.SGE(l.a.mr.SGE(0, 1))
	if err := b.Submit(); !errors.Is(err, uverbs.ErrMalformed) {
		t.Errorf("an SGE after a WQE: %v, want ErrMalformed", err)
	}
	receive(t, l.b.qp, uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{l.b.mr.SGE(0, 30)}})
	b = l.a.qp.StartSend()
	b.RawWQE(5, good)
	check(t, b.Submit())
	l.success(t, l.a, 5, uverbs.WCRawWQE)
	l.success(t, l.b, 1, uverbs.WCRecv)
	same(t, l.b.mr.Bytes()[:30], l.a.mr.Bytes()[:30])
}

func repeat(wqe []byte, n int) (all [][]byte) {
	for range n {
		all = append(all, wqe)
	}
	return all
}
