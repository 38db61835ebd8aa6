//go:build device

package rsocket_test

import "testing"

// TestDevice runs the tests that need no faults on a device of the kernel.
func TestDevice(t *testing.T) {
	for name, f := range map[string]func(t *testing.T){
		"Stream": TestStream, "WriteFillsWindow": TestWriteFillsWindow, "CopyFillsWindow": TestCopyFillsWindow,
		"HalfClose": TestHalfClose, "HalfCloseCarriesOn": TestHalfCloseCarriesOn, "CloseRead": TestCloseRead,
		"CloseWakes": TestCloseWakes, "CallsAfterClose": TestCallsAfterClose, "UnreadData": TestUnreadData,
		"Deadlines": TestDeadlines, "LongPolling": TestLongPolling, "AcceptEnds": TestAcceptEnds,
		"Hello": TestHello, "FirstMessages": TestFirstMessages, "Ring": TestRing, "Grants": TestGrants,
		"Credits": TestCredits, "PeerHello": TestPeerHello, "MappingEntries": TestMappingEntries,
		"Harmless": TestHarmless, "Stress": TestStress, "Readers": TestReaders, "Idle": TestIdle, "Stopped": TestStopped,
		"CopiedDataIsStable": TestCopiedDataIsStable, "CallsBesideCopies": TestCallsBesideCopies,
		"WrongCounts": TestWrongCounts, "ShortWriter": TestShortWriter, "EmptyCalls": TestEmptyCalls,
		"WriteBuffers": TestWriteBuffers,
	} {
		t.Run(name, f)
	}
}

// TestDeviceScale is TestManyConnections with more connections.
func TestDeviceScale(t *testing.T) { manyConnections(t, connections(t, 300)) }
