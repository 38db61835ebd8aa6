package engine

import "github.com/goverbs/goverbs/internal/sim/connectx/transport"

// An injection is a number of completions to be replaced by errors.
type injection struct {
	qpn         uint32
	syndrome    transport.Syndrome
	vendor      uint8
	skip, count int
}

// maxInjections bounds the number of injections.
const maxInjections = 1024

// InjectCompletion makes the next count completions of a queue pair errors,
// after skip others. The queue pair goes to its error state with the first one.
// Number 0 means any queue pair.
func (h *HCA) InjectCompletion(qpn uint32, syndrome transport.Syndrome, vendor uint8, skip, count int) error {
	if syndrome == transport.OK || skip < 0 || count < 1 {
		return failf(ErrParam, "%d completions with syndrome %#x after %d", count, uint8(syndrome), skip)
	}
	if len(h.injections) >= maxInjections {
		return failf(ErrLimit, "%d injections", maxInjections)
	}
	if qpn != 0 {
		if _, err := h.qps.get(qpn); err != nil {
			return err
		}
	}
	h.injections = append(h.injections, &injection{qpn, syndrome, vendor, skip, count})
	return nil
}

// injected returns the injected syndrome for the next completion of a queue
// pair.
func (h *HCA) injected(qp *QP) (transport.Syndrome, uint8) {
	for i, in := range h.injections {
		if in.qpn != 0 && in.qpn != qp.Number {
			continue
		}
		if in.skip > 0 {
			in.skip--
			return transport.OK, 0
		}
		if in.count--; in.count == 0 {
			h.injections = append(h.injections[:i:i], h.injections[i+1:]...)
		}
		return in.syndrome, in.vendor
	}
	return transport.OK, 0
}
