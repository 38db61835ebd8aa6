package quota

import "fmt"

// MemoryLimits returns the limits in bytes for the options MaxMemory and MaxMemoryPerPeer of a listener. 0 stands for
// the default, negative for no limit. The default in total is memory, and that for a peer half of the total. A default
// is at least need, which is what a connection needs.
func MemoryLimits(maxMemory, maxMemoryPerPeer, memory, need int64) (total, perPeer int64) {
	total, perPeer = maxMemory, maxMemoryPerPeer
	if total == 0 {
		total = max(memory, need)
	}
	switch {
	case perPeer != 0:
	case total < 0:
		perPeer = -1
	default:
		perPeer = max(total/2, need)
	}
	return total, perPeer
}

// MemoryError returns kind with the text of err, an error of Acquire, for the limits in bytes that the options
// MaxMemory and MaxMemoryPerPeer of the given type set. A client that is refused reads about a hundred bytes of the
// text: the address is last.
func MemoryError(kind, err error, options string) error {
	e, ok := err.(*Exceeded)
	switch {
	case !ok:
		return fmt.Errorf("%w: %w", kind, err)
	case e.PerPeer:
		return fmt.Errorf("%w: %s.MaxMemoryPerPeer: %d bytes wanted, %d of %d in use by %v", kind, options, e.Want, e.Used,
			e.Max, e.Peer)
	}
	return fmt.Errorf("%w: %s.MaxMemory: %d bytes wanted, %d of %d in use, peer %v", kind, options, e.Want, e.Used, e.Max,
		e.Peer)
}
