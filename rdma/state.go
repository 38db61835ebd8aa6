package rdma

import (
	"context"
	"crypto/tls"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/lead"
	"github.com/goverbs/goverbs/uverbs"
)

// This file has what a connection consists of. Each part has a file with its functions.

// A Conn is a connection. Its methods may be called concurrently.
type Conn struct {
	cm   *cm.Conn
	qp   *uverbs.QP
	cq   *uverbs.CQ
	pool *pool

	poolClosed  bool // belongs to receiving
	account     account
	options     *Options
	remote      hello // what the peer has said
	tls         *tls.ConnectionState
	handshaking bool // the handshake of TLS has not succeeded, and the program does not know the Conn; belongs to mu
	local       netip.AddrPort
	peer        netip.AddrPort
	inline      int // SENDs up to this length need no memory
	tag         int // what seal adds to a SEND: inline is without it
	seal        *seals

	mu sync.Mutex
	ending
	hooks
	stats counters

	waits
	wcs [32]uverbs.WC // of the leader

	sendQueue
	receiveQueue
	messages flow
	replies  flow
	cancels  flow
	control  control
	calls    calls
	contexts map[*callContext]struct{} // that have not ended
	draining bool                      // by Listener.Shutdown
	handles
	// canceling is whether a goroutine waits until the cancels are sent.
	canceling bool
	ctx       *callContext // of messages that are not calls, or nil
	windows   []window     // for offers
	shares    map[*Share]struct{}
	idleOps   *op

	idleWatch
	keepAlive *time.Timer
	busy      bool // something was sent to the peer since the timer last ran

	watcher watcher // of a test, or nil
	closed  func()  // ends the watch of the connection; nil if watcher is
}

// hooks are calls of a Trace or a Logger that are to come. They are made in order and without c.mu, so that a function
// of a Trace may call methods of the connection.
type hooks struct {
	queued  []func()
	running bool // a goroutine makes the calls

	starting bool // calls wait until the program knows the connection: see startShared
}

// waits is a connection's part for calls that wait.
type waits struct {
	waiters     lead.Waiters
	idleWaiters []*lead.Waiter
	turns       uint64    // number of the last call that began to wait
	handling    bool      // completions are being handled: see fail
	leaderDone  sync.Cond // the leader has handled what it has polled
}

// sendQueue is a connection's part for requests of this side.
type sendQueue struct {
	requests   []request // by number, modulo its length, which is a power of two
	head, tail uint64    // numbers of the oldest request that has not completed, and of the next
	depth      int       // of the queue
	reserved   int       // requests for the protocol: see sends
	signaled   uint64    // number of the last request that has a completion
	signalEach uint64    // requests
	probed     uint64    // number of the request after the last one of the keepalive
	fences     bool      // see fencesBinds
	binds      bool      // see bindsReadOnly
}

// A request is one in the send queue. Its number is its WRID.
type request struct {
	m      *memory // it uses, or nil
	op     *op     // that waits for it, or nil
	offer  *incoming
	window *window // that it invalidates, or nil

	carries uint8 // 1 more than the kind of what it sends, if that is a message, a call or a reply, or 0
}

// An op is a call that waits for completions. Its fields belong to c.mu.
type op struct {
	pending   int // requests
	err       error
	waiter    *lead.Waiter
	abandoned bool   // its call has returned
	proof     bool   // it reads a part of an offered message
	share     *Share // whose window it binds, or nil
	next      *op
}

// receiveQueue is a connection's part for messages of the peer.
type receiveQueue struct {
	slots []memory // one for each receive; those of shared if it is not nil

	sharing    *sharedSet // of the listener, or nil
	shared     *shared    // of sharing, or nil
	left       bool       // shared was left; belongs to receiving
	widened    int64      // bytes that are counted for credits: see widen
	inHand     int        // slot of the SEND that is being handled, unless it was posted again; for shared
	filled     int        // how many of slots have memory
	slabs      []*slab
	registered atomic.Int64 // bytes of slabs
	// receiving is held to register receives, which also sets filled and slabs, and when they are deregistered.
	receiving sync.Mutex
	arrived   []Message // a ring
	first     int       // of arrived
	count     int       // of arrived

	idleIncoming []*incoming
}

// recvBit marks receives in WRIDs.
const recvBit = 1 << 63

// A flow has the credits for messages, or those for replies.
type flow struct {
	credits  int // messages that the peer has receives for
	most     int // of credits
	receives int // of this side
	granted  int // credits that the peer has
	owed     int // credits that it is to get
	offers   int // of the peer that have not been read
	withheld int // how many more receives this side may have: see widen
}

// control is what the protocol is to send when there is room.
type control struct {
	credits    bool // for messages
	invalidate bool
	taken      []int // numbers of offers that have been read
	cancels    []int // numbers of calls that are to be canceled
}

// A window is a memory window for offers. Its index is the number of the offer.
type window struct {
	mw     *uverbs.MW
	rkey   uint32
	number int
	kind   kind // kindReply if the window is for replies
	state  windowState
	m      *memory // that is offered

	carries kind  // of what is offered
	flushes []*op // of calls of Flush that wait for it
}

