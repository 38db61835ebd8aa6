package mistakes

import (
	"testing"

	"github.com/goverbs/goverbs/verbstest"
)

// rdmaMistakes are the mistakes that are possible with package rdma. rdma/bufferuse_test.go has those with buffers.
var rdmaMistakes = []mistake{
	{program: forgedKey, report: `remote-access: posted at LINE: RKey 0x\w+ names no region`, memory: remoteAccess},
	{program: revokedToken, report: `remote-access: posted at LINE: RKey 0x\w+ names no region`, memory: remoteAccess},
	{program: forgedLength, report: `remote-access: posted at LINE: bytes \[0x\w+, \+64\) are outside the region ` +
		`\[0x\w+, \+4096\)`, memory: remoteAccess},
	{program: forgedRights, report: `remote-access: posted at LINE: the region of RKey 0x\w+ lacks RemoteWrite`,
		memory: remoteAccess},
	{program: tokenOfOtherConnection, report: `remote-access: posted at LINE: RKey 0x\w+ is for QP 0x\w+ only`,
		memory: remoteAccess},
	{program: groupNotReceiving, report: `receive-late: posted at LINE: the message finds no receive in QP 0x\w+`,
		memory: "nothing"},
	{program: connectionNotClosed, report: `not-closed: the connection to \S+, created at LINE`, memory: "nothing"},
	{program: acceptedNotClosed, report: `not-closed: the connection to \S+, created at LINE`, memory: "nothing"},
	{program: messageNotReleased, report: `not-released: a message from \S+, received at LINE`, memory: "nothing"},
	{program: bufferNotReleased, report: `not-released: a buffer of 64 bytes, allocated at LINE`, memory: "nothing"},
	{program: bothSend, report: byLibrary,
		memory: "context deadline exceeded: the peer has not released earlier messages"},
	{program: outOfBounds, report: byLibrary, memory: "rdma: out of bounds"},
	{program: withoutRight, report: byLibrary, memory: "rdma: the token does not permit it"},
	{program: misalignedCounter, report: byLibrary, memory: "rdma: not aligned to 8 bytes"},
	{program: connectionUsedAfterClose, report: byLibrary, memory: "use of closed network connection"},
}

// TestRDMAMistakes checks the mistakes with package rdma.
func TestRDMAMistakes(t *testing.T) {
	for _, m := range rdmaMistakes {
		t.Run(m.name(), func(t *testing.T) {
			t.Parallel()
			m.check(t, "rdmaprograms_test.go", func(a *verbstest.Machine) string { return a.Addr().String() })
		})
	}
}
