package perftest

import (
	"strings"

	"github.com/goverbs/goverbs/uverbs"
)

// A Verb is the operation that a test measures.
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
	Bandwidth bool // otherwise latency
}

// Tests lists all tests. Their names are those of perftest's programs without the
// prefix ib_. WRITE with immediate data is an option of the WRITE tests.
var Tests = []Test{{Send, false}, {Send, true}, {Write, false}, {Write, true}, {Read, false}, {Read, true},
	{Atomic, false}, {Atomic, true}}

func (t Test) String() string {
	verb := [...]string{"send", "write", "write", "read", "atomic"}[t.Verb]
	if t.Bandwidth {
		return verb + "_bw"
	}
	return verb + "_lat"
}

// TestNamed returns the test with a name, which may have the prefix ib_, and reports
// whether there is one.
func TestNamed(name string) (Test, bool) {
	for _, t := range Tests {
		if strings.TrimPrefix(name, "ib_") == t.String() {
			return t, true
		}
	}
	return Test{}, false
}

// receives reports whether the test's messages consume receives.
func (t Test) receives() bool { return t.Verb == Send || t.Verb == WriteImm }

// remote reports whether the test's requests address memory of the peer.
func (t Test) remote() bool { return t.Verb != Send }

// fetches reports whether the peer's response carries the data. Then the time of a
// request is not halved.
func (t Test) fetches() bool { return t.Verb == Read || t.Verb == Atomic }

// title returns the verb as perftest's reports name it.
func (v Verb) title() string {
	return [...]string{"Send", "RDMA_Write", "RDMA_Write_imm", "RDMA_Read", "Atomic"}[v]
}

// access returns the remote access to memory that the verb needs.
func (v Verb) access() uverbs.Access {
	return [...]uverbs.Access{Send: 0, Write: uverbs.RemoteWrite, WriteImm: uverbs.RemoteWrite, Read: uverbs.RemoteRead,
		Atomic: uverbs.RemoteAtomic}[v]
}

// connections maps the names of the supported transports.
var connections = map[string]uverbs.QPType{"RC": uverbs.RC, "UC": uverbs.UC, "UD": uverbs.UD, "DC": uverbs.DCI}