type windowState uint8

const (
	windowIdle       windowState = iota
	windowAllocating             // by a call
	windowOffered                // the peer may read
	windowTaken                  // the peer has read: to be invalidated
	windowClosing                // the request that invalidates it is posted
)

// An incoming is a message that the peer has offered. Its fields belong to c.mu.
type incoming struct {
	offer   offer
	number  int       // of the offer
	seal    *longSeal // nil if it is not sealed
	m       *memory   // into which it is read
	proofs  int       // how many ends of it could be read: see prove
	grows   bool      // a call waits for memory for it, or registers it
	reading bool
	done    bool
	dropped bool // no call waits for it
	call    *call
}

// calls are the calls of this side and those of the peer.
type calls struct {
	all     []*call // by number
	free    []int   // numbers
	pending int     // calls that the peer has not replied to
	asked   []asked // calls of the peer, by number
	serial  uint32

	replying      int           // replies that wait for the peer
	replyPatience time.Duration // see replyPatience
}

// An asked is the last call of the peer with a number.
type asked struct {
	serial   uint32       // 0 after the reply
	canceled bool         // the peer has sent a cancel, or no call yet
	ctx      *callContext // or nil
	terms    terms        // zero without a trailer
	out      *outgoing    // metadata of the reply, or nil
}

// terms are what the peer has sent in the trailer of a call or a reply.
type terms struct {
	deadline time.Time // of a call; zero without one
	pairs    []byte    // of metadata, as in a trailer
}

// A call waits for a reply.
type call struct {
	number  int
	used    bool // no other call may have the number
	waiting bool // a caller waits
	sent    bool // the caller waits for the reply
	replied bool
	// canceled is whether the peer is to get a cancel, or has.
	canceled bool
	m        Message
	err      error                         // in place of m, or nil
	into     *memory                       // into which a long reply is read, or nil
	trailer  [timeoutLen + trailerLen]byte // of a call without metadata
	waiter   *lead.Waiter
}

// handles are a connection's part for Handle.
type handles struct {
	used        bool  // Handle was called
	maxHandlers int   // 0 without a call of Handle
	handlers    int   // that run, and calls that are being refused
	fetches     int   // goroutines that register memory for messages
	unreadable  error // why a message that is not a call could not be read, or nil
}

// A callContext is the context of a call of the peer, or of messages.
type callContext struct {
	context.Context
	cancel  context.CancelCauseFunc
	c       *Conn
	watched atomic.Bool // a goroutine waits
}

// idleWatch is a connection's part for Options.IdleTimeout.
type idleWatch struct {
	idleTimer *time.Timer // nil without a timeout
	heard     bool        // something was received since the timer last ran
}

// ending is a connection's part for its end.
type ending struct {
	err        error                   // why the connection has ended, or nil
	failure    error                   // what ends it; nil before
	eof        bool                    // the peer has sent everything
	closing    bool                    // Close was called
	reason     *CloseError             // of CloseWithError, or nil
	endFlush   context.CancelCauseFunc // ends the wait of Close
	done       chan struct{}           // closed when Close has ended
	flushed    error                   // what Close returns of its wait for the peer, when it has ended
	unreleased bool                    // Close has failed to release resources
	releasing  sync.Mutex              // locked by further calls of Close, before mu
	failed     tally                   // requests that have failed
	unreceived int                     // messages that a peer which has closed the connection has not received
}

// counters are a connection's part for Stats.
type counters struct {
	sent, sentBytes         uint64
	received, receivedBytes uint64
	operations              uint64
	stalls                  uint64
	stallTime               time.Duration
	callErrors              uint64
	callTimes               *Histogram // nil before the first reply
}

// A watcher is a machine in memory that reports what a program has not released or closed when the test ends, with the
// line of the program that has called Watch.
type watcher interface {
	Watch(rule, what string) (done func())
}

// A sharedSet has the shared receives of a listener.
type sharedSet struct {
	options *ListenOptions
	budget  *budget

	mu     sync.Mutex
	all    map[*uverbs.PD]*shared
	closed bool // the listener was closed
}

// shared are the receives of a listener at a device.
type shared struct {
	set  *sharedSet
	pd   *uverbs.PD
	refs int  // connections, and the listener if kept; belongs to set.mu, as kept does
	kept bool // by the listener

	once     sync.Once // creates what follows
	err      error
	reserved int64 // bytes of the budget
	mr       *uverbs.MR
	closed   bool // mr
	srq      *uverbs.SRQ
	slots    []memory

	held atomic.Int64 // receives that programs have, and 1 until the MR is closed
	// posted counts receives without a completion that was polled or dropped.
	posted atomic.Int64
	gone   atomic.Bool // the device
	short  atomic.Bool // few receives were left a moment ago

	wake   chan struct{} // has a token when few receives are left
	ending chan struct{}
	ended  chan struct{} // closed when the sweeper has ended, or nil
	ends   sync.Once

	mu      sync.Mutex
	conns   map[*Conn]struct{}
	dropped []uint64 // WRIDs of receives whose completions were dropped with their QP
	spares  *memory  // for copies, that nothing uses: a list
	spare   int      // length of spares
}
