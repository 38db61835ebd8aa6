// Package onesided moves the bodies of HTTP requests and responses by RDMA, past HTTP and
// TCP. [Transport] is an http.RoundTripper and [Handler] wraps an http.Handler: clients and
// handlers keep their code. Requests, status and headers travel over TCP as before; the
// server writes the body of a GET's response into the client's memory (RDMA WRITE), or reads
// the body of a PUT or POST from it (RDMA READ).
//
// # Headers
//
//	Rdma-Token     request   where the client's memory is and how to reach it: [Token]
//	Rdma-Length    response  the bytes that the server has moved
//	Rdma-Crc32c    both      CRC-32C of the body, 8 hexadecimal digits; set by the end that sends the body
//	Rdma-Endpoint  response  with status 428: connect to this address and repeat the request
//	Rdma-Refused   response  why RDMA was not used
//
// A response with Rdma-Length has no HTTP body. A GET that is refused has its body in the
// same response, over TCP. A PUT that is refused has status 428, and the client repeats it
// with the body. A server without a Handler ignores the token of a GET. It would store an empty
// object for a PUT, whose body is not in the request: before the first PUT through a link the
// client sends the token with OPTIONS, and sends the PUT over TCP if the response has no
// Rdma-Endpoint.
//
// # Fallback
//
// The body travels over TCP if either end has no device (a nil [Pool]), if the token is
// refused, if the transfer fails, if a request has more than one buffer of data or an unknown
// length, and if a response is longer than a buffer. Larger objects are read in ranges, which
// are HTTP's: Range, If-Range, 206 and 416 are up to the handler, for instance
// http.ServeContent.
//
// # Transports
//
// With reliable connections, rc, the server has a QP for each of a client's links. With
// dynamically connected transport, dc, it has one for each request in progress, whatever the
// number of clients. ConnectX has dc. [Transport.Service] chooses; a server accepts both, and
// refuses the token if its device lacks dc.
//
// # Memory
//
// Both ends move data only from and to the buffers of a Pool, which are registered once and
// reused. A buffer of the client is reused as soon as the server has replied. If the server
// has not replied, because the request was canceled or the connection broke, the client first
// closes the memory region and the QP, in this order: then the device refuses what the server
// may still send. With dc, the QP is a DCT, which the device destroys after it has completed
// what it had begun.
//
// The client trusts its server not to use a token after its reply. The server trusts no
// client: tokens are parsed strictly, a wrong token only breaks the client's own QP, or with dc a
// DCI, which the server replaces, and the number of QPs is limited. A token does name the address
// that the server connects to: as with all RDMA, use a network in which only trusted hosts can
// send.
package onesided
