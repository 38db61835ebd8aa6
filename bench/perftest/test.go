package perftest

import (
	"strings"

	"github.com/goverbs/goverbs/uverbs"
)

// A Verb is what a test measures.
type Verb uint8

// The verbs.
const (
	Send Verb = iota
	Write
	WriteImm
	Read
	Atomic
)

// A Test is one of perftest's programs: send_lat, write_bw and so on.
type Test struct {
	Verb      Verb
	Bandwidth bool // else latency
}

// Tests are all tests, by the names of perftest's programs without the prefix
// ib_. Write with immediate data is an option of the WRITE tests.
var Tests = []Test{{Send, false}, {Send, true}, {Write, false}, {Write, true}, {Read, false}, {Read, true}, {Atomic, false}, {Atomic, true}}

func (t Test) String() string {
	verb := [...]string{"send", "write", "write", "read", "atomic"}[t.Verb]
	if t.Bandwidth {
		return verb + "_bw"
	}
	return verb + "_lat"
}

// TestNamed finds a test by its name, with or without the prefix ib_.
func TestNamed(name string) (Test, bool) {
	for _, t := range Tests {
		if strings.TrimPrefix(name, "ib_") == t.String() {
			return t, true
		}
	}
	return Test{}, false
}

// receives tells whether the test's messages take receives at the peer.
func (t Test) receives() bool { return t.Verb == Send || t.Verb == WriteImm }

// remote tells whether the test's requests name memory of the peer.
func (t Test) remote() bool { return t.Verb != Send }

// fetches tells whether the answer of the peer carries the data: one way is
// the whole way then.
func (t Test) fetches() bool { return t.Verb == Read || t.Verb == Atomic }

// title is the test's name in perftest's reports.
func (v Verb) title() string {
	return [...]string{"Send", "RDMA_Write", "RDMA_Write_imm", "RDMA_Read", "Atomic"}[v]
}

// access is what a peer may do to the memory.
func (v Verb) access() uverbs.Access {
	switch v {
	case Write, WriteImm:
		return uverbs.RemoteWrite
	case Read:
		return uverbs.RemoteRead
	case Atomic:
		return uverbs.RemoteAtomic
	}
	return 0
}

// The types of connection that there are here.
var connections = map[string]uverbs.QPType{"RC": uverbs.RC, "UC": uverbs.UC, "UD": uverbs.UD}
