// Package rsocket has connections of package net over RDMA: [*Conn] is a [net.Conn], [*Listener] a [net.Listener].
// Programs that take these, such as HTTP or gRPC servers and database drivers, use RDMA without a change:
//
//	import (
//		_ "github.com/goverbs/goverbs/provider/all"
//		"github.com/goverbs/goverbs/rsocket"
//	)
//
//	l, err := rsocket.Listen("tcp", ":7471")
//	...
//	err = http.Serve(l, handler)
//
//	client := &http.Client{Transport: &http.Transport{DialContext: new(rsocket.Dialer).DialContext}}
//
// The package speaks the protocol of librdmacm's rsockets, so that the peer may be a C program that uses rsocket(7), or
// one that runs with librspreload. Addresses are those of TCP, but must belong to an RDMA device: 127.0.0.1 does not.
//
// # Data
//
// Each side has a ring of memory that the peer writes to, and tells the peer where there is room. Write copies to a
// send buffer and posts an RDMA WRITE with immediate data. Read copies what has arrived, so that the peer cannot
// change it any more. [Conn.ReadFrom] and [Conn.WriteTo] let io.Copy move up to 64 KiB at a time.
//
// # Cost
//
// A connection has no goroutine. Up to 64 connections of a device have a descriptor each, through which they learn
// of completions, and more share those. A call that has nothing to wait for makes no system call, except that rxe
// needs one for each message that is sent. Read and Write allocate nothing.
//
// A connection takes part in the protocol only within its calls: while no call waits or runs, the peer can
// send no more than there is room for. It is not told of new room, and a keepalive is its only sign of life.
//
// # Datagrams
//
// [ListenPacket] and [DialPacket] return a [*PacketConn], a [net.PacketConn] for datagrams that may be lost. Its peers
// may be datagram rsockets in C.
//
// # The end of a connection
//
// [Conn.CloseWrite] and [Conn.Close] tell the peer, whose reads return io.EOF after all data. If the peer's process or
// machine fails, they return an error that matches [syscall.ECONNRESET] instead, so that data that ends too
// early is noticed. rsockets in C report the end of the file in both cases.
//
// # iWARP
//
// iWARP has no immediate data and no datagrams: there, a SEND of 4 bytes follows each WRITE, as in librdmacm, and
// [ListenPacket] and [DialPacket] return [uverbs.ErrNotSupported]. A keepalive shows that the TCP connection accepts
// data, not that the peer's device replies.
//
// # Trust
//
// Whatever the peer sends is checked. Each connection has a protection domain, so that the peer can
// reach the ring, and memory that was shared with it, but nothing else.
package rsocket
