package uverbs

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// errorPage renders docs/errors.md: all error texts with explanations.
func errorPage(t *testing.T, groups []errorGroup) string {
	t.Helper()
	var out strings.Builder
	out.WriteString(errorPreface)
	for _, g := range groups {
		about := errorAbout[g.name]
		if about == "" {
			t.Errorf("%s: docs/errors.md has nothing to say of it", g.name)
		}
		fmt.Fprintf(&out, "\n## %s\n\n%s\n", g.name, about)
		if g.name == "States of a QP" {
			out.WriteString(stateTables())
		}
		out.WriteByte('\n')
		for _, c := range g.cases {
			fmt.Fprintf(&out, "- %s: `` %v ``\n", c.name, c.err)
		}
	}
	return out.String()
}

const errorPreface = `# Errors

<!-- Written by "go test ./uverbs -run TestErrorTexts -update". Do not edit. -->

Each error of package uverbs with its text, as the code gives it: a test compares. Most are a ` + "`uverbs.Error`" + `: the operation,
the object, the errno of the kernel, and in its Detail the cause and the mend. ` + "`errors.Is`" + ` matches it with its Kind, a
sentinel such as ` + "`uverbs.ErrBusy`" + `, and with the errno. The kernel is asked first: what it refuses is explained afterwards,
from what the device says of itself, so that a newer kernel may allow more.
`

var errorAbout = map[string]string{
	"Opening a device": `A device needs a driver in the kernel, a node under /dev/infiniband, rights to it, and a provider in the program.
Each provider states the kernels that it accepts. That of rxe returns an error that matches ErrNotSupported before Linux 6.0: [why](hardware.md#kernels).`,
	"Numbers": `A number beyond what the device takes is named, with the limit: they are those of Context.QueryDevice.`,
	"Memory": `Registration pins memory. For users without CAP_IPC_LOCK that counts against RLIMIT_MEMLOCK, of the whole process:
the error tells what is needed, what is pinned already, and the limit. On-demand memory (OnDemand) does not count.`,
	"GIDs": `On RoCE a GID is an address of the network interface. Without QPConfig.GID, Connect, Handshake and Ready choose one:
the best of Context.RankGIDs, whose String tells of each entry why it was chosen, or not. Higher scores are better; below 0
an entry cannot be used. These are the reasons, for a peer with an IPv4 address and without a route to it:`,
	"Connecting": `Connect and Handshake take a QP to RTS. A Handshake that fails after the QP has moved on resets it.`,
	"States of a QP": `When MODIFY_QP is refused, the error names what the transition lacks or does not take, or the value that the
port does not offer. These are the attributes, by their masks (Mask...), of each transition. Every state also goes to RESET
and to ERR, which take none.`,
	"Memory windows":                "A type 2 window is bound by a work request, and goes with any QP that it was bound on; what the device says to a bind comes by the completion.",
	"Draining":                      `Drain moves the QP to ERR, and waits until the device has given back what was posted.`,
	"Unreliable connections":        `UC takes the steps of RC with fewer attributes, since nothing is acknowledged.`,
	"What not every device does":    `A command that the driver does not have is ErrNotSupported: the kernel has been asked.`,
	"Datagrams":                     `A UD QP has no peer: each request names an address handle, and the peer's QPN and QKey.`,
	"Shared receive queues":         `QPs made with QPConfig.SRQ have no receive queue of their own.`,
	"Extended reliable connections": `With XRC a message names the SRQ that it is for; the QPs at the two ends have a queue less, or none.`,
	"Domains":                       `Not every device has what they are about. A parent domain is a PD by another name, whose queues may be of a thread domain.`,
	"Sharing a context":             `Processes that have a descriptor of a context may import it, and what is made on it.`,
	"Life":                          `What is made on an object keeps it: children are closed first. Close of a Context closes all of it.`,
	"Posting, polling and waiting": `The posting and polling paths return these as they are, without allocating. PostSend and PostRecv return
the index of the bad request beside them.`,
	"Completions": `WC.Err is the status itself, an error: ` + "`errors.Is(err, uverbs.WCRetryExcErr)`" + `. After a bad status a connected QP is in ERR, all that is
posted is flushed, and RESET takes it out. The text names the usual causes, and the setting to look at, here or at the peer.`,
}

