package perftest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// A wire carries the messages of a control connection.
type wire interface {
	// send sends a message to the peer, in one piece.
	send(ctx context.Context, message []byte) error
	// receive fills message with the peer's next message.
	receive(ctx context.Context, message []byte) error
	// state returns the number of bytes that have arrived and were not received, and
	// the reason why the connection has ended, or nil.
	state() (pending int, gone error)
	close() error
}

// patience is how long the peer may take for a message while the test is prepared.
const patience = 30 * time.Second

var errSilentPeer = atPeer("", "the peer has been silent for %v: does it run the same test, with the same options?",
	patience)

// errNoVersion is the error of a peer that does not send its version.
var errNoVersion = atPeer("-p",
	"the program there has sent nothing for %v, but perftest begins with its version: is the port right?", patience)

// A control is the control connection, over which the two ends exchange parameters,
// keys and results.
type control struct {
	wire
	client  bool
	withGID bool  // keys have GIDs
	binary  bool  // keys are in binary form
	peer    *keys // of the peer's first QP, once known
}

// exchange sends a message to the peer and receives one of the same length. The
// client's message is always first.
func (c *control) exchange(ctx context.Context, out []byte) ([]byte, error) {
	in := make([]byte, len(out))
	if c.client {
		if err := c.send(ctx, out); err != nil {
			return nil, err
		}
		return in, c.receive(ctx, in)
	}
	if err := c.receive(ctx, in); err != nil {
		return nil, err
	}
	return in, c.send(ctx, out)
}

// swap exchanges keys.
func (c *control) swap(ctx context.Context, own keys) (keys, error) {
	out, parse := own.text(c.withGID), parseKeys
	if c.binary {
		out, parse = own.binary(), parseBinaryKeys
	}
	in, err := c.exchange(ctx, out)
	if err != nil {
		return keys{}, err
	}
	return parse(in)
}

// sync synchronizes the two ends by an exchange of the keys of their first QPs.
func (c *control) sync(ctx context.Context, own keys) error {
	k, err := c.swap(ctx, own)
	if err == nil && c.peer != nil && k.qpn != c.peer.qpn {
		return atPeer("-q",
			"the peer's keys are not those of its first queue pair: it has more queue pairs, or runs another test")
	}
	return err
}

// syncSoon is sync with the timeout patience.
func (c *control) syncSoon(ctx context.Context, own keys) error {
	return withPatience(ctx, func(ctx context.Context) error { return c.sync(ctx, own) })
}

// withPatience calls f with the timeout patience.
func withPatience(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errSilentPeer)
	defer cancel()
	return f(ctx)
}

// Version is the version of perftest whose protocol this is.
const Version = "6.24"

// minVersion is the oldest version that perftest 6.24 accepts.
const minVersion = 5.70

var versionPattern = regexp.MustCompile(`\A(\d+\.\d+)[0-9.]*\z`)

// agree exchanges the versions, and agrees on the size of the buffers of small messages
// and on the MTU.
func (c *control) agree(ctx context.Context, o *Options) error {
	return withPatience(ctx, func(ctx context.Context) error {
		own := make([]byte, 16)
		copy(own, Version)
		in, err := c.exchange(ctx, own)
		if errors.Is(err, errSilentPeer) {
			return errNoVersion
		}
		if err != nil {
			return err
		}
		if err := checkVersion(in); err != nil {
			return err
		}
		for _, v := range []*int{&o.cycle, &o.cacheLine} {
			in, err := c.exchange(ctx, binary.BigEndian.AppendUint32(nil, uint32(*v)))
			if err != nil {
				return err
			}
			*v = max(*v, int(int32(binary.BigEndian.Uint32(in))))
		}
		if o.cycle > maxCycle || o.cacheLine > o.cycle {
			return atPeer("", "the peer requests buffers of %d bytes with cache lines of %d: it is not perftest",
				o.cycle, o.cacheLine)
		}
		in, err = c.exchange(ctx, []byte{'0' + byte(o.mtu), 0})
		if err != nil {
			return err
		}
		mtu := uverbs.MTU(in[0] - '0')
		if in[1] != 0 || mtu.Bytes() == 0 {
			return atPeer("", "the peer's MTU is %q, not one of 1 to 5: it is not perftest", in)
		}
		o.mtu = min(o.mtu, mtu)
		return nil
	})
}

// maxCycle limits the memory that a peer can make this end allocate.
const maxCycle = 1 << 20

func checkVersion(in []byte) error {
	text := string(bytes.TrimRight(in, "\x00"))
	if regexp.MustCompile(`\A[0-9a-f]{4}:`).MatchString(text) {
		return atPeer("--dont_xchg_versions", "the peer does not send its version, which is required: leave the option out")
	}
	version := versionPattern.FindStringSubmatch(text)
	if version == nil {
		return atPeer("", "the peer does not use perftest's protocol: it sent %q in place of its version", text)
	}
	if number, _ := strconv.ParseFloat(version[1], 64); number < minVersion {
		return atPeer("", "the peer is perftest %s, and version %.2f is the oldest that this one, %s, supports", text,
			minVersion, Version)
	}
	return nil
}

// A bwReport is the result of one end in a bandwidth test.
type bwReport struct {
	size, iters     uint64
	peak, avg, rate float64 // peak and avg in the unit of the end that reports; rate in millions of messages per second
}

// reports exchanges the results of both ends, field by field.
func (c *control) reports(ctx context.Context, own bwReport) (peer bwReport, err error) {
	fields := []uint64{own.size, own.iters, math.Float64bits(own.peak), math.Float64bits(own.avg),
		math.Float64bits(own.rate)}
	for i, v := range fields {
		in, err := c.exchange(ctx, binary.BigEndian.AppendUint64(nil, v))
		if err != nil {
			return peer, err
		}
		fields[i] = binary.BigEndian.Uint64(in)
	}
	return bwReport{fields[0], fields[1], number(fields[2]), number(fields[3]), number(fields[4])}, nil
}

// number returns a figure of the peer, or 0 if it is not a number: C's peak may be
// infinite.
func number(bits uint64) float64 {
	f := math.Float64frombits(bits)
	if !(f >= 0) || math.IsInf(f, 0) { // also rejects NaN
		return 0
	}
	return f
}

// errPeerClosed is returned when the connection ends where a message is expected.
var errPeerClosed = errors.New("the peer has ended the connection: its output says why, or it runs another test or " +
	"has other options")
