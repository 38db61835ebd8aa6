package fakeefa

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/sim/fakedev"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A descriptor of a send.
const (
	ctrlAt    = 2
	ctrl2At   = 3
	destAt    = 4
	countAt   = 6
	sendImmAt = 8
	sendAHAt  = 12
	qkeyAt    = 16
	dataAt    = 32

	opMask     = 0xf
	hasImm     = 1 << 4
	isInline   = 1 << 5
	isMeta     = 1 << 7
	isFirst    = 1 << 2
	isLast     = 1 << 3
	isSignaled = 1 << 4
)

// Operations.
const (
	opSend  = 0
	opRead  = 1
	opWrite = 2
)

const grhSize = 40

// A request is a send that the device carries out.
type request struct {
	from     *qp
	id       uint16
	op       byte
	signaled bool
	imm      uint32
	hasImm   bool
	ah       *fakedev.AH
	dest     uint32
	qkey     uint32
	data     []byte
	// Of RDMA.
	there fakedev.SGE // at the peer
	local fakedev.SGE
}

// done completes the request at the sender.
func (r *request) done(status byte) {
	if r.signaled || status != ok {
		r.from.send.complete(r.from.sq.sub, newEntry(r.from, r.id, status, ofSend, r.op))
	}
}

// execute carries out a descriptor.
func (q *qp) execute(d *[sendSize]byte) {
	le := binary.LittleEndian
	r := &request{from: q, id: le.Uint16(d[:]), op: d[ctrlAt] & opMask, signaled: d[ctrl2At]&isSignaled != 0,
		imm: le.Uint32(d[sendImmAt:]), hasImm: d[ctrlAt]&hasImm != 0,
		dest: uint32(le.Uint16(d[destAt:])), qkey: le.Uint32(d[qkeyAt:]), ah: q.dev.AHs[uint32(le.Uint16(d[sendAHAt:]))]}
	const must = isFirst | isLast
	if d[ctrlAt]&isMeta == 0 || d[ctrl2At]&must != must || r.op > opWrite || r.op != opSend && !q.srd {
		r.done(badOperation)
		return
	}
	if r.ah == nil || r.ah.PD != q.PD {
		r.done(badAH)
		return
	}
	load := q.loadSend
	if r.op != opSend {
		load = q.loadRDMA
	}
	if status := load(r, d); status != ok {
		r.done(status)
		return
	}
	r.deliver()
}

// sge returns the memory of a buffer descriptor.
func sge(b []byte) fakedev.SGE {
	le := binary.LittleEndian
	return fakedev.SGE{Addr: le.Uint64(b[8:]), Key: le.Uint32(b[4:]) & keyMask, N: le.Uint32(b)}
}

// loadSend reads the data of a message.
func (q *qp) loadSend(r *request, d *[sendSize]byte) byte {
	n := int(binary.LittleEndian.Uint16(d[countAt:]))
	if d[ctrlAt]&isInline != 0 {
		if n > maxInline {
			return badLocalLength
		}
		r.data = append(r.data, d[dataAt:][:n]...)
		return ok
	}
	if n > maxSendSGE {
		return badLocalLength
	}
	total := uint64(0)
	var sges [maxSendSGE]fakedev.SGE
	for i := range n {
		sges[i] = sge(d[dataAt+16*i:][:16])
		total += uint64(sges[i].N)
	}
	if total > mtu {
		return badLocalLength
	}
	r.data = make([]byte, total)
	if q.dev.Gather(q.PD, sges[:], 0, r.data) != transport.OK {
		return badLocalKey
	}
	return ok
}

// loadRDMA reads the addresses of a READ or WRITE.
func (q *qp) loadRDMA(r *request, d *[sendSize]byte) byte {
	le := binary.LittleEndian
	cap, access := uint32(uapi.EFA_QUERY_DEVICE_CAPS_RDMA_WRITE), uint32(0)
	if r.op == opRead {
		cap, access = uapi.EFA_QUERY_DEVICE_CAPS_RDMA_READ, uapi.IB_UVERBS_ACCESS_LOCAL_WRITE
	}
	n, there := le.Uint16(d[countAt:]), d[dataAt:][:16]
	if q.dev.fabric.cfg.Caps&cap == 0 || d[ctrlAt]&isInline != 0 || n > 1 {
		return badOperation
	}
	r.there = fakedev.SGE{Addr: le.Uint64(there[8:]), Key: le.Uint32(there[4:]), N: le.Uint32(there)}
	if n == 1 {
		r.local = sge(d[dataAt+16:][:16])
	}
	if r.local.N > 0 && q.dev.Local(q.PD, r.local, access) == nil {
		return badLocalKey
	}
	if r.local.N != r.there.N || r.local.N > maxRDMA {
		return badLocalLength
	}
	r.data = make([]byte, r.local.N)
	if r.op == opWrite && q.dev.Gather(q.PD, []fakedev.SGE{r.local}, 0, r.data) != transport.OK {
		return badLocalKey
	}
	return ok
}

