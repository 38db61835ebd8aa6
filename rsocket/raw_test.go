package rsocket_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// A raw is a peer that speaks the protocol by hand: numbers and layouts are written down here once more.
type raw struct {
	t    testing.TB
	ctx  context.Context
	conn *cm.Conn
	mr   *uverbs.MR // the ring, the list and the table, and memory for what is sent
	rawConfig

	entry  int    // of the honest side's list, which is written next
	sent   uint16 // messages that cost a credit
	target rawSGE // where the next data go, or length 0
}

// A rawConfig says what the raw peer tells of itself.
type rawConfig struct {
	bigEndian bool
	ring      int                       // bytes; its half is announced
	entries   int                       // of the list
	table     int                       // entries of the table of mappings
	receives  int                       // that are announced
	posted    int                       // posted before the connection is established: -1 for none
	change    func(hello []byte) []byte // of the private data
}

// A rawSGE is an entry of a list.
type rawSGE struct {
	addr   uint64
	key    uint32
	length uint32
}

// rawHello is the private data of an honest side.
type rawHello struct {
	version, flags byte
	credits        uint16
	table          byte
	list, data     rawSGE
}

const rawScratch = 1 << 17

func (c rawConfig) defaults() rawConfig {
	set := func(n *int, def int) {
		if *n == 0 {
			*n = def
		}
	}
	set(&c.ring, 1<<16)
	set(&c.entries, 2)
	set(&c.receives, 64)
	set(&c.posted, c.receives)
	return c
}

