package mlx5

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// Message data that a CQE may carry.
const (
	carries32 = 1 << 2 // in the first 32 bytes of the CQE
	carries64 = 2 << 2 // in the block before the CQE
	roomIn32  = 32
)

// SetMRs implements driver.MRAccessor.
func (c *deviceContext) SetMRs(m *driver.MRs) { c.memory = m }

// scatterFlags returns the flags of a new QP that gets short messages in its completions. The kernel configures the QP
// accordingly. If the context has memory that only the device can write, the device must write all messages.
func (c *deviceContext) scatterFlags(t uverbs.QPType, s ScatterToCQE) uint32 {
	switch {
	case t != uverbs.RC && t != uverbs.UC, c.memory.Foreign(), s == ScatterDisabled, s == ScatterDefault && !c.set.scatter:
		return 0
	case s == ScatterAllowed:
		return uapi.MLX5_QP_FLAG_SCATTER_CQE | uapi.MLX5_QP_FLAG_ALLOW_SCATTER_CQE
	}
	return uapi.MLX5_QP_FLAG_SCATTER_CQE
}

// carried returns the message of n bytes that the entry at ci, whose last word is v, carries. It
// returns false if the entry cannot carry that many bytes.
func (q *cq) carried(v uint64, n uint32) ([]byte, bool) {
	room, at := uint32(roomIn32), q.at(q.ci)
	if v&formatMask == carries64 && q.wide != 0 {
		room, at = blockSize, &q.ring[(q.ci&q.mask)<<1]
	} else if v&formatMask != carries32 {
		return nil, false
	}
	if n > room {
		return nil, false
	}
	return bytesOf(at)[:n], true
}

// store writes the beginning of data to the memory that a data segment names, and returns the
// rest. An invalid key has the same result as on the device: WCLocProtErr.
func (q *cq) store(g *segment, data []byte) (rest []byte, s uverbs.WCStatus) {
	w := be(g[0])
	n, key := uint32(w>>32), uint32(w)
	if n == 0 {
		if key == invalidLKey {
			return data, uverbs.WCSuccess // the list ends
		}
		n = inlineMark // a length of 0 means 2^31
	}
	if !q.storing {
		q.memory.Begin()
		q.storing = true
	}
	part := data[:min(uint64(n), uint64(len(data)))]
	if null := q.ctx.null; (key != null || null == 0) && !q.memory.Store(key, be(g[1]), part) {
		return nil, uverbs.WCLocProtErr
	}
	return data[len(part):], uverbs.WCSuccess
}

// storeAll writes data to the memory that a list of data segments names.
func (q *cq) storeAll(list []segment, data []byte) (s uverbs.WCStatus) {
	for i := range list {
		if len(data) == 0 {
			return uverbs.WCSuccess
		}
		if data, s = q.store(&list[i], data); s != uverbs.WCSuccess {
			return s
		}
	}
	if len(data) > 0 {
		return uverbs.WCLocLenErr
	}
	return uverbs.WCSuccess
}

// storeRecv writes the message that the entry e carries to the memory of receive at, which the
// entry completes.
func (q *cq) storeRecv(t *target, e *block, v uint64, at uint32) (uverbs.WCStatus, error) {
	data, ok := q.carried(v, uint32(be(e[5])))
	if !ok {
		return 0, errFormat
	}
	var list []segment
	switch {
	case t.srq != nil:
		if int(at) >= len(t.srq.ids) {
			return 0, errStray
		}
		list = t.srq.slot(at)[1 : 1+t.srq.maxSGE]
	case t.rq != nil && int(at&t.recvMask) < len(t.recvs):
		list = t.rq.list(at & t.recvMask)
	default:
		return 0, errStray
	}
	return q.storeAll(list, data), nil
}

// storeSend writes the data that the entry e carries to the memory of the READ or atomic that
// begins at block at.
func (q *cq) storeSend(t *target, e *block, v uint64, at uint32) (uverbs.WCStatus, error) {
	at &= t.sendMask
	if t.sq == nil || int(at) >= len(t.sends) {
		return 0, errStray
	}
	s := t.sq
	w, n := be(s.blocks[at][0]), uint32(be(e[5]))
	k := ctrlSegments + s.destSegments + raddrSegments
	switch w >> 32 & 0xff {
	case hwRead:
	case hwCAS, hwFetchAdd:
		k, n = k+atomicSegments, atomicSize
	default:
		return 0, errFormat
	}
	data, ok := q.carried(v, n)
	if !ok {
		return 0, errFormat
	}
	for ; k < uint32(w&wordSize) && len(data) > 0; k++ {
		var status uverbs.WCStatus
		if data, status = q.store(s.segment(at, k), data); status != uverbs.WCSuccess {
			return status, nil
		}
	}
	if len(data) > 0 {
		return uverbs.WCLocLenErr, nil
	}
	return uverbs.WCSuccess, nil
}
