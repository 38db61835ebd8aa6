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
}

var queues = []queue{{"qp", "", 2, 1}, {"dci", "DC", 8, 2}, {"ud", "Datagram", 8, 2}, {"xrcInitiator", "XRC", 4, 1}}

// AH reports whether the destination includes an address vector.
func (q queue) AH() bool { return q.Blocks == 2 }

// Remote reports whether there are requests with a remote address.
func (q queue) Remote() bool { return q.Dest != "Datagram" }

// An encoder is a method of a queue. The strings are Go expressions.
type encoder struct {
	queue
	Rare string // the flag of opcodes that it does not encode, if this is checked late
	Else string // what to return then, and if it does not encode the request for another reason
	Done string // what to return otherwise
	List bool   // it encodes a list

	Op, End, Buffer, AHOf string // opcode as an index, head after the request, first word of the SGE, AH

	WRID, RemoteAddr, RKey, Inline, QPN, QKey, DCKey, SRQN string
}

// WR returns a method that encodes SendWRs.
func (q queue) WR(otherwise, rare string, list bool) encoder {
	sge, ah := rare == "wordRare", "ah"
	if sge {
		ah = "provider.AHOf(wr.AH)" // keeping it in a register would need a stack frame
	}
	return encoder{q, rare, otherwise, "blocks", list, "op", "head", "bits.RotateLeft64(buffer, 32)", ah,
		"wr.WRID", "wr.RemoteAddr", "wr.RKey", "wr.Inline", "wr.QPN", "wr.QKey", "wr.DCKey", "wr.RemoteSRQN"}
}

// Args returns a method whose arguments are the parts of a request. rest is the call for other requests.
func (q queue) Args(rest string) encoder {
	return encoder{q, "", rest, "", false,
		"op&opMask", "head+1", "uint64(sge.Length)<<32 | uint64(sge.LKey)", "ah",
		"wrID", "raddr", "rkey", "data", "qpn", "qkey", "key", "srqn"}
}

// TooLong returns the condition that length+1 is longer than a message.
func (q queue) TooLong(length string) string {
	if q.Dest == "Datagram" {
		return "uint64(" + length + ") >= s.maxMessage"
	}
	return length + " >= uverbs.MaxMessage-1"
}

// Load reports whether the method gets the queue's indices from it.
func (e encoder) Load() bool { return !e.List || e.Blocks > 1 }

// Inlined returns e for inline data.
func (e encoder) Inlined() encoder {
	e.End = "head"
	return e
}

// OneSGE returns the first word of the control segment, without the index, of a request with one SGE.
func (q queue) OneSGE() string {
	if q.Dest == "" {
		return "w + 1"
	}
	return "w"
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
