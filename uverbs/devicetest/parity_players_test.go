package devicetest

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/internal/sim/providertest"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// The tests in the parity_*_test.go files have the names of rdma-core's
// tests/test_*.py, and create the same objects, send the same traffic and make the
// same checks. docs/evidence/parity.md has the results of both. pyverbs fills buffers with one
// letter. Here every message differs from the one before.

// A setup describes the players of a test. Zero values are what most tests use.
type setup struct {
	kind     uverbs.QPType // 0: RC
	pairs    int           // of QPs; 0: 1
	parent   *uverbs.ParentDomainConfig
	srq      bool              // the QPs share one
	channel  bool              // the player waits on a separate completion channel
	entries  int               // of the CQ; 0: 1000
	batch    bool              // requests are posted as a SendBatch: ibv_wr_* in C
	size     int               // of a message in bytes; 0: 1024
	rounds   int               // 0: 100
	access   uverbs.Access     // of the memory, besides LocalWrite
	qpAccess uverbs.Access     // that the QPs allow
	inbox    bool              // receives use other memory, without that access
	mixed    bool              // half of each message is in memory without it
	onDevice bool              // messages are in device memory
	cold     bool              // the pages are dropped before each message
	implicit bool              // requests use the key of the whole address space
	streams  uverbs.DCIStreams // DC
	options  any               // of the QPs: QPConfig.Options
	needs    string            // feature that the options need
	sends    int               // that a QP has room for; 0: 10
	advise   func(testing.TB, *player)
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// parityDepth and parityImm are the values that pyverbs' tests use.
const (
	parityDepth = 1000
	parityImm   = 1234
)

// A player is one end of a test, with a separate Context.
type player struct {
	setup
	ctx  context.Context
	dev  *uverbs.Context
	pd   *uverbs.PD
	cq   *uverbs.CQ
	srq  *uverbs.SRQ
	mr   *uverbs.MR
	dm   *uverbs.DM   // the memory of mr, if onDevice
	out  []*uverbs.MR // messages are sent from these, a piece from each
	in   []*uverbs.MR // and received into these
	all  *uverbs.MR   // the whole address space, if implicit
	qps  []*uverbs.QP
	xrc  *targets   // XRC: the targets of the peer's QPs
	ah   *uverbs.AH // UD and DC: the peer's address
	dct  *uverbs.QP // DC: the target of the peer's QPs, which are DCIs
	peer *player
	addr uint64 // of the peer's memory
	rkey uint32
	seed byte // of the last message

	stream uint16 // DC: of the last request
}

// newPlayers returns the two ends of a test, connected.
func newPlayers(t testing.TB, s setup) (client, server *player) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	client, server = newPlayer(t, ctx, s), newPlayer(t, ctx, s)
	client.peer, server.peer = server, client
	client.connect(t)
	server.connect(t)
	server.seed = 128 // so that the messages of the two differ
	return client, server
}

func newPlayer(t testing.TB, ctx context.Context, s setup) *player {
	t.Helper()
	p := &player{setup: s, ctx: ctx, dev: openDevice(t)}
	p.kind, p.qps, p.size, p.rounds = or(s.kind, uverbs.RC), make([]*uverbs.QP, or(s.pairs, 1)), or(s.size, 1024),
		or(s.rounds, 100)
	p.pd = must(p.dev.AllocPD())(t)
	cfg := uverbs.CQConfig{Entries: or(s.entries, parityDepth)}
	if s.parent != nil {
		p.pd = must(p.pd.AllocParentDomain(*s.parent))(t)
		cfg.PD = p.pd
	}
	if s.channel {
		cfg.Channel = must(p.dev.CreateCompChannel())(t)
	}
	p.cq = must(p.dev.CreateCQ(cfg))(t)
	if s.channel {
		check(t, p.cq.Arm(false))
	}
	if s.srq {
		p.srq = must(p.pd.CreateSRQ(uverbs.SRQConfig{MaxWR: parityDepth * len(p.qps)}))(t)
	}
	p.allocate(t)
	t.Cleanup(func() { runtime.KeepAlive(p) }) // keeps its memory until the test ends
	if p.kind == uverbs.XRCSend {
		p.openXRC(t)
		return p
	}
	if p.kind == uverbs.DCI {
		p.openDC(t)
		return p
	}
	for i := range p.qps {
		var err error
		p.qps[i], err = p.pd.CreateQP(uverbs.QPConfig{
			Type: p.kind, SendCQ: p.cq, SRQ: p.srq, MaxSendWR: or(s.sends, 10), MaxRecvWR: parityDepth,
			MaxSendSGE: len(p.out), MaxRecvSGE: len(p.in), Access: s.qpAccess, QKey: qkey, Options: s.options})
		if feature := or(s.needs, typeFeatures[p.kind]); feature != "" && errors.Is(err, uverbs.ErrNotSupported) {
			features.Missing(t, feature, err)
		}
		check(t, err)
	}
	return p
}