// stateTables renders the transitions of each type of QP.
func stateTables() string {
	var out strings.Builder
	for _, typ := range []QPType{RC, UC, UD, XRCSend, XRCRecv} {
		fmt.Fprintf(&out, "\n| %v | needs | takes |\n|---|---|---|\n", typ)
		for from := StateReset; from <= StateErr; from++ {
			for to := StateReset; to <= StateErr; to++ {
				if tr, ok := transitions[typ][[2]QPState{from, to}]; ok {
					fmt.Fprintf(&out, "| %v to %v | %v | %v |\n", from, to, tr.required, tr.optional)
				}
			}
		}
	}
	return out.String()
}

// gidChoices returns the results of ranking GIDs of every kind, and the error if none can be
// used.
func gidChoices(t *testing.T) (all []errorCase) {
	r := newRig(t)
	entry := func(index uint32, typ uint32, addr string, ifindex uint32) uapi.IbUverbsGidEntry {
		return uapi.IbUverbsGidEntry{Gid: netip.MustParseAddr(addr).As16(), GidIndex: index, PortNum: 1, GidType: typ,
			NetdevIfindex: ifindex}
	}
	r.k.Set(func() {
		r.k.GIDs = []uapi.IbUverbsGidEntry{entry(0, 1, "192.0.2.1", 0), entry(1, 2, "192.0.2.1", 0),
			entry(2, 2, "169.254.0.1", 0), entry(3, 2, "2001:db8::1", 0), entry(4, 2, "198.51.100.1", 1<<30),
			entry(300, 2, "203.0.113.1", 0), entry(5, 0, "fe80::1", 0)}
	})
	entries := good(r.c.GIDs(1))(t)
	for _, e := range entries {
		score, reason := judge(e, netip.MustParseAddr("192.0.2.9"), netip.Addr{})
		all = append(all, errorCase{fmt.Sprintf("score %d", score), errors.New(GIDChoice{e, score, reason}.String()), nil})
	}
	e := entries[1]
	score, reason := judge(e, netip.MustParseAddr("192.0.2.9"), e.GID.Addr())
	all = append(all, errorCase{fmt.Sprintf("score %d, with a route", score),
		errors.New(GIDChoice{e, score, reason}.String()), nil})
	e = entries[2]
	score, reason = judge(e, netip.Addr{}, netip.Addr{})
	all = append(all, errorCase{fmt.Sprintf("score %d, for any peer", score),
		errors.New(GIDChoice{e, score, reason}.String()), nil})
	for _, errno := range []unix.Errno{unix.EMFILE, unix.EAFNOSUPPORT} {
		err := explainNetdevs("read GIDs", "fake0", os.NewSyscallError("socket", errno))
		all = append(all, errorCase{"names of interfaces, " + errnoName(errno), err, []error{errno}})
	}
	r.k.Set(func() { r.k.GIDs = r.k.GIDs[:1] })
	return append(all, errorCase{"no entry that can be used", second(r.c.SelectGID(1, netip.MustParseAddr("192.0.2.9"))),
		[]error{ErrInvalid}})
}

func statusErrors() (all []errorCase) {
	names := [...]string{1: "WCLocLenErr", "WCLocQPOpErr", "WCLocEECOpErr", "WCLocProtErr", "WCWRFlushErr", "WCMWBindErr",
		"WCBadRespErr", "WCLocAccessErr", "WCRemInvReqErr", "WCRemAccessErr", "WCRemOpErr", "WCRetryExcErr",
		"WCRNRRetryExcErr", "WCLocRDDViolErr", "WCRemInvRDReqErr", "WCRemAbortErr", "WCInvEECNErr", "WCInvEECStateErr",
		"WCFatalErr", "WCRespTimeoutErr", "WCGeneralErr", "WCTMErr", "WCTMRndvIncomplete", "a status of a newer kernel"}
	for s := WCStatus(1); s <= WCTMRndvIncomplete+1; s++ {
		wc := WC{Status: s}
		all = append(all, errorCase{names[s], wc.Err(), []error{s}})
	}
	return all
}
