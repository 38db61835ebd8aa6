package rdma

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
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

// restart returns a sealed connection to where its side has sent its kindSeal, with keys that tests know.
func (c *Conn) restart(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.unlock()
	s := &seals{txLong: c.seal.txLong, rxLong: c.seal.rxLong, sending: true, out: c.seal.out}
	s.tx, s.rx = sealerPair(t, defaultEager)
	c.seal = s
}

// TestSealedStart checks what startSealing and Recv return for SENDs that arrive together.
func TestSealedStart(t *testing.T) {
	t.Parallel()
	end := func(c *Conn) frame { return frame{packImm(kindEnd, credits{}, 0), (&farewell{}).appendTo(nil)} }
	plain := func(c *Conn) frame { return frame{packImm(kindMessage, credits{}, 0), []byte("forged")} }
	sealed := func(k kind) func(c *Conn) frame {
		return func(c *Conn) frame {
			var body []byte
			if k == kindEnd {
				body = (&farewell{}).appendTo(nil)
			}
			return c.sealFrame(t, k, 0, body)
		}
	}
	bad := func(c *Conn) frame {
		f := c.sealFrame(t, kindSeal, 0, nil)
		f.body[0] ^= 1
		return f
	}
	for name, c := range map[string]struct {
		frames      []func(c *Conn) frame
		start, recv error
	}{
		"honest end":                  {[]func(c *Conn) frame{sealed(kindSeal), sealed(kindEnd)}, nil, io.EOF},
		"forged end":                  {[]func(c *Conn) frame{end, sealed(kindSeal)}, ErrForged, ErrForged},
		"forged ends":                 {[]func(c *Conn) frame{end, sealed(kindSeal), end}, ErrForged, ErrForged},
		"forged message":              {[]func(c *Conn) frame{plain, sealed(kindSeal)}, ErrProtocol, nil},
		"forged start":                {[]func(c *Conn) frame{bad}, ErrForged, ErrForged},
		"forged start and an end":     {[]func(c *Conn) frame{bad, end}, ErrForged, ErrForged},
		"forged end behind the start": {[]func(c *Conn) frame{sealed(kindSeal), end}, ErrForged, ErrForged},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := sealedSides(t, Options{})
			here.restart(t)
			there.restart(t)
			for _, f := range c.frames {
				there.postFrame(t, f(there))
			}
			there.mu.Lock()
			for there.head != there.tail {
				if err := there.step(bounded(t), needOwn, nil); err != nil {
					t.Fatal(err)
				}
			}
			there.unlock()
			if err := here.startSealing(bounded(t)); !errors.Is(err, c.start) {
				t.Errorf("startSealing returns %v", err)
			}
			if _, err := here.Recv(bounded(t)); !errors.Is(err, c.recv) {
				t.Errorf("Recv returns %v", err)
			}
		})
	}
}

// TestSealedRefusedWrite checks that no number is used twice after a WRITE that was refused.
func TestSealedRefusedWrite(t *testing.T) {
	t.Parallel()
	c, s := sealedSides(t, Options{})
	m, err := c.get(8)
	good(t, m, err).hold()
	number := func() uint64 {
		c.mu.Lock()
		defer c.unlock()
		return c.seal.tx.number
	}
	before := number()
	outside := &memory{bytes: make([]byte, 8), mr: m.mr, off: m.mr.Len()}
	if err := c.writeImm(bounded(t), outside, 8, &Token{}, 0, 1); !errors.Is(err, uverbs.ErrRange) || number() != before {
		t.Errorf("a WRITE from outside a region: %v, and SEND %d is sealed next, not %d", err, number(), before)
	}
	if err := c.Send(bounded(t), []byte("next")); err != nil {
		t.Fatal(err)
	}
	got, err := s.Recv(bounded(t))
	if good(t, got, err).Len() != 4 {
		t.Errorf("%d bytes were received", got.Len())
	}
	got.Release()
	before = number()
	if err := c.qp.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.writeImm(bounded(t), m, 0, &Token{}, 0, 1); err == nil || number() != before+1 {
		t.Errorf("a WRITE that was refused: %v, and SEND %d is sealed next, not %d", err, number(), before+1)
	}
	if err := c.Err(); err == nil {
		t.Error("the connection has not ended")
	}
}

// TestSealedWriteRoom checks that a WRITE with a sealed notice waits for room for both requests.
func TestSealedWriteRoom(t *testing.T) {
	t.Parallel()
	c, s := sealedSides(t, Options{})
	m, err := c.get(8)
	good(t, m, err).hold()
	reserve := func(n int) (before int, tail uint64) {
		c.mu.Lock()
		defer c.unlock()
		before, c.reserved = c.reserved, n
		return before, c.tail
	}
	before, tail := reserve(0)
	c.mu.Lock()
	c.reserved = c.space() - 1
	c.unlock()
	ctx, cancel := context.WithTimeout(bounded(t), 50*time.Millisecond)
	defer cancel()
	if err := c.writeImm(ctx, m, 0, &Token{}, 0, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a WRITE without room returns %v", err)
	}
	if _, now := reserve(before); now != tail {
		t.Errorf("%d requests were posted", now-tail)
	}
	if err := c.writeImm(bounded(t), m, 0, &Token{}, 0, 7); err != nil {
		t.Fatal(err)
	}
	got, err := s.Recv(bounded(t))
	if imm, ok := good(t, got, err).Imm(); !ok || imm != 7 {
		t.Errorf("%d, %v", imm, ok)
	}
}

// TestSealedRenegotiation checks that keys are exported also if the program's configuration permits what TLS 1.3 does
// not have, or that the error says what to set.
func TestSealedRenegotiation(t *testing.T) {
	t.Parallel()
	config := &tls.Config{Renegotiation: tls.RenegotiateFreelyAsClient}
	here, _, err := provenSides(t, Options{Seal: true, TLS: config}, ListenOptions{})
	if err != nil || !here.Sealed() {
		t.Errorf("a client: %v", err)
	}
	_, _, err = provenSides(t, Options{Seal: true}, ListenOptions{Options: Options{TLS: config}})
	if !errors.Is(err, ErrUnauthenticated) || !strings.Contains(err.Error(), "GetConfigForClient") {
		t.Errorf("a listener: %v", err)
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