func (p *player) allocate(t testing.TB) {
	t.Helper()
	room := p.offset() + p.size
	var err error
	if p.onDevice {
		p.dm = allocDM(t, p.dev, room)
		p.mr, err = p.pd.RegDM(p.dm, 0, room, uverbs.LocalWrite|p.access)
	} else {
		p.mr, err = p.pd.Alloc(room, uverbs.LocalWrite|p.access)
	}
	if p.access&uverbs.OnDemand != 0 && errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, features.ODP, err)
	}
	check(t, err)
	p.out, p.in = []*uverbs.MR{p.mr}, []*uverbs.MR{p.mr}
	if p.implicit {
		p.all, err = p.pd.RegImplicit(uverbs.LocalWrite | p.access)
		if errors.Is(err, uverbs.ErrNotSupported) {
			features.Missing(t, features.ODPImplicit, err)
		}
		check(t, err)
	}
	if !p.inbox && !p.mixed {
		return
	}
	plain := must(p.pd.Alloc(room, uverbs.LocalWrite))(t)
	if p.inbox {
		p.in[0] = plain
	} else {
		p.out, p.in = append(p.out, plain), append(p.in, plain)
	}
}

// connect moves the player's QPs to RTS, and sets the address and rkey of the peer's
// memory.
func (p *player) connect(t testing.TB) {
	t.Helper()
	if p.xrc != nil {
		p.connectXRC(t)
		return
	}
	if p.dct != nil {
		p.connectDC(t)
		return
	}
	for i, qp := range p.qps {
		remote := endpoint(t, p.peer.qps[i])
		if p.kind != uverbs.UD {
			check(t, qp.Connect(remote))
			continue
		}
		check(t, qp.Ready())
		p.ah = must(p.pd.CreateAH(must(qp.AHAttr(remote))(t)))(t)
	}
	p.addr, p.rkey = p.peer.mr.Addr(), p.peer.mr.RKey()
}

