// Package driver defines the interface between package uverbs and the providers,
// which implement the queues of one kernel driver each, as database/sql/driver does
// for databases. Programs see none of it.
//
// uverbs imports this package, and providers import both. So this package cannot
// name the types of uverbs. Requests and completions, which queues read and write
// in the form that programs see, are type parameters. Package internal/provider
// instantiates the interfaces with the types of uverbs.
//
// A provider gets values instead of the objects of uverbs: when an object is
// created, what the objects in its configuration stand for ([QPEnv] and the like);
// for a bind, the keys ([Bind]). Of an address handle, which every datagram names, a
// provider gets the part [AH].
//
// # Rules for calls of providers
//
//   - Calls on one queue never overlap, except that Retire of a
//     single-goroutine queue may overlap a post or poll that is still running.
//     The caller serialises the send half of a QP (PostSend and the batch methods),
//     its receive half (PostRecv) and its Retire. Send and receive half may run
//     concurrently. Calls on one SRQ are serialised too.
//   - A provider keeps no argument, and nothing that an argument points to, after the
//     call returns, except what is in a QPEnv, CQConfig, SRQConfig or WQConfig.
//     Slices may be on a stack.
//   - Posting and polling do not allocate.
package driver
