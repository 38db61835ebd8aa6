package mistakes

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// byLibrary is in place of a report if the library returns the error in the line of the mistake.
const byLibrary = ""

// A mistake is a program with a mistake, what package verbstest reports, and what the program sees on a
// device: in memory, and on rxe. A program that sees "success" or "nothing" does not notice its mistake
// there.
type mistake struct {
	program func(device string) (seen string)
	report  string // a regular expression, in which LINE is that of the mistake and OTHER another one, or byLibrary
	memory  string // the beginning of what it sees
	rxe     string
	rdma    string // why it is impossible with package rdma, or the programs with which it is possible
}

const (
	noCompletion       = "no completion"
	remoteAccess       = "remote access error"
	flushed            = "work request flushed"
	busy               = "uverbs: close"
	localAccess        = "local protection error"
	retriesExceeded    = "transport retry count exceeded"
	noDeviceMemory     = "uverbs: allocate device memory"
	connectedByPackage = "impossible: Dial and Accept connect the queues"
	noDC               = "uverbs: create QP"
)

var mistakes = []mistake{
	{receiveLate, `receive-late: posted at LINE: the message finds no receive in QP 0x\w+ and is lost: post receives`,
		noCompletion, noCompletion,
		"impossible: a connection has its receives before the peer can send, and credits limit the peer"},
	{datagramWithoutReceive, `receive-late: posted at LINE: the message finds no receive in QP 0x\w+ and is lost: ` +
		`post receives`, noCompletion, noCompletion, "groupNotReceiving"},
	{emptySRQ, `receive-late: posted at LINE: the message finds no receive in SRQ 0x\w+ and is lost: post receives`,
		noCompletion, noCompletion, "impossible: no SRQ"},
	{wrongRKey, `remote-access: posted at LINE: RKey 0x\w+ names no region`, remoteAccess, remoteAccess, "forgedKey"},
	{closedMR, `key: posted at LINE: local key 0x\w+ does not exist`, localAccess, flushed,
		"impossible: the memory is registered until the connection is closed"},
	{closedRemoteMR, `remote-access: posted at LINE: RKey 0x\w+ names no region: the region was closed at OTHER`,
		remoteAccess, remoteAccess,
		"revokedToken"},
	{closedMRInFlight, `key: posted at OTHER: local key 0x\w+ does not exist any more while the request is in ` +
		`flight: the region was closed at LINE`, localAccess, flushed,
		"impossible: the memory is registered until the connection is closed"},
	{closedMRWithReceive, `key: posted at OTHER: local key 0x\w+ does not exist: the region was closed at LINE`,
		"remote operation error", "remote operation error",
		"impossible: the memory is registered until the connection is closed"},
	{keyBeforeBind, `remote-access: posted at LINE: RKey 0x\w+ names no region: the window was bound again with key ` +
		`0x\w+ at OTHER`, remoteAccess, remoteAccess, "revokedToken"},
	{invalidatedKey, `remote-access: posted at LINE: RKey 0x\w+ names no region: the window was invalidated ` +
		`at OTHER`, remoteAccess, remoteAccess, "revokedToken"},
	{closedMRWithWindow, byLibrary, "uverbs: destroy mlx5_0 MR",
		"uverbs: destroy rxe0 MR", "impossible: closing the region waits for its windows"},
	{bindWithoutRight, `request: posted at LINE: the region of LKey 0x\w+ lacks MWBindAccess`, "memory window bind error",
		flushed, "impossible: the package registers the memory"},
	{boundTwice, `request: posted at LINE: the window is bound: invalidate its key 0x\w+ first`,
		"memory window bind error", flushed, "impossible: the package binds each window once"},
	{keyBeforeRereg, `remote-access: posted at LINE: RKey 0x\w+ names no region: the region was registered anew with ` +
		`key 0x\w+ at OTHER`, remoteAccess, "uverbs: reregister", "impossible: no region is registered anew"},
	{overrunCQOfSRQ, `cq-overrun: posted at LINE: CQ 0x\w+ has 16 completions that have not been polled, and no room ` +
		`for another: poll, or create it with more entries: it was created at OTHER`, retriesExceeded, retriesExceeded,
		"impossible: no SRQ"},
	{remoteBounds, `remote-access: posted at LINE: bytes \[0x\w+, \+64\) are outside the region \[0x\w+, \+4096\)`,
		remoteAccess, remoteAccess, "outOfBounds, forgedLength"},
	{localBounds, `local-access: posted at LINE: bytes \[0x\w+, \+64\) are outside the region \[0x\w+, \+4096\)`,
		localAccess, flushed, "impossible: memory is a slice or a Buffer"},
	{regionWithoutRemoteWrite, `remote-access: posted at LINE: the region of RKey 0x\w+ lacks RemoteWrite`, remoteAccess,
		remoteAccess, "withoutRight, forgedRights"},
	{qpWithoutRemoteRead, `remote-access: posted at LINE: the QP does not permit RemoteRead`,
		remoteAccess, "remote invalid request",
		"impossible: the QP permits all, and each share is a window with its rights"},
	{readWithoutLocalWrite, `local-access: posted at LINE: the region of LKey 0x\w+ lacks LocalWrite`, localAccess,
		localAccess, "impossible: all memory is registered with LocalWrite"},
	{wrongPD, `remote-access: posted at LINE: RKey 0x\w+ is of a PD other than the QP's`, remoteAccess, remoteAccess,
		"tokenOfOtherConnection"},
	{misalignedAtomic, `remote-access: posted at LINE: the address 0x\w+ of an atomic is not a multiple of 8`,
		"remote invalid request", "remote invalid request", "misalignedCounter"},
	{shortReceive, `receive-length: posted at LINE: the receive has room for 16 bytes, the message has at least 64`,
		"remote invalid request", "remote operation error",
		"impossible: a message longer than a receive is offered, and read"},
	{sharedReceives, `receive-overlap: posted at LINE: the message replaces another one, whose completion has not been ` +
		`polled, from 0x\w+ on: receives must not share memory: the other receive was posted at OTHER`, "success",
		"success", "impossible: each receive has its memory"},
	{datagramWithoutHeaderRoom, `receive-length: posted at LINE: the receive has room for 64 bytes, the message has at ` +
		`least 104: the first 40 are the network header`, "local length error", noCompletion,
		"impossible: receives of a Group have the room"},
	{wrongQKey, `qkey: posted at LINE: the datagram has Q_Key 0x1, QP 0x\w+ has 0x11111111`, noCompletion, noCompletion,
		"impossible: the Q_Key is the group's"},
	{wrongQPN, `destination: posted at LINE: the packet is for QP 0x\w+, which does not exist`, noCompletion,
		noCompletion, "impossible: a Peer is opaque, and comes from a datagram"},
	{peerNotConnected, `destination: posted at LINE: the packet is for QP 0x\w+ in state RESET: connect the QP`,
		retriesExceeded, retriesExceeded, "impossible: Dial and Accept return connections"},
	{otherPSN, `connection: posted at OTHER: QP 0x\w+ expects the PSN 0x\w+ \(RQPSN\), and its peer QP 0x\w+ begins ` +
		`with 0x\w+ \(SQPSN\): RQPSN was set at LINE, SQPSN was set at OTHER`, retriesExceeded, retriesExceeded,
		connectedByPackage},
	{otherMTU, `connection: posted at OTHER: QP 0x\w+ has a PathMTU of 256 bytes, and its peer QP 0x\w+ of 1024: ` +
		`the one was set at LINE, the other was set at OTHER`, "remote invalid request", "remote invalid request",
		connectedByPackage},
	{noReadsOfPeer, `connection: posted at OTHER: QP 0x\w+ permits no READs and atomics: its MaxDestRdAtomic is 0: it ` +
		`was set at LINE`, "remote invalid request", "remote invalid request", connectedByPackage},
	{noReads, `request: posted at OTHER: QP 0x\w+ permits no READs and atomics: its MaxRdAtomic is 0: it was set at ` +
		`LINE`, "local QP operation error", "uverbs: the connection allows no READs", connectedByPackage},
	{tooManyReads, `connection: posted at LINE: 2 READs and atomics of QP 0x\w+ may be outstanding \(MaxRdAtomic is 4` +
		`\), and its peer QP 0x\w+ permits 1 \(MaxDestRdAtomic\): MaxRdAtomic was set at OTHER, MaxDestRdAtomic was ` +
		`set at OTHER`, "success", "success", connectedByPackage},
	{smallCQ, `cq-capacity: posted at LINE: 4 requests are posted .* and CQ 0x\w+ has 3 entries: create it with more`,
		"success", "success", "impossible: the CQ has an entry for each request and receive"},
	{armedAfterCompletion, `lost-wakeup: armed at LINE: CQ 0x\w+ had completions before \(1\), which raise no event and ` +
		`have not been polled since: poll after Arm, before WaitEvent`,
		noCompletion, noCompletion, "impossible: the package waits"},
	{neverSignaled, `unsignaled: posted at LINE: the send queue of QP 0x\w+ is full, and none .* is signaled`,
		"uverbs: queue full", "uverbs: queue full", "impossible: the package signals"},
	{usedAfterClose, byLibrary, "uverbs: use of a closed object", "uverbs: use of a closed object",
		"connectionUsedAfterClose"},
	{wrongState, byLibrary, "uverbs: the QP's state does not allow this",
		"uverbs: the QP's state does not allow this",
		"impossible: the queues are not accessible before the connection is"},
	{deviceMemoryInUse, byLibrary, busy, noDeviceMemory, "impossible: no device memory"},
	{copyOutOfBounds, byLibrary, "uverbs: write device memory", noDeviceMemory, "impossible: no device memory"},
	{deviceMemoryBounds, `remote-access: posted at LINE: bytes \[0x\w+, \+64\) are outside the region \[0x0, \+128\)`,
		remoteAccess, noDeviceMemory, "impossible: no device memory"},
	{closedDeviceMemory, `remote-access: posted at LINE: RKey 0x\w+ names no region: the region was closed at OTHER`,
		remoteAccess, noDeviceMemory, "impossible: no device memory"},
	{deviceMemoryLeft, `left in the kernel: DM \d+, created at LINE`, "nothing", noDeviceMemory,
		"impossible: no device memory"},
	{wrongDCKey, `qkey: posted at LINE: a request has another DC key than DCT 0x\w+`, retriesExceeded, noDC,
		"impossible: no DC"},
	{numberOfDCI, `destination: posted at LINE: the request of a DCI is for QP 0x\w+, which is not a DCT`,
		retriesExceeded, noDC, "impossible: no DC"},
	{dctNotReady, `destination: posted at LINE: the packet is for QP 0x0, which does not exist`, retriesExceeded, noDC,
		"impossible: no DC"},
	{dctWithoutReceive, `receive-late: posted at LINE: the message finds no receive in SRQ 0x\w+ and is lost: ` +
		`post receives`, noCompletion, noDC, "impossible: no DC"},
	{dctWithoutSRQ, byLibrary, noDC, noDC, "impossible: no DC"},
	{noDCAddress, byLibrary, "uverbs: a request of a UD or SRD QP or a DCI needs an address", noDC, "impossible: no DC"},
	{streamOfDCI, byLibrary, "uverbs: this DCI has no streams", noDC, "impossible: no DC"},
	{dciNotReady, byLibrary, "uverbs: the QP's state does not allow this", noDC, "impossible: no DC"},
	{regionLeft, `left in the kernel: MR \d+, created at LINE`, busy, busy,
		"impossible: a region is registered only while connections share it"},
	{contextLeft, `left in the kernel: event descriptor \d+, created at LINE`, "nothing", "nothing",
		"connectionNotClosed, acceptedNotClosed"},
	{goroutineLeft, `goroutine-left: a goroutine still runs \S+waitForever at \S+, started at LINE`, "nothing", "nothing",
		"goroutineLeft"},
}

