package uverbs

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// errorPage renders docs/evidence/errors.md: the text of testdata/errorpage.md, and below each
// heading the errors of the group with that name.
func errorPage(t *testing.T, groups []errorGroup) string {
	t.Helper()
	text := string(good(os.ReadFile("testdata/errorpage.md"))(t))
	var out strings.Builder
	intro, text, _ := strings.Cut(text, "\n## ")
	out.WriteString(intro)
	sections := strings.Split(text, "\n## ")
	if len(sections) != len(groups) {
		t.Errorf("testdata/errorpage.md has %d sections, want %d", len(sections), len(groups))
	}
	for i, g := range groups {
		if i == len(sections) || !strings.HasPrefix(sections[i], g.name+"\n") {
			t.Fatalf("testdata/errorpage.md: section %d is not %q", i+1, g.name)
		}
		fmt.Fprintf(&out, "\n## %s\n", strings.TrimSpace(sections[i]))
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

var quoted = regexp.MustCompile("(?m)^\\|[^|]*\\| [^|`]*`([^`]+)` \\|")

// usualErrors checks that the texts that docs/errors.md quotes are on the page of all errors. Those of cm are in the
// guide, whose tests check them.
func usualErrors(t *testing.T, all string) {
	t.Helper()
	text := string(good(os.ReadFile("../docs/errors.md"))(t))
	guide := string(good(os.ReadFile("../docs/guide.md"))(t))
	quotes := quoted.FindAllStringSubmatch(text, -1)
	for _, q := range quotes {
		if !strings.Contains(all, q[1]) && !strings.Contains(guide, q[1]) && q[1] != "uverbs.ErrBusy" {
			t.Errorf("docs/errors.md: no error has the text %q", q[1])
		}
	}
	_, example, _ := strings.Cut(text, "```\n")
	example, _, _ = strings.Cut(example, "\n```")
	if len(quotes) < 10 || !strings.Contains(all, strings.ReplaceAll(example, "\n", " ")) {
		t.Errorf("docs/errors.md quotes %d texts, and the example %q", len(quotes), example)
	}
}

// stateTables renders the transitions of each type of QP.
func stateTables() string {
	var out strings.Builder
	for _, typ := range []QPType{RC, UC, UD, XRCSend, XRCRecv, DCI, DCT} {
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
		score, reason := scoreGID(e, netip.MustParseAddr("192.0.2.9"), netip.Addr{})
		all = append(all, errorCase{fmt.Sprintf("score %d", score), errors.New(GIDChoice{e, score, reason}.String()), nil})
	}
	e := entries[1]
	score, reason := scoreGID(e, netip.MustParseAddr("192.0.2.9"), e.GID.Addr())
	all = append(all, errorCase{fmt.Sprintf("score %d, with a route", score),
		errors.New(GIDChoice{e, score, reason}.String()), nil})
	e = entries[2]
	score, reason = scoreGID(e, netip.Addr{}, netip.Addr{})
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
