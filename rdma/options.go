package rdma

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// Options configure connections. Nil stands for the zero Options, and the zero value of each field for
// its default. The two sides of a connection may have different ones. LocalAddr and Timeout are for Dial only.
type Options struct {
	// Depth is how many messages the peer may send before this side has released one: 32 by
	// default, at most 2048. Each takes EagerSize bytes of registered memory, and with TLS up to 79 more. With its first
	// call, a side registers as many more for replies, at most 63.
	Depth int
	// EagerSize is the length in bytes up to which messages of the peer are sent at once: 4096 by
	// default, 256 to 1 MiB. With TLS, receives are longer, by 16 bytes and up to the next multiple of 64: see Seal. The
	// peer offers longer messages, and this side reads them when it has memory for them. Recv allocates memory for the
	// message that it returns, and for the next one if that has at most 4 MiB. On a device without memory windows,
	// longer messages fail with [uverbs.ErrNotSupported].
	EagerSize int
	// MaxMessage limits the messages that the peer may send: 64 MiB by default, at most 1 GiB.
	MaxMessage int
	// Offers is how many messages longer than EagerSize may be on their way in each direction, and as many
	// replies, if the peer does not set less: 4 by default, at most 32, negative for none.
	Offers int

	// PrivateData is sent to the peer with the handshake: at most 24 bytes by Dial and 140 by a
	// listener.
	PrivateData []byte

	// LocalAddr is the address to dial from. If it is the zero AddrPort, the routing table decides.
	LocalAddr netip.AddrPort
	// Timeout limits Dial as a whole. If it is 0, the deadline of the context applies, or 30 seconds if
	// the context has no deadline.
	Timeout time.Duration
	// TOS is the type of service of the packets: see [cm.Options].
	TOS uint8

	// KeepAlive is how often this side asks the device of the peer for a sign of life while nothing
	// else is sent: 15 seconds by default, negative for never. The device replies without the peer's
	// program. If it does not, for example because its machine has lost power, the connection ends: after up to twice
	// this time, and the retransmissions of this side's device, which take about 8 seconds.
	KeepAlive time.Duration
	// IdleTimeout closes a connection on which no message, reply, cancel or release of messages was received for this
	// time; it may take twice as long. By default, and if it is negative, there is none. What the peer reads and writes by
	// one-sided operations does not count, since its device does it alone, nor does reading a long message of this
	// side. While the program has messages that it has not released, or calls to which it has not replied, the peer
	// waits for this side, and the connection is not closed, unless the peer accepts no replies. Calls of both sides
	// return a [*CloseError] with [CodeIdle].
	IdleTimeout time.Duration
	// Linger is how long Close waits until the peer has received what was sent: 5 seconds by default,
	// negative for not at all. If it passes before, Close returns [ErrUndelivered].
	Linger time.Duration

	// Polling is how long a call that waits polls before it sleeps: see [uverbs.CQ.SetPolling]. If it is 0, the library
	// chooses; if it is negative, calls sleep at once.
	Polling time.Duration

	// TLS makes both sides prove who they are when they connect, before Dial or Accept returns and before anything of the
	// program is sent: by TLS 1.3, and for this connection only. Both sides have to set it. A server sets Certificates;
	// with ClientCAs and ClientAuth, tls.RequireAndVerifyClientCert, it also requires certificates of clients. A client
	// sets RootCAs and, to prove who it is, Certificates. The certificate of a server has to have the host that is
	// dialed, or ServerName. If a side does not trust the other, Dial returns [ErrUnauthenticated] with the cause, and so
	// does ListenOptions.Refused. TLS does not encrypt what the program sends, reads and writes later: see Seal. By
	// default there is no proof, and anybody who reaches the port is served. [Conn.TLS] has the certificates.
	TLS *tls.Config

	// Seal encrypts and authenticates messages. Everything that the two sides send each other is sealed in its order:
	// messages, calls, replies and what the protocol sends, by AES-128-GCM, with keys that the handshake of TLS has agreed
	// on for this connection. It needs TLS, and is enough on one of the two sides. If the version of the other side cannot
	// seal, connecting fails with [ErrUnauthenticated]. If something was changed, repeated, dropped or added on its way,
	// the connection ends with [ErrForged].
	//
	// These are neither encrypted nor authenticated: [Conn.Read], [Conn.Write], batches, atomic operations, the data of
	// [Conn.WriteImm], memory that is shared, and keep-alives. A host on the same network can read what they move, and
	// forge some on memory that is shared. The immediate value and the length of a WriteImm are encrypted and
	// authenticated. Lengths, kinds and times of messages, and numbers of credits, can be seen.
	//
	// Each SEND has 16 bytes more, and with TLS each receive has room for them. Limits on sizes stay the same. On such a
	// connection ([Conn.Sealed]), SendBuffer and CallBuffer copy and release the buffer at once, and return
	// [uverbs.ErrInvalid] for a [RegionFunc] whose memory this process cannot read. Keys are changed long before what is
	// safe to encrypt with one. That gives no forward secrecy within a connection.
	Seal bool

	// Logger receives a record at level debug for each connection that begins or ends, and at level
	// warn for each peer that breaks the protocol. Nil stands for none.
	Logger *slog.Logger
	// Trace has functions that are called when something happens.
	Trace *Trace
}