// name returns the name of the program.
func (m *mistake) name() string {
	full := runtime.FuncForPC(reflect.ValueOf(m.program).Pointer()).Name()
	return full[strings.LastIndexByte(full, '.')+1:]
}

// file returns the name of the program's file.
func (m *mistake) file() string {
	pc := reflect.ValueOf(m.program).Pointer()
	file, _ := runtime.FuncForPC(pc).FileLine(pc)
	return filepath.Base(file)
}

// line returns the place of the mistake, in one of the files.
func (m *mistake) line(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	inside := false
	for i, l := range strings.Split(string(text), "\n") {
		inside = inside || strings.HasPrefix(l, "func "+m.name()+"(")
		if inside && strings.HasSuffix(l, "// mistake") {
			return fmt.Sprintf("%s:%d", file, i+1)
		}
	}
	t.Fatalf("%s has no line with a mistake", m.name())
	return ""
}

// TestMistakes checks that each mistake is reported on machines in memory, with the line and the
// cause, and nothing else.
func TestMistakes(t *testing.T) {
	for _, m := range mistakes {
		t.Run(m.name(), func(t *testing.T) {
			t.Parallel()
			m.check(t, m.file(), (*verbstest.Machine).Device)
		})
	}
}

// check checks what is reported for a program of a file. place returns the program's argument.
func (m *mistake) check(t *testing.T, file string, place func(*verbstest.Machine) string) {
	r := &recorder{TB: t}
	machine := verbstest.NewNetwork(r).Machine()
	var seen string
	machine.Run(func() { seen = m.program(place(machine)) })
	r.end()
	if !strings.HasPrefix(seen, m.memory) {
		t.Errorf("the program sees %q, not %q", seen, m.memory)
	}
	if m.report == byLibrary {
		if len(r.errors) > 0 {
			t.Errorf("also reported: %s", r.errors)
		}
		return
	}
	lines := strings.NewReplacer("LINE", regexp.QuoteMeta(m.line(t, file)), "OTHER", `\w+\.go:\d+`)
	want := regexp.MustCompile(lines.Replace(m.report))
	if !slices.ContainsFunc(r.errors, want.MatchString) {
		t.Errorf("not reported: %s", want)
	}
	for _, e := range r.errors {
		if !want.MatchString(e) && !strings.Contains(e, "left in the kernel") && !strings.Contains(e, "rdma_cm: ") {
			t.Errorf("also reported: %s", e)
		}
		t.Logf("reported: %s", e)
	}
}

