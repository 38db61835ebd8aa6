package rdma

import (
	"crypto/tls"
	"errors"
	"testing"
)

// TestTLSLongSend checks that a SEND without a tag cannot use the room for one, which receives have with TLS.
func TestTLSLongSend(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]ListenOptions{"own receives": {}, "shared receives": {SharedReceives: minShared}} {
		t.Run(name, func(t *testing.T) {
			here, there, err := provenSides(t, Options{}, o)
			if err != nil {
				t.Fatal(err)
			}
			const n = defaultEager + tagLen
			m, err := here.get(n)
			good(t, m, err).hold()
			here.mu.Lock()
			seq, flags := here.next(true)
			b := here.qp.StartSend()
			b.SendImm(seq, flags, packImm(kindMessage, credits{}, 0))
			b.SGE(m.sge(n))
			err = b.Submit()
			here.posted(request{m: m}, flags)
			here.unlock()
			if err != nil {
				t.Fatal(err)
			}
			if s := there.shared; s != nil {
				if m := s.getSpare(); len(m.bytes) != there.options.receiveLen() {
					t.Errorf("a copy has %d bytes", len(m.bytes))
				}
			}
			if got, err := there.Recv(bounded(t)); !errors.Is(err, ErrProtocol) {
				t.Errorf("Recv returns %d bytes, %v", got.Len(), err)
			}
		})
	}
}

// TestSealRoom checks that nothing is sent that is not sealed because it has no room for a tag.
func TestSealRoom(t *testing.T) {
	tx, rx := sealerPair(t, defaultEager)
	if err := tx.seal(0, make([]byte, 8+tagLen-1), 8); !errors.Is(err, errSealRoom) || tx.number != 0 {
		t.Errorf("%v, and SEND %d is next", err, tx.number)
	}
	c := &Conn{seal: &seals{tx: tx, rx: rx, sending: true, out: make([]byte, 8+tagLen)}}
	for n, want := range map[int]error{8: nil, 9: errSealRoom} {
		if b, err := c.sealInline(0, make([]byte, n)); !errors.Is(err, want) || err == nil && len(b) != n+tagLen {
			t.Errorf("%d bytes: %d, %v", n, len(b), err)
		}
	}
}

// TestReceiveLen checks that receives of cache lines remain so with room for a tag.
func TestReceiveLen(t *testing.T) {
	for _, n := range []int{minEager, defaultEager, 1000, maxEager} {
		plain, room := &Options{EagerSize: n}, &Options{EagerSize: n, TLS: &tls.Config{}}
		if got := room.receiveLen(); plain.receiveLen() != n || got%receiveAlign != 0 || got < n+tagLen ||
			got >= n+tagLen+receiveAlign {
			t.Errorf("EagerSize %d: receives of %d bytes, and %d with TLS", n, plain.receiveLen(), got)
		}
	}
}
