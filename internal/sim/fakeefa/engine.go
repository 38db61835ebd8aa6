package fakeefa

import (
	"encoding/binary"

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
	ah       *ah
	dest     uint16
	qkey     uint32
	data     []byte
	// Of RDMA.
	addr, length uint64 // at the peer
	key          uint32
	remote       part
	local        part
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
		imm: le.Uint32(d[sendImmAt:]), hasImm: d[ctrlAt]&hasImm != 0, dest: le.Uint16(d[destAt:]),
		qkey: le.Uint32(d[qkeyAt:]), ah: q.dev.ahs[le.Uint16(d[sendAHAt:])]}
	const must = isFirst | isLast
	if d[ctrlAt]&isMeta == 0 || d[ctrl2At]&must != must || r.op > opWrite || r.op != opSend && !q.srd {
		r.done(badOperation)
		return
	}
	if r.ah == nil || r.ah.pd != q.pd {
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
func (q *qp) sge(b []byte, access uint32) (part, bool) {
	le := binary.LittleEndian
	return q.dev.local(q.pd, le.Uint32(b[4:])&keyMask, le.Uint64(b[8:]), le.Uint32(b), access)
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
	total := 0
	var parts [maxSendSGE]part
	for i := range n {
		p, fits := q.sge(d[dataAt+16*i:][:16], 0)
		if !fits {
			return badLocalKey
		}
		parts[i] = p
		total += int(p.n)
	}
	if total > mtu {
		return badLocalLength
	}
	for _, p := range parts {
		var there bool
		if r.data, there = p.read(r.data); !there {
			return badLocalKey
		}
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
	r.length, r.key, r.addr = uint64(le.Uint32(there)), le.Uint32(there[4:]), le.Uint64(there[8:])
	var fits bool
	if n == 1 {
		if r.local, fits = q.sge(d[dataAt+16:][:16], access); !fits {
			return badLocalKey
		}
	}
	if uint64(r.local.n) != r.length || r.length > maxRDMA {
		return badLocalLength
	}
	if r.op == opWrite {
		if r.data, fits = r.local.read(nil); !fits {
			return badLocalKey
		}
	}
	return ok
}

// deliver finds the peer. A device that no message reaches is like one that does not answer.
func (r *request) deliver() {
	var to *qp
	for _, d := range r.from.dev.fabric.devices {
		if d.gid == r.ah.gid {
			to = d.qps[r.dest]
		}
	}
	fits := to != nil && to.srd == r.from.srd && to.qkey == r.qkey && to.state >= stateRTR && to.state < stateErr
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
		r.done(r.move())
		return
	}
	recv, there := to.receive()
	switch {
	case !there && !r.from.srd:
		r.done(ok) // a datagram is lost
		return
	case !there && r.from.retries != never, len(to.waiting) >= maxWaiting:
		r.done(notReady)
		return
	case !there:
		to.waiting = append(to.waiting, r)
		return
	}
	status := byte(ok)
	if r.op == opWrite {
		status = r.move()
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

// access finds the memory of the peer.
func (r *request) access(to *qp) byte {
	r.remote = part{}
	if r.length == 0 {
		return ok
	}
	right := uint32(uapi.IB_UVERBS_ACCESS_REMOTE_WRITE)
	if r.op == opRead {
		right = uapi.IB_UVERBS_ACCESS_REMOTE_READ
	}
	m := to.dev.mrs[r.key&^remote]
	if m == nil || r.key&remote == 0 || m.pd != to.pd || !m.Within(r.addr, r.length, right) {
		return badRemote
	}
	r.remote = part{m, m.At(r.addr), uint32(r.length)}
	return ok
}

// move copies the data of a READ or WRITE.
func (r *request) move() byte {
	var fits bool
	if r.op == opWrite {
		if _, fits = r.remote.write(r.data); !fits {
			return badRemote
		}
		return ok
	}
	if r.data, fits = r.remote.read(nil); !fits {
		return badRemote
	}
	if _, fits = r.local.write(r.data); !fits {
		return badLocalKey
	}
	return ok
}

// scatter copies a message to the memory of a receive.
func (r *request) scatter(to *qp, recv *receive) byte {
	rest := r.data
	if !to.srd {
		rest = append(make([]byte, grhSize), rest...)
	}
	for _, p := range recv.parts {
		at, fits := to.dev.local(to.pd, p.key, p.addr, uint32(p.n), uapi.IB_UVERBS_ACCESS_LOCAL_WRITE)
		if fits {
			rest, fits = at.write(rest)
		}
		if !fits {
			return badRemote
		}
	}
	if len(rest) > 0 {
		return badRemoteLength
	}
	return ok
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
	number := to.dev.ahOf(r.from.dev.gid, to.pd)
	le.PutUint16(e[lengthAt:], uint16(n))
	le.PutUint16(e[ahAt:], number)
	le.PutUint16(e[sourceAt:], r.from.number)
	le.PutUint32(e[immAt:], r.imm)
	switch {
	case r.op == opWrite:
		le.PutUint16(e[lengthHiAt:], uint16(n>>16))
	case number == noAH && to.recv.sgid:
		copy(e[srcAddrAt:], r.from.dev.gid[:])
	}
	return e
}
