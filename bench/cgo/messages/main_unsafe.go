// Messages measures what messages, READ, WRITE and connections cost in a Go program that calls librdmacm through cgo.
// It is bench/rdmacost with the calls of testbed/speed/testdata/messages.c: each post, and each wait, is a call of C. A
// wait blocks its thread in C, with the goroutine.
//
//	messages -addr 10.9.0.1
//	messages -addr 10.9.0.1 -tail 2000
package main

/*
#cgo CFLAGS: -D_GNU_SOURCE -I${SRCDIR}/../../../testbed/speed/testdata
#cgo LDFLAGS: -lrdmacm -libverbs
#include "endpoint.h"
*/
import "C"

import (
	"unsafe"

	"github.com/goverbs/goverbs/bench/measure"
)

// The ports of listeners: of connections for large messages, for small ones, and for none.
const (
	largePort = "7479"
	smallPort = "7480"
	briefPort = "7481"
)

func main() {
	measure.Main("messages", func(addr string, _ bool) ([]*measure.Level, error) {
		return []*measure.Level{open(C.CString(addr))}, nil
	})
}

// A side is one end of a connection. Calls of C exit the program if they fail, as those of messages.c do.
type side struct {
	c    *C.struct_side
	n    C.uint32_t // length of the last message
	sent int
	data []byte // of a client
}

func open(addr *C.char) *measure.Level {
	go accept(C.listen_on(addr, C.CString(largePort)), C.LARGE, serve)
	go accept(C.listen_on(addr, C.CString(smallPort)), C.SMALL, serve)
	closed := make(chan struct{})
	brief := C.CString(briefPort)
	go accept(C.listen_on(addr, brief), C.SMALL, func(s *C.struct_side) {
		C.ended(s)
		C.close_side(s)
		closed <- struct{}{}
	})
	small := C.CString(smallPort)
	client := dial(addr, C.CString(largePort), measure.LargeSize)
	shared := C.shared_with(client.c)
	return &measure.Level{
		Conn: client,
		Dial: func() (measure.Conn, error) { return dial(addr, small, measure.SmallSize), nil },
		Connect: func() error {
			C.hang_up(C.dial(addr, brief, measure.SmallSize))
			<-closed
			return nil
		},
		Read: func() error {
			C.post_read(client.c, shared)
			C.sent(client.c)
			return nil
		},
		Write: func() error {
			C.post_write(client.c, shared)
			C.sent(client.c)
			return nil
		},
		Close: func() error { return nil },
	}
}

func accept(l *C.struct_rdma_cm_id, size C.int, serve func(*C.struct_side)) {
	for {
		s := C.accept_one(l, size)
		go serve(s)
	}
}

func dial(addr, port *C.char, most int) *side {
	return &side{c: C.dial(addr, port, C.int(most)), data: make([]byte, most)}
}

// serve sends the start of each message back.
func serve(c *C.struct_side) {
	s, recvs := &side{c: c}, memory(c.recvs, C.SLOTS*c.size)
	for {
		i := C.receive(c, &s.n)
		s.send(recvs[int(i)*int(c.size):][:measure.SmallSize])
		C.post(c, i)
	}
}

func memory(p *C.char, n C.int) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(p)), n) }

// send sends b, and waits for the completions of earlier sends.
func (s *side) send(b []byte) {
	n, flags := C.size_t(len(b)), C.int(0)
	if s.sent++; s.sent%8 == 0 || n > measure.SmallSize {
		flags = C.IBV_SEND_SIGNALED
	}
	if n > measure.SmallSize {
		copy(memory(s.c.sends, s.c.most), b)
		C.post_message(s.c, nil, n, flags)
	} else {
		C.post_message(s.c, unsafe.Pointer(&b[0]), n, flags)
	}
	if flags != 0 {
		C.sent(s.c)
	}
}

func (s *side) Send(n int) error {
	s.send(s.data[:n])
	return nil
}

func (s *side) Recv() error {
	C.post(s.c, C.receive(s.c, &s.n))
	return nil
}

// Close leaves the connection to the end of the program: the other end waits in C.
func (s *side) Close() error { return nil }
