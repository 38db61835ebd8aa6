// Package rdma sends messages and accesses the memory of peers by RDMA. It is the package to begin with: it owns the
// memory, the queues and the flow control that programs on the packages cm and uverbs write themselves.
//
//	import (
//		_ "github.com/goverbs/goverbs/provider/all"
//		"github.com/goverbs/goverbs/rdma"
//	)
//
// A service replies to requests until ctx ends:
//
//	l, err := rdma.Listen(":7471", nil)
//	...
//	err = l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
//		return c.ServeCalls(ctx, bytes.ToUpper)
//	})
//
// Its client connects to the address of the service's RDMA device:
//
//	c, err := rdma.Dial(ctx, "192.0.2.1:7471", nil)
//	...
//	reply, err := c.Call(ctx, []byte("hello"))
//	...
//	fmt.Printf("%s\n", reply.Copy())
//	err = c.Close()
//
// # Messages
//
// [Conn.Send] sends a message of any length, [Conn.Recv] returns the next one, and [Conn.Call] sends one and
// waits for the reply. Messages arrive once and in order, or the connection ends. A [Message] is used in
// place and released. As long as a receiver does not release messages, its peer may send only as many as
// Options.Depth says; then Send waits.
//
// Replies have separate receives: a reply waits neither for messages nor for replies that the peer has not
// released. So both sides may call, and reply from the goroutine that receives. Other messages wait for the goroutine
// that receives on the other side: if both sides send them from the goroutine that receives, both can wait forever.
//
// # Calls
//
// [Conn.ServeCalls] receives and replies in a loop. When the context of a Call ends, so does that of its handler on the
// other side: see [Message.Context] and [Conn.ServeCallsContext].
//
// [Conn.Handle] runs a [Handler] for each request, several at the same time. A handler has the deadline of its caller,
// and what the caller has set by [WithMetadata]. Its error is a [*CallError] on the other side, and
// [Message.SetReplyMetadata] adds to the reply. [Handle] is for Serve:
//
//	err = l.Serve(ctx, rdma.Handle(handler, nil))
//
// [Listener.Shutdown] ends a server when the handlers that run have returned and their replies have arrived.
//
// # Memory
//
// [Conn.Alloc] returns a [Buffer], which is sent without a copy and comes back by itself. Send and Write copy.
// [Conn.BufferOf] returns a Buffer of a [Region], memory of the program. [Buffer.Slice] returns a part of a Buffer,
// also to send it on several connections, and [Conn.Flush] waits until the peer has what was sent. [Conn.CallInto]
// has a reply arrive in a Buffer.
//
// # The peer's memory
//
// A [Region] is memory that [Conn.Share] shares with a peer. Its [Token] goes to the peer in a message. With it, the
// peer uses [Conn.Read], [Conn.Write], [Conn.WriteImm], [Conn.CompareAndSwap] and [Conn.FetchAdd], while this side
// does nothing. Nothing is accessible that was not shared: each share is a memory window that only the
// one connection can use, and [Share.Revoke] ends it.
//
// # Several adapters
//
// A [Client] connects again when its connections have ended. With ClientOptions.Rails it uses several devices or ports,
// goes on over the others when one fails, and divides transfers among them: [Client.Spread].
//
// # Who the peer is
//
// With Options.TLS, both sides prove who they are before [Dial] and [Listener.Accept] return. With Options.Seal,
// messages are encrypted and authenticated, too. One-sided operations are not.
//
// # Waiting
//
// Calls wait until their context ends, park their goroutine and occupy no thread. A connection has no goroutine of its
// own: calls that wait handle what arrives. So a connection on which nothing is called neither
// receives nor notices its end.
//
// # Errors
//
// Errors are of type [*Error], except io.EOF of Recv. [ErrDisconnected] matches the end of a connection that this side
// has not closed, whatever the cause, net.ErrClosed that by Close, and os.ErrDeadlineExceeded a deadline that has
// passed.
//
// io.EOF means that the peer has closed the connection and that everything it has sent has arrived, and
// io.ErrUnexpectedEOF that something may be missing. [Conn.Close] returns [ErrUndelivered] if the peer may not have
// received what this side has sent. [Conn.CloseWithError] sends a reason, which the peer gets as a [*CloseError].
package rdma
