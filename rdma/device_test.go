//go:build device

package rdma_test

import "testing"

// TestDevice runs the tests that need no faults on a device of the kernel.
func TestDevice(t *testing.T) {
	for name, f := range map[string]func(t *testing.T){
		"Messages": TestMessages, "SlowReceiver": TestSlowReceiver, "HeldMessages": TestHeldMessages,
		"ContextsOfReceives": TestContextsOfReceives, "Calls": TestCalls, "LateReplies": TestLateReplies,
		"CloseDelivers": TestCloseDelivers, "CloseEndsCalls": TestCloseEndsCalls, "CloseBoth": TestCloseBoth,
		"Shutdown": TestShutdown, "OneSided": TestOneSided, "WriteImm": TestWriteImm, "Batch": TestBatch,
		"Rights": TestRights, "Buffers": TestBuffers, "TooLong": TestTooLong, "Group": TestGroup, "Stress": stress,
		"MutualCalls": TestMutualCalls, "LongReplyBesideMessages": TestLongReplyBesideMessages,
		"GroupMembers": TestGroupMembers, "GroupLengths": TestGroupLengths, "GroupErrors": TestGroupErrors,
		"HeldReplies": TestHeldReplies, "AllMessagesHeld": TestAllMessagesHeld,
		"Ends": TestEnds, "UndeliveredCount": TestUndeliveredCount, "ListenDialAccept": TestListenDialAccept,
		"CloseErrorText": TestCloseErrorText, "SlowSubscriber": TestSlowSubscriber,
		"Slices": TestSlices, "FanOut": TestFanOut, "RegionBuffers": TestRegionBuffers, "Flush": TestFlush,
		"FlushChanges": TestFlushChanges, "FlushRace": TestFlushRace,
		"HandleErrors": TestHandleErrors, "HandleDeadline": TestHandleDeadline, "HandleLimit": TestHandleLimit,
		"HandlePanics": TestHandlePanics, "HandleReplies": TestHandleReplies,
		"DeadlineRoom": TestDeadlineRoom, "Metadata": TestMetadata, "ReplyMetadata": TestReplyMetadata,
		"CallInto": TestCallInto, "CallIntoErrors": TestCallIntoErrors, "CallIntoCanceled": TestCallIntoCanceled,
		"CallIntoRegionFunc": TestCallIntoRegionFunc,
		"ListenerShutdown":   TestListenerShutdown, "ListenerShutdownTime": TestListenerShutdownTime,
		"CancelReachesHandler": TestCancelReachesHandler, "ContextEnds": TestContextEnds, "CancelRace": TestCancelRace,
		"ReadOnlyRegion": TestReadOnlyRegion,
		"TLS":            TestTLS, "TLSRefused": TestTLSRefused, "Sealed": TestSealed,
	} {
		t.Run(name, f)
	}
}

// TestDeviceSealed has connections whose messages are sealed.
func TestDeviceSealed(t *testing.T) {
	sealAll(t)
	for name, f := range map[string]func(t *testing.T){
		"Messages": TestMessages, "Calls": TestCalls, "WriteImm": TestWriteImm, "HeldReplies": TestHeldReplies,
		"RegionBuffers": TestRegionBuffers, "CloseDelivers": TestCloseDelivers,
	} {
		t.Run(name, f)
	}
}

// TestDeviceTokens breaks a rule of the software ConnectX: it uses keys that are not valid.
func TestDeviceTokens(t *testing.T) {
	t.Run("Revoke", TestRevoke)
	t.Run("TokensOfOthers", TestTokensOfOthers)
}

// TestDeviceScale is TestStress with 100 connections.
func TestDeviceScale(t *testing.T) {
	t.Setenv("GOVERBS_RDMA_CONNS", "100")
	t.Setenv("GOVERBS_RDMA_STRESS", "5s")
	stress(t)
}

// TestDeviceShared has listeners whose connections share receives.
func TestDeviceShared(t *testing.T) {
	sharedReceives = 64
	t.Cleanup(func() { sharedReceives = 0 })
	for name, f := range map[string]func(t *testing.T){
		"Messages": TestMessages, "SlowReceiver": TestSlowReceiver, "Calls": TestCalls, "LateReplies": TestLateReplies,
		"AllMessagesHeld": TestAllMessagesHeld, "HeldReplies": TestHeldReplies, "OneSided": TestOneSided,
		"WriteImm": TestWriteImm, "Batch": TestBatch, "CloseEndsCalls": TestCloseEndsCalls,
		"ShortReceives": TestShortReceives,
	} {
		t.Run(name, f)
	}
	t.Setenv("GOVERBS_RDMA_CONNS", "100")
	t.Setenv("GOVERBS_RDMA_STRESS", "3s")
	t.Run("Stress", stress)
}
