package rdma

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// sealerPair returns a sealer and the one of the peer.
func sealerPair(t testing.TB, longest int) (tx, rx *sealer) {
	t.Helper()
	secret := make([]byte, secretLen)
	for i := range secret {
		secret[i] = byte(i)
	}
	tx, err := newSealer(secret, longest)
	good(t, tx, err)
	rx, err = newSealer(secret, longest)
	return tx, good(t, rx, err)
}

// TestSealer checks what is sealed, and that a change of any bit of it is found.
func TestSealer(t *testing.T) {
	tx, _ := sealerPair(t, defaultEager)
	text := []byte("a message")
	b := append(bytes.Clone(text), make([]byte, tagLen)...)
	if err := tx.seal(7, b, len(text)); err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * (len(b) + 4) {
		_, rx := sealerPair(t, defaultEager)
		got, imm := bytes.Clone(b), uint32(7)
		if i := bit / 8; i < len(b) {
			got[i] ^= 1 << (bit % 8)
		} else {
			imm ^= 1 << (bit - 8*len(b))
		}
		if n, err := rx.open(imm, got); !errors.Is(err, ErrForged) || n != 0 || bytes.Contains(got, text) {
			t.Errorf("bit %d: %d bytes, %v", bit, n, err)
		}
		if n, err := rx.open(7, bytes.Clone(b)); !errors.Is(err, ErrForged) {
			t.Errorf("bit %d: %d bytes are opened after what was forged, %v", bit, n, err)
		}
	}
	_, rx := sealerPair(t, defaultEager)
	if n, err := rx.open(7, b); err != nil || !bytes.Equal(b[:n], text) {
		t.Errorf("%q, %v", b[:n], err)
	}
}

// TestSealerKeys checks that both sides change their keys at the same number, and that no key encrypts more than is
// safe.
func TestSealerKeys(t *testing.T) {
	for _, longest := range []int{minEager, defaultEager, maxEager, defaultMaxMessage, maxMessage} {
		s, _ := sealerPair(t, longest)
		blocks := (uint64(longest)+15)/16 + 1
		if n := blocks << s.shift; n > maxBlocks || n < maxBlocks/4 {
			t.Errorf("messages of %d bytes: a key encrypts %d blocks, of %d", longest, n, uint64(maxBlocks))
		}
	}
	tx, rx := sealerPair(t, defaultEager)
	tx.shift, rx.shift = 2, 2
	seen := map[string]bool{}
	for i := range 12 {
		b := make([]byte, 8+tagLen)
		if err := tx.seal(0, b, 8); err != nil {
			t.Fatal(err)
		}
		if seen[string(b)] || tx.epoch != uint64(i)/4 {
			t.Errorf("message %d: key %d, and %x", i, tx.epoch, b)
		}
		seen[string(b)] = true
		if n, err := rx.open(0, b); n != 8 || err != nil || !bytes.Equal(b[:8], make([]byte, 8)) {
			t.Errorf("message %d: %d bytes, %v", i, n, err)
		}
	}
}

// TestLongSeal checks the memory of long messages of all lengths, which are opened in another order, with other keys.
func TestLongSeal(t *testing.T) {
	tx, rx := sealerPair(t, maxMessage)
	tx.shift, rx.shift = 1, 1
	var all []*longSeal
	var sealed [][]byte
	message := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(n + i)
		}
		return b
	}
	for n := range 40 {
		x := &longSeal{}
		if err := tx.prepareLong(x, uint64(n)); err != nil {
			t.Fatal(err)
		}
		b := message(n)
		x.seal(b)
		if n > 0 && bytes.Equal(b, message(n)) {
			t.Errorf("%d bytes are not sealed", n)
		}
		all, sealed = append(all, x), append(sealed, b)
	}
	for n := 39; n >= 0; n-- {
		var encoded [longSealLen]byte
		all[n].put(encoded[:])
		s := &seals{rxLong: rx}
		x, err := s.parseLong(encoded[:])
		good(t, x, err)
		for _, bit := range []int{0, 8*n - 1} {
			if forged := bytes.Clone(sealed[n]); n >= tagLen {
				forged[bit/8] ^= 1 << (bit % 8)
				if err := x.open(forged); !errors.Is(err, ErrForged) {
					t.Errorf("%d bytes, bit %d: %v", n, bit, err)
				}
			}
		}
		if err := x.open(sealed[n]); err != nil || !bytes.Equal(sealed[n], message(n)) {
			t.Errorf("%d bytes: %x, %v", n, sealed[n], err)
		}
	}
}