// deliver finds the peer. A device that no message reaches is like one that does not answer.
func (r *request) deliver() {
	var to *qp
	for _, d := range r.from.dev.fabric.devices {
		if d.gid == r.ah.Path.DGID {
			to = d.qps[r.dest]
		}
	}
	fits := to != nil && to.srd == r.from.srd && to.Attr.QKey == r.qkey && to.state >= stateRTR && to.state < stateErr
	switch {
	case !fits && !r.from.srd:
		r.done(ok) // a datagram is lost
	case !fits:
		r.done(badQPN)
	default:
		r.arrive(to)
	}
}

// arrive carries out a request at the peer.
func (r *request) arrive(to *qp) {
	if r.op != opSend {
		if status := r.access(to); status != ok {
			r.done(status)
			return
		}
	}
	if r.op != opSend && !r.hasImm {
		r.done(r.move(to))
		return
	}
	recv, there := to.receive()
	switch {
	case !there && !r.from.srd:
		r.done(ok) // a datagram is lost
		return
	case !there && r.from.Attr.RNRRetry != never, len(to.waiting) >= maxWaiting:
		r.done(notReady)
		return
	case !there:
		to.waiting = append(to.waiting, r)
		return
	}
	status := byte(ok)
	if r.op == opWrite {
		status = r.move(to)
	} else {
		status = r.scatter(to, &recv)
	}
	switch {
	case status == ok:
		to.recv.complete(to.rq.sub, r.received(to, recv.id))
	case status == badRemoteLength:
		to.recv.complete(to.rq.sub, newEntry(to, recv.id, badLocalLength, ofReceive, r.op))
	default:
		to.recv.complete(to.rq.sub, newEntry(to, recv.id, badLocalKey, ofReceive, r.op))
	}
	if !r.from.srd {
		status = ok
	}
	r.done(status)
}

// maxWaiting is how many messages can wait for receives of a QP.
const maxWaiting = 8192

// access checks that the peer allows the access.
func (r *request) access(to *qp) byte {
	if r.there.N > 0 && r.region(to) == nil {
		return badRemote
	}
	return ok
}

// region returns the region of the peer, or nil.
func (r *request) region(to *qp) *fakedev.MR {
	right := uint32(uapi.IB_UVERBS_ACCESS_REMOTE_WRITE)
	if r.op == opRead {
		right = uapi.IB_UVERBS_ACCESS_REMOTE_READ
	}
	if r.there.Key&remote == 0 {
		return nil
	}
	return to.dev.Local(to.PD, fakedev.SGE{Addr: r.there.Addr, Key: r.there.Key &^ remote, N: r.there.N}, right)
}

// move copies the data of a READ or WRITE.
func (r *request) move(to *qp) byte {
	if r.there.N == 0 {
		return ok
	}
	m := r.region(to)
	switch at := m.At(r.there.Addr); {
	case r.op == opWrite && !m.Write(at, r.data), r.op == opRead && !m.Read(at, r.data):
		return badRemote
	case r.op == opRead && r.from.dev.Scatter(r.from.PD, []fakedev.SGE{r.local}, 0, r.data) != transport.OK:
		return badLocalKey
	}
	return ok
}

// scatter copies a message to the memory of a receive.
func (r *request) scatter(to *qp, recv *receive) byte {
	data := r.data
	if !to.srd {
		data = append(make([]byte, grhSize), data...)
	}
	switch to.dev.Scatter(to.PD, recv.parts, 0, data) {
	case transport.OK:
		return ok
	case transport.LocalLength:
		return badRemoteLength
	}
	return badRemote
}

// received returns the entry of a receive.
func (r *request) received(to *qp, id uint16) *entry {
	le := binary.LittleEndian
	flags := byte(ofReceive)
	if r.hasImm {
		flags |= withImm
	}
	e := newEntry(to, id, ok, flags, r.op)
	n := len(r.data)
	if !to.srd {
		n += grhSize
	}
	number := to.dev.ahOf(r.from.dev.gid, to.PD)
	le.PutUint16(e[lengthAt:], uint16(n))
	le.PutUint16(e[ahAt:], number)
	le.PutUint16(e[sourceAt:], uint16(r.from.Number))
	le.PutUint32(e[immAt:], r.imm)
	switch {
	case r.op == opWrite:
		le.PutUint16(e[lengthHiAt:], uint16(n>>16))
	case number == noAH && to.recv.sgid:
		copy(e[srcAddrAt:], r.from.dev.gid[:])
	}
	return e
}
