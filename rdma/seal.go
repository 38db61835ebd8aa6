package rdma

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// This file has the keys of sealed connections, and what they do with bytes. Messages are sealed by AES-128-GCM. What
// the keys are derived from is exported by the handshake of TLS, and is bound to the digest of the connection. Each
// direction has two sealers: one for SENDs and one for the memory of long messages. A sealer numbers what it seals, and
// changes its key by number, so that both sides do it without a message.
//
// A sealer derives all its keys from one secret, which is in memory as long as the connection. So a change of the key
// limits how much one key encrypts. It gives no forward secrecy: whoever gets the secret can open everything that was
// sealed on this connection. Other connections have other secrets.

const (
	tagLen    = 16 // what a seal adds
	nonceLen  = 12
	sealLen   = 16 // of a key: AES-128
	secretLen = sha256.Size

	sealLabel = "EXPORTER-goverbs-rdma-seal"

	// maxBlocks is how many blocks of 16 bytes one key encrypts at most. That is less than what RFC 8446, section 5.5,
	// permits: 2^24.5 records of 2^14 bytes.
	maxBlocks = 1 << 34
)

// A sealer has the keys for what one side seals and the other opens.
type sealer struct {
	secret []byte
	shift  int         // a key is for 1<<shift numbers
	number uint64      // of the next message
	epoch  uint64      // number of the key
	aead   cipher.AEAD // with the key
	iv     [nonceLen]byte

	// These are here and not on the stack, where a call of the AEAD would allocate them.
	nonce  [nonceLen]byte
	header [4]byte // immediate data
	broken bool    // something could not be opened
}

// newSealer returns a sealer for messages of up to longest bytes.
func newSealer(secret []byte, longest int) (*sealer, error) {
	blocks := uint64(longest)/aes.BlockSize + 2 // with what is left, and that of the tag
	s := &sealer{secret: secret, shift: bits.Len64(maxBlocks/blocks) - 1}
	return s, s.setKey(0)
}

// setKey derives a key.
func (s *sealer) setKey(epoch uint64) error {
	b, err := hkdf.Expand(sha256.New, s.secret, fmt.Sprint("goverbs rdma key ", epoch), sealLen+nonceLen)
	if err != nil {
		return err
	}
	block, err := aes.NewCipher(b[:sealLen])
	if err != nil {
		return err
	}
	if s.aead, err = cipher.NewGCM(block); err != nil {
		return err
	}
	s.epoch = epoch
	copy(s.iv[:], b[sealLen:])
	return nil
}

// prepare sets the key, and nonce, for a number.
func (s *sealer) prepare(number uint64, nonce *[nonceLen]byte) error {
	if epoch := number >> s.shift; epoch != s.epoch {
		if err := s.setKey(epoch); err != nil {
			return err
		}
	}
	be := binary.BigEndian
	copy(nonce[:4], s.iv[:4])
	be.PutUint64(nonce[4:], be.Uint64(s.iv[4:])^number)
	return nil
}

// errSealRoom means that bytes to be sealed have no room for their tag. Otherwise the AEAD would put it elsewhere, and
// what is sent would not be sealed.
var errSealRoom = errors.New("rdma: no room for the tag of a sealed SEND")

// seal encrypts the first n bytes of b in place, and adds a tag for them and for the immediate data. After an error,
// the caller ends the connection.
func (s *sealer) seal(imm uint32, b []byte, n int) error {
	if len(b) < n+tagLen {
		return fmt.Errorf("%w: %d bytes of %d", errSealRoom, n, len(b))
	}
	if err := s.prepare(s.number, &s.nonce); err != nil {
		return err
	}
	s.number++
	binary.BigEndian.PutUint32(s.header[:], imm)
	s.aead.Seal(b[:0], s.nonce[:], b[:n], s.header[:])
	return nil
}

// open decrypts b in place, and returns how many bytes it has without the tag. After an error, nothing can be opened
// any more.
func (s *sealer) open(imm uint32, b []byte) (n int, err error) {
	if err := s.prepare(s.number, &s.nonce); err != nil {
		return 0, err
	}
	binary.BigEndian.PutUint32(s.header[:], imm)
	if !s.broken {
		_, err = s.aead.Open(b[:0], s.nonce[:], b, s.header[:])
	}
	if s.broken = s.broken || err != nil; s.broken {
		return 0, fmt.Errorf("%w: SEND %d was changed on its way, or another one was lost, repeated or added", ErrForged,
			s.number)
	}
	s.number++
	return len(b) - tagLen, nil
}