// restart moves all QPs through RESET to RTS. Posted requests and their completions
// are dropped.
func restart(t testing.TB, players ...*player) {
	t.Helper()
	for _, p := range players {
		for _, qp := range p.qps {
			check(t, qp.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
		}
	}
	for _, p := range players {
		must(p.cq.Poll(make([]uverbs.WC, p.cq.Entries())))(t)
		for i, qp := range p.qps {
			check(t, qp.Connect(endpoint(t, p.peer.qps[i])))
		}
	}
}

// offset returns where a received message begins in the player's memory: after the
// GRH of a datagram.
func (p *player) offset() int {
	if p.kind == uverbs.UD {
		return uverbs.GRHLen
	}
	return 0
}

// pieces returns the SGL of a message: n bytes at off of each MR.
func (p *player) pieces(mrs []*uverbs.MR, off, n int) []uverbs.SGE {
	var sgl []uverbs.SGE
	for _, mr := range mrs {
		if p.all != nil {
			sgl = append(sgl, p.all.SGE(int(mr.Addr())+off, n))
		} else {
			sgl = append(sgl, mr.SGE(off, n))
		}
	}
	return sgl
}

// prefetch advises the kernel on the memory of messages, with the MR that the
// requests use.
func (p *player) prefetch(t testing.TB, advice uverbs.Advice, flags uverbs.AdviseFlags) {
	t.Helper()
	r := uverbs.MRRange{MR: p.mr, Len: p.size}
	if p.all != nil {
		r.MR, r.Off = p.all, int(p.mr.Addr())
	}
	check(t, p.pd.AdviseMR(advice, flags, r))
}

// start returns where a message that the player sends begins in its memory. With an
// inbox it is the first byte, because rxe of Linux 7.2 can send on-demand memory only
// from the start of a page.
func (p *player) start() int {
	if p.inbox {
		return 0
	}
	return p.offset()
}

func (p *player) outgoing() []uverbs.SGE { return p.pieces(p.out, p.start(), p.size) }

// sent and received return the messages in the player's memory.
func (p *player) sent(t testing.TB) []byte     { return p.message(t, p.out, p.start()) }
func (p *player) received(t testing.TB) []byte { return p.message(t, p.in, p.offset()) }

func (p *player) message(t testing.TB, mrs []*uverbs.MR, off int) (b []byte) {
	for _, mr := range mrs {
		b = append(b, p.load(t, mr, off, p.size)...)
	}
	return b
}

// load returns n bytes of an MR at off, and store writes some.
func (p *player) load(t testing.TB, mr *uverbs.MR, off, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if p.dm != nil {
		must(p.dm.ReadAt(b, int64(off)))(t)
	} else {
		copy(b, mr.Bytes()[off:])
	}
	return b
}

func (p *player) store(t testing.TB, mr *uverbs.MR, off int, b []byte) {
	t.Helper()
	if p.dm != nil {
		must(p.dm.WriteAt(b, int64(off)))(t)
	} else {
		copy(mr.Bytes()[off:], b)
	}
}

// fill writes a new message to the memory that the player sends from, and returns it.
func (p *player) fill(t testing.TB) []byte {
	t.Helper()
	p.seed++
	b := make([]byte, p.size)
	for k, mr := range p.out {
		for i := range b {
			b[i] = p.seed + byte(k*3+i*7) + byte(i>>8)
		}
		p.store(t, mr, p.start(), b)
	}
	return p.sent(t)
}

// chill drops the pages of the player's memory if the setup is cold, so that the
// next access of the device causes page faults.
func (p *player) chill(t testing.TB) {
	t.Helper()
	if p.cold {
		check(t, unix.Madvise(p.mr.Bytes(), unix.MADV_DONTNEED))
	}
}

// receive posts a receive to a QP or its SRQ.
func (p *player) receive(t testing.TB, qp int) {
	t.Helper()
	wr := uverbs.RecvWR{SGL: p.pieces(p.in, 0, p.offset()+p.size)}
	if p.srq != nil {
		provide(t, p.srq, wr)
	} else {
		receive(t, p.qps[qp], wr)
	}
}

// post posts a signaled request to a QP, addressed to the peer.
func (p *player) post(t testing.TB, qp int, wr uverbs.SendWR) {
	t.Helper()
	check(t, p.tryPost(qp, wr))
}

func (p *player) tryPost(qp int, wr uverbs.SendWR) error {
	q := p.qps[qp]
	wr.Flags |= uverbs.Signaled
	if p.kind == uverbs.UD {
		wr.AH, wr.QPN, wr.QKey = p.ah, p.peer.qps[qp].QPN(), qkey
	}
	if p.xrc != nil {
		wr.RemoteSRQN = p.peer.srq.SRQN()
	}
	if p.dct != nil {
		p.toDCT(&wr)
	}
	if !p.batch {
		_, err := q.PostSend(wr)
		return err
	}
	b := q.StartSend()
	defer b.Abort()
	if err := providertest.Add(&b, &wr); err != nil {
		return err
	}
	return b.Submit()
}

// done waits for a completion of the player, and returns it with its status. With a
// separate channel, it first waits for the event.
func (p *player) done(t testing.TB) (uverbs.WC, error) {
	t.Helper()
	var wcs [1]uverbs.WC
	if p.channel {
		check(t, p.cq.WaitEvent(p.ctx))
		check(t, p.cq.Arm(false))
		// A CQ that is armed when it has a completion raises a second event for it, so the
		// event may come before the next completion.
		for n := 0; n == 0; n = must(p.cq.Poll(wcs[:]))(t) {
			check(t, p.ctx.Err())
		}
	} else {
		must(p.cq.PollWait(p.ctx, wcs[:]))(t)
	}
	return wcs[0], wcs[0].Err()
}
