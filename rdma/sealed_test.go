package rdma_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
)

// sealedPair returns a sealed connection. The client or the server sets Options.Seal.
func sealedPair(t testing.TB, o rdma.Options, byServer bool) *pair {
	t.Helper()
	server, client := configs(t)
	co, so := o, o
	co.TLS, so.TLS = client, server
	co.Seal, so.Seal = !byServer, byServer
	p := connect(t, &co, &so)
	if !p.client.Sealed() || !p.server.Sealed() {
		t.Fatal("the connection is not sealed")
	}
	return p
}

// sealedLengths are lengths of messages around the limits of what is sent in another way.
func sealedLengths(eager int) []int {
	return []int{0, 1, 15, 16, 17, 64, 111, 112, 113, 127, 128, 129, 1024, 2048, eager - 16, eager - 1, eager, eager + 1,
		eager + 16, eager + 17, 10000, 1<<20 - 1, 1 << 20, 1<<20 + 1}
}

// randomBytes returns n bytes that are the same in each run.
func randomBytes(n int) []byte {
	b, r := make([]byte, n), rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// TestSealed checks that messages, calls and replies of all lengths arrive, in both directions.
func TestSealed(t *testing.T) {
	for _, eager := range []int{256, 4096, 1 << 20} {
		for _, byServer := range []bool{false, true} {
			if onKernel && byServer && eager != 4096 {
				continue // only in memory: emulated CPUs seal slowly, and which side asks for it matters to the handshake alone
			}
			t.Run(fmt.Sprintf("%d by server %v", eager, byServer), func(t *testing.T) {
				p := sealedPair(t, rdma.Options{EagerSize: eager, MaxMessage: 2 << 20}, byServer)
				if s := p.client.Stats(); s.Sent+s.SentBytes+s.Received+s.ReceivedBytes > 0 {
					t.Errorf("the handshake counts in %+v", s)
				}
				echoed := background(func() error { return echoSealed(t, p.server) })
				for _, n := range sealedLengths(eager) {
					b := randomBytes(n)
					check(t, p.client.Send(limit(t), b))
					sealedSame(t, "echo", b, must(p.client.Recv(limit(t)))(t))
					sealedSame(t, "reply", b, must(p.client.Call(limit(t), b))(t))
					buf := must(p.client.Alloc(n))(t)
					copy(buf.Bytes(), b)
					check(t, p.client.SendBuffer(limit(t), buf))
					sealedSame(t, "echo of a buffer", b, must(p.client.Recv(limit(t)))(t))
				}
				check(t, p.client.Close())
				check(t, within(t, echoed, "the server"))
			})
		}
	}
}

func sealedSame(t *testing.T, what string, want []byte, m rdma.Message) {
	t.Helper()
	if got := m.Copy(); !bytes.Equal(got, want) {
		t.Errorf("%s of %d bytes: %d bytes, which are others", what, len(want), len(got))
	}
}

// echoSealed sends back messages and calls until the peer closes the connection.
func echoSealed(t *testing.T, c *rdma.Conn) error {
	for {
		m, err := c.Recv(limit(t))
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case m.IsCall():
			err = m.Reply(limit(t), m.Bytes())
			m.Release()
		default:
			err = c.SendBuffer(limit(t), m.Buffer)
		}
		if err != nil {
			return err
		}
	}
}

// sealAll has all connections sealed until the test ends.
func sealAll(t *testing.T) {
	server, client := configs(t)
	sealing = &struct{ server, client *tls.Config }{server, client}
	t.Cleanup(func() { sealing = nil })
}

// TestSealedAsOthers runs tests with connections that are sealed.
func TestSealedAsOthers(t *testing.T) {
	sealAll(t)
	for name, f := range map[string]func(t *testing.T){
		"Messages": TestMessages, "SlowReceiver": TestSlowReceiver, "HeldMessages": TestHeldMessages, "Calls": TestCalls,
		"LateReplies": TestLateReplies, "AllMessagesHeld": TestAllMessagesHeld, "HeldReplies": TestHeldReplies,
		"MutualCalls": TestMutualCalls, "Forward": TestForward, "Stress": stress, "Metadata": TestMetadata,
		"ReplyMetadata": TestReplyMetadata, "CallInto": TestCallInto, "CallIntoErrors": TestCallIntoErrors,
		"CallIntoCanceled": TestCallIntoCanceled, "CallIntoRegionFunc": TestCallIntoRegionFunc,
		"HandleReplies": TestHandleReplies, "HandleErrors": TestHandleErrors, "CancelRace": TestCancelRace,
		"OneSided": TestOneSided, "WriteImm": TestWriteImm, "Batch": TestBatch, "Slices": TestSlices,
		"FanOut": TestFanOut, "RegionBuffers": TestRegionBuffers, "Flush": TestFlush, "TooLong": TestTooLong,
		"CloseDelivers": TestCloseDelivers, "CloseEndsCalls": TestCloseEndsCalls, "UndeliveredCount": TestUndeliveredCount,
		"EndBesideEverything": TestEndBesideEverything, "PacketLoss": TestPacketLoss, "RemovedDevice": TestRemovedDevice,
		"IdleTimeout": TestIdleTimeout,
	} {
		t.Run(name, f)
	}
}

// TestSealedShared is TestSealedAsOthers with shared receives. It is a test of its own, because parallel subtests run
// when the function of their test has returned, with the receives that it has set last.
func TestSealedShared(t *testing.T) {
	sealAll(t)
	sharedReceives = 16
	t.Cleanup(func() { sharedReceives = 0 })
	for name, f := range map[string]func(t *testing.T){
		"Messages": TestMessages, "SlowReceiver": TestSlowReceiver, "Calls": TestCalls, "Stress": stress,
		"AllMessagesHeld": TestAllMessagesHeld, "HeldReplies": TestHeldReplies, "WriteImm": TestWriteImm,
		"CancelRace": TestCancelRace, "PacketLoss": TestPacketLoss,
	} {
		t.Run(name, f)
	}
}

// TestSealedRegionFunc checks that memory which the process cannot read is refused, and that the connection goes on.
func TestSealedRegionFunc(t *testing.T) {
	p := sealedPair(t, rdma.Options{}, false)
	memory := make([]byte, 8192)
	region := rdma.RegionFunc(len(memory), func(pd *uverbs.PD, a uverbs.Access) (*uverbs.MR, error) {
		return pd.RegMR(memory, a)
	})
	for _, n := range []int{64, 2000, 8192} {
		b := must(p.client.BufferOf(region, 0, n))(t)
		isError(t, p.client.SendBuffer(limit(t), b), uverbs.ErrInvalid)
		b.Release()
	}
	check(t, p.client.Send(limit(t), []byte("after")))
	sealedSame(t, "message", []byte("after"), must(p.server.Recv(limit(t)))(t))
	check(t, region.Close())
}
