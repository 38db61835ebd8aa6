package rdma_test

import "testing"

// TestShared runs tests with listeners whose connections share receives: those in which a side needs no more credits
// than it has from the beginning before the other receives.
func TestShared(t *testing.T) {
	sharedReceives = 16
	t.Cleanup(func() { sharedReceives = 0 })
	for name, f := range map[string]func(t *testing.T){
		"Messages": TestMessages, "SlowReceiver": TestSlowReceiver, "ContextsOfReceives": TestContextsOfReceives,
		"Calls": TestCalls, "LateReplies": TestLateReplies, "AllMessagesHeld": TestAllMessagesHeld,
		"MutualCalls": TestMutualCalls, "HeldReplies": TestHeldReplies, "Forward": TestForward, "Stress": stress,
		"CloseEndsCalls": TestCloseEndsCalls, "IdleTimeout": TestIdleTimeout,
		"OneSided": TestOneSided, "WriteImm": TestWriteImm, "Batch": TestBatch, "Slices": TestSlices,
		"CancelReachesHandler": TestCancelReachesHandler, "ContextEnds": TestContextEnds, "CancelRace": TestCancelRace,
		"EndBesideEverything": TestEndBesideEverything, "PacketLoss": TestPacketLoss, "RemovedDevice": TestRemovedDevice,
	} {
		t.Run(name, f)
	}
}