// ListenOptions configure a [Listener] and its connections. Nil stands for the zero ListenOptions, and the zero value
// of each field for its default.
type ListenOptions struct {
	Options
	// Backlog is how many requests may wait for a handshake: see [cm.ListenOptions].
	Backlog int
	// MaxHandshakes is how many connections of a listener may be between request and Accept: 256 by default. Each has its
	// receives and its queues: see MaxMemory. Clients beyond it and Backlog receive [ErrServerBusy].
	MaxHandshakes int
	// MaxConns is how many connections of a listener may exist, and MaxConnsPerPeer how many of one IP address. Clients
	// beyond them receive [ErrServerLimit]: see [cm.ListenOptions] for the defaults.
	MaxConns, MaxConnsPerPeer int
	// MaxMemory limits the registered memory of a listener's connections, in bytes: their receives, their queues, and
	// messages longer than EagerSize until the program has released them. Clients beyond it receive
	// [ErrServerLimit]. A message beyond it waits until others are released: see [Conn.Recv]. By default, it is
	// three quarters of RLIMIT_MEMLOCK if the process has that limit, and otherwise half of the machine's memory or of
	// GOMEMLIMIT, which programs in a container should set. Negative stands for no limit. What the program allocates
	// and sends does not count.
	MaxMemory int64
	// MaxMemoryPerPeer is MaxMemory for the connections from one IP address: half of MaxMemory by default, so that no
	// single host can lock out others, negative for no limit. A listener's MaxMessage is not larger than what it has
	// room for.
	MaxMemoryPerPeer int64
	// SharedReceives is how many receives of EagerSize bytes the connections of a listener share at each device: 16 to
	// 32767, if the device supports SRQs of that size. By default, each connection has its own. A client may then send
	// two messages at first, and up to Depth when it has used that and half of MaxMemory and of MaxMemoryPerPeer are
	// free. If receives are short, messages that no program has received are copied into memory that is not registered
	// and counts in MaxMemory. A client with an earlier version of this package may send two messages at a time. The send
	// queues of such connections are short, so that a connection with the default options locks 16 KiB.
	//
	// Shared receives are experimental: on soft-RoCE, the connection of a client whose message finds no receive for 4.6 s
	// ends. Share them among clients that you trust: a device lets every client use any of them. A client that does not
	// follow the protocol can take receives from others for as long as its connection exists, by beginning messages and
	// not finishing them, and for good, by sending more than it has credits for.
	SharedReceives int
	// HandshakeTimeout limits how long a listener waits for a peer that does not complete its
	// handshake: ten seconds by default.
	HandshakeTimeout time.Duration

	// Refused is called when the listener refuses a client, by several goroutines at the same time. The port of peer is 0
	// if the listener has no room for a further connection or handshake. It may call the methods of the listener except
	// Close, and must not block.
	Refused func(peer netip.AddrPort, err error)
}

// Limits of Options and of what a peer may ask for.
const (
	defaultDepth      = 32
	maxDepth          = 2048
	defaultEager      = 4096
	minEager          = 256
	maxEager          = 1 << 20
	defaultMaxMessage = 64 << 20
	maxMessage        = 1 << 30
	defaultOffers     = 4
	maxOffers         = 32
	defaultKeepAlive  = 15 * time.Second
	defaultLinger     = 5 * time.Second
	minShared         = 16
	maxShared         = 1<<15 - 1
)

