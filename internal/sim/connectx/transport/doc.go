// Package transport implements the InfiniBand transport: requester and
// responder of the services RC, UC, UD, XRC and DC, on packets.
//
// An Endpoint is the protocol of one queue pair. It reads requests from the
// queue pair's Queues, builds packets, sends them to a Port, and processes the
// packets passed to Receive: acknowledgments, retries and timers. Work queues,
// memory keys, completion queues and addresses are the business of Queues and
// Port.
//
// Everything runs inside one loop.Loop. An idle endpoint has no timer.
//
// Source: InfiniBand Architecture Specification volume 1, chapter 9.
package transport
