// Gen writes the encoders of send requests of package mlx5, ../zencode_unsafe.go, from the template encode.tmpl: one
// set of methods for each way to name the destination of a request. In one function with conditions instead, or in
// functions that share small ones, every request would cost more.
package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"go/format"
	"os"
	"text/template"
)

const output = "../zencode_unsafe.go"

func main() {
	b, err := generate()
	if err == nil {
		err = os.WriteFile(output, b, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mlx5/gen:", err)
		os.Exit(1)
	}
}

// A queue is a type of send queue.
type queue struct {
	Type   string // of the methods' receiver
	Dest   string // the segment that names the destination of a request: "", "XRC", "Datagram", "DC"
	At     int    // the word of the WQE where the remote address is, or the data of a request without one
	Blocks int    // of a request with one SGE

	Setter, Params, Pass string // the method of driver.QP that names the destination
}

var queues = []queue{
	{Type: "qp", At: 2, Blocks: 1},
	{Type: "dci", Dest: "DC", At: 8, Blocks: 2,
		Setter: "DCAddr", Params: "ah *driver.AH, qpn uint32, key uint64, stream uint16", Pass: "ah, qpn, key, stream"},
	{Type: "ud", Dest: "Datagram", At: 8, Blocks: 2,
		Setter: "UDAddr", Params: "ah *driver.AH, qpn, qkey uint32", Pass: "ah, qpn, qkey"},
	{Type: "xrcInitiator", Dest: "XRC", At: 4, Blocks: 1,
		Setter: "RemoteSRQ", Params: "srqn uint32", Pass: "srqn"},
}

// AV reports whether the destination includes an address vector.
func (q queue) AV() bool { return q.Blocks == 2 }

// Remote reports whether there are requests with a remote address.
func (q queue) Remote() bool { return q.Dest != "Datagram" }

// Atomic reports whether an atomic fits into one block.
func (q queue) Atomic() bool { return q.Dest == "" }

// OneSGE returns the first word of the control segment, without the index, of a request with one SGE.
func (q queue) OneSGE() string {
	if q.Dest == "" {
		return "w + 1"
	}
	return "w"
}

// TooLong returns the condition that length+1 is longer than a message.
func (q queue) TooLong(length string) string {
	if q.Dest == "Datagram" {
		return "uint64(" + length + ") >= s.maxMessage"
	}
	return length + " >= uverbs.MaxMessage-1"
}

// An encoder is a method of a queue, with the Go expressions for the parts of a request.
type encoder struct {
	queue
	Rare string // of a method with SendWRs: the flag of opcodes that it does not encode
	Else string // the statement for a request that the method does not encode
	Next string // the statement after a request

	Opcode, WRID, RemoteAddr, RKey, Buffer, Inline, QPN, QKey, DCKey, SRQN string
}

// WR returns a method that encodes SendWRs.
func (q queue) WR(rare, otherwise, next string) encoder {
	return encoder{queue: q, Rare: rare, Else: otherwise, Next: next, Opcode: "op", WRID: "wr.WRID",
		RemoteAddr: "wr.RemoteAddr", RKey: "wr.RKey", Buffer: "bits.RotateLeft64(buffer, 32)", Inline: "wr.Inline",
		QPN: "wr.QPN", QKey: "wr.QKey", DCKey: "wr.DCKey", SRQN: "wr.RemoteSRQN"}
}

// List reports whether the method encodes a list.
func (e encoder) List() bool { return e.Next == "continue" }

// Args returns a method whose arguments are the parts of a request.
func (q queue) Args() encoder {
	return encoder{queue: q, Next: "return", Opcode: "op&opMask", WRID: "wrID", RemoteAddr: "raddr", RKey: "rkey",
		Buffer: "uint64(sge.Length)<<32 | uint64(sge.LKey)", Inline: "data", QPN: "qpn", QKey: "qkey",
		DCKey: "key", SRQN: "srqn"}
}

//go:embed encode.tmpl
var text string

func generate() ([]byte, error) {
	t, err := template.New("encode").Parse(text)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, queues); err != nil {
		return nil, err
	}
	return format.Source(b.Bytes())
}
