package engine

import "github.com/goverbs/goverbs/internal/sim/connectx/transport"

// connect returns the number of a new connection of a DCI.
func (h *HCA) connect() uint64 {
	h.connections++
	return h.connections
}

// streams reports whether the requests of the queue pair have streams.
func (qp *QP) streams() bool { return qp.Service == ServiceDCI && (qp.LogStreams|qp.LogErrored) != 0 }

// failStream fails a stream of a DCI: its requests are flushed until ResetStream. failStream reports whether
// the queue pair continues with other streams.
func (qp *QP) failStream(stream uint16) bool {
	if qp.state != RTS && qp.state != SQD {
		return false
	}
	if qp.errored == nil {
		qp.errored = make(map[uint16]bool)
	}
	qp.errored[stream] = true
	if len(qp.errored) >= 1<<qp.LogErrored {
		return false
	}
	for _, r := range qp.endpoint.Skip(stream) {
		w := r.WQE.(*sendWQE)
		qp.sq.done = w.index + w.blocks
		qp.completeSend(w, transport.Flushed)
	}
	return true
}

// ResetStream makes a failed stream of a DCI usable again.
func (h *HCA) ResetStream(number uint32, stream uint16) error {
	qp, err := h.QP(number)
	switch {
	case err != nil:
		return err
	case qp.Service != ServiceDCI || !qp.streams():
		return failf(ErrParam, "QP %#x has no streams", number)
	case qp.state != RTS || !qp.errored[stream]:
		return failf(ErrState, "stream %d of QP %#x has not failed", stream, number)
	}
	delete(qp.errored, stream)
	return nil
}