func (h *raw) order() binary.ByteOrder {
	if h.bigEndian {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

func (h *raw) listAt() int    { return h.ring }
func (h *raw) tableAt() int   { return h.ring + 16*h.entries }
func (h *raw) scratchAt() int { return h.tableAt() + 24*h.table }

// half returns an SGE of a half of the ring.
func (h *raw) half(i int) rawSGE {
	return rawSGE{h.mr.Addr() + uint64(i*h.ring/2), h.mr.RKey(), uint32(h.ring / 2)}
}

// hello returns the private data.
func (h *raw) hello() []byte {
	b := make([]byte, 40)
	b[0], b[1], b[7] = 1, 2, byte(h.table)
	if h.bigEndian {
		b[1] |= 1
	}
	be := binary.BigEndian
	be.PutUint16(b[2:], uint16(h.receives))
	be.PutUint64(b[8:], h.mr.Addr()+uint64(h.listAt()))
	be.PutUint32(b[16:], h.mr.RKey())
	be.PutUint32(b[20:], uint32(h.entries))
	be.PutUint64(b[24:], h.mr.Addr())
	be.PutUint32(b[32:], h.mr.RKey())
	be.PutUint32(b[36:], uint32(h.ring/2))
	if h.change != nil {
		b = h.change(b)
	}
	return b
}

// theirs returns what the honest side has said.
func (h *raw) theirs() (o rawHello) {
	b, be := h.conn.PrivateData(), binary.BigEndian
	sge := func(b []byte) rawSGE { return rawSGE{be.Uint64(b), be.Uint32(b[8:]), be.Uint32(b[12:])} }
	return rawHello{b[0], b[1], be.Uint16(b[2:]), b[7], sge(b[8:]), sge(b[24:])}
}

// options returns how the raw peer connects.
func (h *raw) options() *cm.Options {
	return &cm.Options{
		QP:    uverbs.QPConfig{MaxSendWR: 64, MaxRecvWR: h.receives + 64, MaxInline: 64},
		Param: &cm.ConnParam{RetryCount: 7, RNRRetryCount: 7, ResponderResources: cm.NoReads, InitiatorDepth: cm.NoReads},
		Setup: func(c *cm.Conn) (err error) {
			h.conn = c
			if h.mr, err = c.AllocWrite(h.scratchAt() + rawScratch); err != nil {
				return err
			}
			c.SetPrivateData(h.hello())
			return h.postReceives(h.posted)
		},
	}
}

func (h *raw) postReceives(n int) error {
	for range n {
		if err := h.conn.PostRecv(0); err != nil {
			return err
		}
	}
	return nil
}

// roles are those of the honest side.
var roles = []string{"client", "server"}

// rawRules are the rules of package verbstest that hostile peers break.
var rawRules = []verbstest.Rule{verbstest.RemoteAccess, verbstest.ReceiveLate, verbstest.ReceiveLength,
	verbstest.BadRequest, verbstest.CQCapacity, verbstest.Unsignaled, verbstest.LocalAccess}

// rawPair returns an honest connection in a role, and its raw peer.
func rawPair(t testing.TB, role string, honest rsocket.Config, c rawConfig) (*rsocket.Conn, *raw) {
	t.Helper()
	p := machines(t)
	if p.net != nil {
		p.net.Allow(rawRules...)
	}
	return p.rawPair(t, role, honest, c)
}

// rawPair connects p.there, where the honest side is, with p.here.
func (p *pair) rawPair(t testing.TB, role string, honest rsocket.Config, config rawConfig) (c *rsocket.Conn, h *raw) {
	t.Helper()
	h = &raw{t: t, ctx: limit(t), rawConfig: config.defaults(), entry: 1}
	if honest.Linger == 0 {
		honest.Linger = 5 * time.Millisecond
	}
	if role == "client" {
		c = p.rawAccept(t, honest, h)
	} else {
		c = p.rawDial(t, honest, h)
	}
	h.target = h.theirs().data
	check(t, c.SetDeadline(time.Now().Add(time.Minute)))
	t.Cleanup(func() {
		h.close()
		_ = within(t, background(c.Close), "Close") // what was written may be lost
	})
	return c, h
}

// rawDial connects the raw peer to an honest listener.
func (p *pair) rawDial(t testing.TB, honest rsocket.Config, h *raw) (c *rsocket.Conn) {
	t.Helper()
	l := p.listen(t, honest)
	var accepted <-chan error
	p.onServer(func() {
		accepted = background(func() (err error) { c, err = l.AcceptConn(); return err })
	})
	p.onClient(func() { h.conn = must(cm.Dial(h.ctx, p.addr(l), h.options()))(t) })
	check(t, within(t, accepted, "Accept"))
	check(t, l.Close())
	return c
}

// rawAccept connects an honest dialer to the raw peer.
func (p *pair) rawAccept(t testing.TB, honest rsocket.Config, h *raw) (c *rsocket.Conn) {
	t.Helper()
	addr := ":0"
	if onKernel {
		addr = deviceIP + ":0"
	}
	var l *cm.Listener
	var accepted <-chan error
	p.onClient(func() {
		l = must(cm.Listen(addr, &cm.ListenOptions{Options: *h.options()}))(t)
		accepted = background(func() (err error) { h.conn, err = l.Accept(h.ctx); return err })
	})
	addr = l.Addr().String()
	if p.here != nil {
		addr = p.here.AddrPort(l.Addr().Port()).String()
	}
	p.onServer(func() {
		d := &rsocket.Dialer{Config: honest}
		c = must(d.DialContext(h.ctx, "tcp", addr))(t).(*rsocket.Conn)
	})
	check(t, within(t, accepted, "Accept"))
	check(t, l.Close())
	return c
}

func (h *raw) close() {
	if err := h.conn.Close(); err != nil {
		h.t.Error(err)
	}
	if err := h.mr.Close(); err != nil {
		h.t.Error(err)
	}
}

// post posts a request whose payload is b, and waits until it has completed. It returns false if the connection has
// ended.
func (h *raw) post(wr uverbs.SendWR, b []byte) bool {
	copy(h.mr.Bytes()[h.scratchAt():], b)
	if len(b) > 0 {
		wr.SGL = []uverbs.SGE{h.mr.SGE(h.scratchAt(), len(b))}
	}
	wr.Flags |= uverbs.Signaled
	if _, err := h.conn.QP().PostSend(wr); err != nil {
		return false
	}
	_, err := h.conn.SendComp(h.ctx)
	return err == nil
}

// message sends a message of an operation, whose payload goes to a place.
func (h *raw) message(op, data uint32, to rawSGE, payload []byte) bool {
	return h.post(uverbs.SendWR{Opcode: uverbs.OpWriteImm, Imm: op<<29 | data, RemoteAddr: to.addr, RKey: to.key}, payload)
}

// write is an RDMA WRITE, without a message.
func (h *raw) write(to rawSGE, b []byte) bool {
	return h.post(uverbs.SendWR{Opcode: uverbs.OpWrite, RemoteAddr: to.addr, RKey: to.key}, b)
}

// data sends stream data to the current target, which must have room.
func (h *raw) data(b []byte) bool {
	h.t.Helper()
	to := h.target
	h.target.addr += uint64(len(b))
	h.target.length -= uint32(len(b))
	h.sent++
	return h.message(0, uint32(len(b)), to, b)
}

// limit announces how many messages the honest side may send in all.
func (h *raw) limit(n int) bool { return h.message(4, uint32(n), rawSGE{}, nil) }

// announce is limit, with a buffer for the next entry of the list.
func (h *raw) announce(n int, s rawSGE) bool {
	var b [16]byte
	order := binary.LittleEndian // that of the machine of the honest side
	order.PutUint64(b[:], s.addr)
	order.PutUint32(b[8:], s.key)
	order.PutUint32(b[12:], s.length)
	return h.announceBytes(n, b[:])
}

func (h *raw) announceBytes(n int, b []byte) bool {
	to := h.theirs().list
	to.addr += uint64(h.entry) * 16
	h.entry = (h.entry + 1) % 2
	return h.message(4, uint32(n), to, b)
}

// control sends a control message.
func (h *raw) control(what uint32) bool { return h.message(7, what, rawSGE{}, nil) }

// next returns the next message of the honest side, and posts its receive again.
func (h *raw) next() (op, data uint32, length int) {
	h.t.Helper()
	wc, err := h.conn.RecvComp(h.ctx)
	check(h.t, err)
	if wc.Opcode != uverbs.WCRecvRDMAImm {
		h.t.Fatalf("a message with opcode %v", wc.Opcode)
	}
	check(h.t, h.postReceives(1))
	return wc.Imm >> 29, wc.Imm & (1<<29 - 1), int(wc.ByteLen)
}

// expect checks the next message.
func (h *raw) expect(op, data uint32, length int) {
	h.t.Helper()
	if o, d, n := h.next(); o != op || d != data || n != length {
		h.t.Fatalf("message of op %d, data %d, %d bytes; want %d, %d, %d", o, d, n, op, data, length)
	}
}

// mapping announces memory in entry i of the honest side's table.
func (h *raw) mapping(i int, offset uint64, s rawSGE) bool {
	b := make([]byte, 24)
	o := binary.LittleEndian
	o.PutUint64(b, offset)
	o.PutUint64(b[8:], s.addr)
	o.PutUint32(b[16:], s.key)
	o.PutUint32(b[20:], s.length)
	to := h.theirs().list
	to.addr += 32 + uint64(i)*24
	h.sent++
	return h.message(6, uint32(i), to, b)
}

// quiet checks that no message arrives for a while.
func (h *raw) quiet() {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.ctx, 20*time.Millisecond)
	defer cancel()
	if wc, err := h.conn.RecvComp(ctx); err == nil {
		h.t.Fatalf("message of op %d, data %d", wc.Imm>>29, wc.Imm&(1<<29-1))
	}
}

// listed returns entry i of the list, which the honest side writes.
func (h *raw) listed(i int) rawSGE {
	b := h.mr.Bytes()[h.listAt()+16*i:]
	return rawSGE{h.order().Uint64(b), h.order().Uint32(b[8:]), h.order().Uint32(b[12:])}
}