// complete returns a copy of o with the defaults filled in.
func (o *Options) complete(maxData int) (*Options, error) {
	full := Options{}
	if o != nil {
		full = *o
	}
	full.Depth = orDefault(full.Depth, defaultDepth)
	full.EagerSize = orDefault(full.EagerSize, defaultEager)
	full.MaxMessage = orDefault(full.MaxMessage, max(defaultMaxMessage, full.EagerSize))
	full.Offers = max(orDefault(full.Offers, defaultOffers), 0)
	full.KeepAlive = orDefault(full.KeepAlive, defaultKeepAlive)
	full.Linger = max(orDefault(full.Linger, defaultLinger), 0)
	for _, f := range []struct {
		name          string
		value, lo, hi int
	}{
		{"Depth", full.Depth, 1, maxDepth},
		{"EagerSize", full.EagerSize, minEager, maxEager},
		{"MaxMessage", full.MaxMessage, full.EagerSize, maxMessage},
		{"Offers", full.Offers, 0, maxOffers},
	} {
		if f.value < f.lo || f.value > f.hi {
			return nil, fmt.Errorf("%w: Options.%s is %d: set it to %d to %d", uverbs.ErrInvalid, f.name, f.value, f.lo, f.hi)
		}
	}
	if n := len(full.PrivateData); n > maxData {
		return nil, fmt.Errorf("%w: Options.PrivateData has %d bytes: there is room for %d", ErrTooLong, n, maxData)
	}
	return &full, nil
}

func orDefault[T int | time.Duration](n, d T) T {
	if n == 0 {
		return d
	}
	return n
}

// receiveAlign is the length of a cache line: receives begin at multiples of it if EagerSize is one.
const receiveAlign = 64

// receiveLen returns the length of receives in bytes. With TLS, messages may be sealed.
func (o *Options) receiveLen() int {
	if o.TLS != nil {
		return (o.EagerSize + tagLen + receiveAlign - 1) &^ (receiveAlign - 1)
	}
	return o.EagerSize
}

func (o *Options) hello() hello {
	h := hello{versions: spoken, features: allFeatures, depth: o.Depth, eager: o.EagerSize, offers: o.Offers,
		maxMessage: o.MaxMessage, data: o.PrivateData}
	if o.TLS != nil {
		h.features |= featureTLS | featureCanSeal
	}
	if o.Seal {
		h.features |= featureWantsSeal
	}
	return h
}

// hello returns the hello of a listener.
func (o *ListenOptions) hello() *hello {
	h := o.Options.hello()
	if o.SharedReceives > 0 {
		h.depth, h.fields = guaranteed(h.depth), windowField(h.depth)
	}
	return &h
}

// complete returns a copy of o with the defaults filled in.
func (o *ListenOptions) complete() (*ListenOptions, error) {
	full := ListenOptions{}
	if o != nil {
		full = *o
	}
	of, err := full.Options.complete(maxAcceptData)
	if err != nil {
		return nil, err
	}
	full.Options = *of
	if n := full.SharedReceives; n < 0 || n > maxShared || n > 0 && n < minShared {
		return nil, fmt.Errorf("%w: ListenOptions.SharedReceives is %d: set it to %d to %d, or to 0 for none",
			uverbs.ErrInvalid, n, minShared, maxShared)
	}
	return &full, nil
}

// cm returns the options for package cm.
func (o *Options) cm() cm.Options {
	h := o.hello()
	return cm.Options{PrivateData: h.bytes(), LocalAddr: o.LocalAddr, Timeout: o.Timeout, TOS: o.TOS}
}

// cm returns the options of a listener for package cm.
func (o *ListenOptions) cm() cm.ListenOptions {
	co := o.Options.cm()
	co.PrivateData = o.hello().bytes()
	return cm.ListenOptions{Options: co, Backlog: o.Backlog, MaxHandshakes: o.MaxHandshakes,
		HandshakeTimeout: o.HandshakeTimeout, MaxConns: o.MaxConns, MaxConnsPerPeer: o.MaxConnsPerPeer}
}

// A Trace has functions that are called when something happens. Any of them may be nil. They are called by
// the goroutine that notices it, those of one connection in the order of events, and must not block, panic or call
// [Client.Close]. They may call the methods of the connection, except Close, CloseWithError, Shutdown, and those that
// wait.
type Trace struct {
	// Connected is called when a connection is established.
	Connected func(c *Conn)
	// Ended is called once for each connection, with what [Conn.Err] returns from then on.
	Ended func(c *Conn, err error)
	// Stalled is called after a call has waited because the peer had not released the messages
	// before or not replied to 1024 calls, or the send queue was full.
	Stalled func(c *Conn, d time.Duration)
}
