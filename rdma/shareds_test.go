package rdma_test

import (
	"encoding/binary"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// TestShortReceives has clients send more messages than there are receives at once, long ones behind short ones. On
// rxe, a window that was bound behind a SEND which was repeated ended the connection.
func TestShortReceives(t *testing.T) {
	const n, each, long = 16, 4, 8192
	p := machines(t)
	ctx := limit(t)
	var l *rdma.Listener
	p.onServer(func() {
		l = must(rdma.Listen(p.listenAddr(), &rdma.ListenOptions{SharedReceives: 16, HandshakeTimeout: time.Minute}))(t)
	})
	var all sync.WaitGroup
	p.onServer(func() {
		all.Go(func() {
			for range n {
				c, err := l.Accept(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				all.Go(func() {
					for i := range 2*each + 1 {
						m, err := c.Recv(ctx)
						if err == io.EOF && i == 2*each {
							break
						}
						if err != nil {
							t.Errorf("message %d: %v", i, err)
							return
						}
						if got := binary.LittleEndian.Uint32(m.Bytes()); got != uint32(i) {
							t.Errorf("message %d instead of %d", got, i)
						}
						m.Release()
					}
					check(t, c.Close())
				})
			}
		})
	})
	p.onClient(func() {
		clients := make([]*rdma.Conn, n)
		for i := range clients {
			clients[i] = must(rdma.Dial(ctx, p.addr(l), nil))(t)
		}
		for _, c := range clients {
			all.Go(func() {
				for i := range 2 * each {
					b := pattern(4+i%2*long, i)
					binary.LittleEndian.PutUint32(b, uint32(i))
					if err := c.Send(ctx, b); err != nil {
						t.Error(err)
						return
					}
				}
				check(t, c.Shutdown(ctx))
			})
		}
	})
	all.Wait()
	check(t, l.Close())
}

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