// TestAllow checks that a rule is not reported if it is allowed.
func TestAllow(t *testing.T) {
	for _, m := range mistakes {
		rule, _, _ := strings.Cut(m.report, ":")
		if rule == "left in the kernel" || rule == byLibrary {
			continue // no test may leave objects
		}
		t.Run(m.name(), func(t *testing.T) {
			t.Parallel()
			r := &recorder{TB: t}
			machine := verbstest.NewNetwork(r).Machine()
			machine.Allow(verbstest.Rule(rule))
			machine.Run(func() { m.program(machine.Device()) })
			r.end()
			for _, e := range r.errors {
				t.Errorf("reported: %s", e)
			}
		})
	}
}

// TestSilence checks that programs that use as much as they may are not reported: they post as many
// requests as the CQ has entries, signal the last of each queue length, and end their goroutines.
func TestSilence(t *testing.T) {
	machine := verbstest.New(t)
	const sends = 8
	p := newPair(machine.Device(), config{entries: 7, sends: sends})
	defer p.close()
	done := make(chan struct{})
	go func() { <-done }()
	defer close(done)
	for n := range 10 * sends {
		wr := uverbs.SendWR{Opcode: uverbs.OpWrite, SGL: []uverbs.SGE{p.a.mr.SGE(0, 8)}, RemoteAddr: p.b.mr.Addr(),
			RKey: p.b.mr.RKey()}
		last := n%7 == 6
		if last {
			wr.Flags = uverbs.Signaled
		}
		must(p.a.qp.PostSend(wr))
		if last {
			if seen := completion(p.a, patience); seen != "success" {
				t.Fatal(seen)
			}
		}
	}
}