// TestSealedKeyChange checks that connections change their keys while messages of all kinds are on their way.
func TestSealedKeyChange(t *testing.T) {
	c, s := sealedSides(t, Options{})
	for _, side := range []*Conn{c, s} {
		side.mu.Lock()
		k := side.seal
		k.tx.shift, k.rx.shift, k.txLong.shift, k.rxLong.shift = 2, 2, 1, 1
		side.mu.Unlock()
	}
	served := make(chan error, 1)
	go func() { served <- s.ServeCalls(bounded(t), func(b []byte) []byte { return b }) }()
	for i := range 30 {
		b := make([]byte, 1+i*500)
		m, err := c.Call(bounded(t), b)
		if got := good(t, m, err).Copy(); !bytes.Equal(got, b) {
			t.Errorf("a reply of %d bytes to %d", len(got), len(b))
		}
	}
	c.mu.Lock()
	if k := c.seal; k.tx.epoch < 7 || k.rx.epoch < 7 || k.txLong.epoch < 5 || k.rxLong.epoch < 5 {
		t.Errorf("the keys are %d, %d, %d and %d", k.tx.epoch, k.rx.epoch, k.txLong.epoch, k.rxLong.epoch)
	}
	c.mu.Unlock()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestSealAllocations checks that nothing is allocated to seal and to open.
func TestSealAllocations(t *testing.T) {
	tx, rx := sealerPair(t, maxMessage)
	b, x := make([]byte, 5000), &longSeal{}
	for name, f := range map[string]func() error{
		"SEND": func() error {
			err := tx.seal(1, b, 64)
			if err == nil {
				_, err = rx.open(1, b[:64+tagLen])
			}
			return err
		},
		"long message": func() error {
			err := tx.prepareLong(x, tx.number)
			if err == nil {
				x.seal(b)
				err = x.open(b)
			}
			return err
		},
	} {
		if n := testing.AllocsPerRun(100, func() {
			if err := f(); err != nil {
				t.Error(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestWireEncodesSealed is TestWireEncodes for sealed connections. The keys are those of sealerPair.
func TestWireEncodesSealed(t *testing.T) {
	tx, _ := sealerPair(t, defaultEager)
	long, _ := sealerPair(t, defaultMaxMessage)
	frame := func(k kind, number int, body []byte) []byte {
		imm := packImm(k, credits{}, number)
		b := append(body, make([]byte, tagLen)...)
		if err := tx.seal(imm, b, len(body)); err != nil {
			t.Fatal(err)
		}
		return append(binary.BigEndian.AppendUint32(nil, imm), b...)
	}
	message := bytes.Repeat([]byte("0123456789"), 500)
	x := &longSeal{}
	if err := long.prepareLong(x, 0); err != nil {
		t.Fatal(err)
	}
	x.seal(message)
	var o [sealedOfferLen]byte
	(&offer{kind: kindMessage, length: uint64(len(message))}).put((*[offerLen]byte)(o[:]))
	x.put(o[offerLen:])
	h := honestHello()
	h.features = featureCancel | featureTrailers | featureWindow | featureTLS | featureCanSeal | featureWantsSeal
	w := wire{"hello client": h.bytes()}
	for _, f := range []struct {
		name string
		b    []byte
	}{ // in the order of their numbers
		{"frame seal", frame(kindSeal, 0, nil)},
		{"frame message", frame(kindMessage, 0, []byte("hi"))},
		{"frame credits", frame(kindCredits, 1, nil)},
		{"frame offer", frame(kindOffer, 0, o[:])},
		{"frame written", frame(kindWritten, 0, []byte{1, 2, 3, 4, 0, 16, 0, 0})},
		{"memory end", message[len(message)-32:]},
	} {
		w[f.name] = f.b
	}
	w.isKept(t, "sealed1.txt")
}