// A longSeal has what is needed to seal or to open the memory of a long message. Its methods may be called while others
// use the sealer.
//
// The memory is as long as the message, so that limits and sizes of memory are those of connections that are not
// sealed: it has the tag in its last bytes, and the last bytes of the message travel with the offer.
type longSeal struct {
	number uint64
	aead   cipher.AEAD
	nonce  [nonceLen]byte
	tail   [tagLen]byte // the last bytes of the message
}

// longSealLen is what an offer has of a longSeal: its number and its tail.
const longSealLen = 8 + tagLen

// prepareLong sets the key of x for a number. The numbers of what is opened need not grow: offers are not in the order
// of their numbers if calls wait for different things, or end before they have offered. Each number arrives in an
// offer, which is sealed by itself, so that nobody but the peer has chosen it, and no offer is opened twice.
func (s *sealer) prepareLong(x *longSeal, number uint64) error {
	if err := s.prepare(number, &x.nonce); err != nil {
		return err
	}
	x.number, x.aead = number, s.aead
	return nil
}

// seal seals a message in place.
func (x *longSeal) seal(b []byte) {
	n := len(b) - tagLen
	if n < 0 {
		copy(x.tail[:], b)
		clear(b)
		return
	}
	copy(x.tail[:], b[n:])
	x.aead.Seal(b[:0], x.nonce[:], b[:n], nil)
}

// open opens a message in place.
func (x *longSeal) open(b []byte) error {
	n := len(b) - tagLen
	if n < 0 {
		copy(b, x.tail[:])
		return nil
	}
	if _, err := x.aead.Open(b[:0], x.nonce[:], b, nil); err != nil {
		return fmt.Errorf("%w: the memory of long message %d was changed on its way", ErrForged, x.number)
	}
	copy(b[n:], x.tail[:])
	return nil
}

// put encodes what an offer has of x.
func (x *longSeal) put(b []byte) {
	binary.LittleEndian.PutUint64(b, x.number)
	copy(b[8:longSealLen], x.tail[:])
}

// seals are a connection's part for sealed messages.
type seals struct {
	tx, rx           *sealer // for SENDs
	txLong, rxLong   *sealer
	sending, opening bool // a kindSeal was sent, and one has arrived
	unread           int  // messages before the kindSeal that have arrived and were not read
	out              []byte
	idle             []*longSeal
}

// newSeals returns the keys of a connection, whose sides have sent the hellos here and there. This side has the role
// own.
func newSeals(t *tls.ConnectionState, digest []byte, own role, here, there *hello) (*seals, error) {
	secrets, err := t.ExportKeyingMaterial(sealLabel, digest, 4*secretLen)
	if err != nil {
		return nil, fmt.Errorf("no keys for Options.Seal: if Options.TLS.GetConfigForClient is set, its result must have "+
			"Renegotiation tls.RenegotiateNever: %w", err)
	}
	cut := func() []byte {
		secret := secrets[:secretLen:secretLen]
		secrets = secrets[secretLen:]
		return secret
	}
	s := &seals{}
	for _, sender := range []role{client, server} {
		sends, long, receiver := &s.rx, &s.rxLong, here
		if sender == own {
			sends, long, receiver = &s.tx, &s.txLong, there
		}
		if *sends, err = newSealer(cut(), receiver.eager); err != nil {
			return nil, err
		}
		if *long, err = newSealer(cut(), receiver.maxMessage); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// newLong returns a longSeal that nothing uses.
func (s *seals) newLong() *longSeal {
	n := len(s.idle)
	if n == 0 {
		return &longSeal{}
	}
	x := s.idle[n-1]
	s.idle = s.idle[:n-1]
	return x
}

func (s *seals) freeLong(x *longSeal) { s.idle = append(s.idle, x) }

// nextLong returns that of the next long message.
func (s *seals) nextLong() (*longSeal, error) {
	x := s.newLong()
	err := s.txLong.prepareLong(x, s.txLong.number)
	s.txLong.number++
	return x, err
}

// parseLong returns that of an offer that has arrived.
func (s *seals) parseLong(b []byte) (*longSeal, error) {
	x := s.newLong()
	copy(x.tail[:], b[8:longSealLen])
	return x, s.rxLong.prepareLong(x, binary.LittleEndian.Uint64(b))
}
