// Package transport is InfiniBand's transport: requester and responder of the
// services RC, UC, UD and XRC, over packets.
//
// An Endpoint is the protocol of one queue pair. It takes requests from the
// queue pair's Queues, makes packets of them, hands these to a Port, and drives
// the Queues by the packets that Receive is given: acknowledgments, retries,
// timers and all. It knows nothing of work queues, memory keys, completion
// queues or addresses; Queues and Port are those.
//
// Everything here runs inside one loop.Loop. An endpoint that waits for nothing
// has no timer.
//
// Source: InfiniBand Architecture Specification volume 1, chapter 9.
package transport
