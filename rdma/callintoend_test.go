package rdma

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// reading is a call into a region whose reply is being read: nothing of this side reaches the peer.
type reading struct {
	c      *Conn
	h      *hostile
	region *Region
	cancel context.CancelFunc
	called chan error
	heal   func()
}

// startReading has a peer offer a reply of 4096 bytes from its memory.
func startReading(t *testing.T) *reading {
	n := verbstest.NewNetwork(t)
	n.SetTimeouts(verbstest.Timeouts{Ack: 16})
	n.Allow(verbstest.RemoteAccess, verbstest.ReceiveLate, verbstest.LocalKey)
	honest := n.Machine()
	c, h := hostileOn(t, honest, n.Machine(), &Options{Linger: -1}, honestHello())
	r := &reading{c: c, h: h, region: NewRegion(1 << 16), called: make(chan error, 1)}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(h.ctx)
	b, err := c.BufferOf(r.region, 0, 1<<16)
	good(t, b, err)
	go func() { _, err := c.CallInto(ctx, []byte("call"), b); r.called <- err }()
	for k := kindCredits; k.base() != kindCall; {
		k, _, _ = h.recv()
	}
	r.heal = n.AddFault(verbstest.PacketFault{Action: verbstest.Drop, From: honest})
	o := offer{kind: kindReply, key: h.mr.RKey(), addr: h.mr.Addr(), length: 4096}
	var body [offerLen]byte
	o.put(&body)
	copy(h.mr.Bytes()[hostileBody:], body[:])
	wr := uverbs.SendWR{Opcode: uverbs.OpSendImm, Imm: packImm(kindOffer, credits{}, 0),
		SGL: []uverbs.SGE{h.mr.SGE(hostileBody, offerLen)}}
	if _, err := h.conn.QP().PostSend(wr); err != nil {
		t.Fatal(err)
	}
	eventually(t, h.ctx, c, "the reply is being read", func() bool {
		k := c.calls.all[0]
		return k.replied && k.m.large.reading
	})
	return r
}

// TestCallIntoReading ends the context of a call while its reply is being read into a region. The call ends at once,
// and the region is in use until the device has ended the READ.
func TestCallIntoReading(t *testing.T) {
	for _, end := range []string{"Flush", "Close"} {
		t.Run(end, func(t *testing.T) {
			r := startReading(t)
			copy(r.h.mr.Bytes(), bytes.Repeat([]byte("y"), 4096))
			r.cancel()
			if err := <-r.called; !errors.Is(err, context.Canceled) {
				t.Errorf("CallInto returns %v", err)
			}
			for range 2 {
				if err := r.region.Close(); !errors.Is(err, uverbs.ErrBusy) {
					t.Errorf("Close of the region returns %v", err)
				}
			}
			if end == "Flush" {
				r.heal()
				if err := r.c.Flush(r.h.ctx); err != nil {
					t.Error(err)
				}
			} else {
				mayLose(t, r.c.Close())
			}
			if err := r.region.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCallIntoBroken ends the connection while a reply is being read into a region.
func TestCallIntoBroken(t *testing.T) {
	for _, end := range []string{"disconnect", "no memory", "Close"} {
		t.Run(end, func(t *testing.T) {
			r := startReading(t)
			want := ErrDisconnected
			switch end {
			case "disconnect":
				if err := r.h.conn.ID().ID.Disconnect(); err != nil {
					t.Error(err)
				}
			case "no memory":
				if err := r.h.mr.Close(); err != nil {
					t.Error(err)
				}
				r.heal()
			case "Close":
				mayLose(t, r.c.Close())
				want = nil
			}
			if err := <-r.called; err == nil || want != nil && !errors.Is(err, want) {
				t.Errorf("CallInto returns %v", err)
			}
			mayLose(t, r.c.Close())
			if err := r.region.Close(); err != nil {
				t.Error(err)
			}
			r.cancel()
		})
	}
}

// TestCallIntoClosed has the reply to a call offered when the call has returned because of Close, which waits for
// another message: it is not read into the region.
func TestCallIntoClosed(t *testing.T) {
	c, h := hostilePair(t, nil, honestHello())
	if err := c.Send(h.ctx, make([]byte, 5000)); err != nil { // which the peer does not read
		t.Fatal(err)
	}
	region := NewRegion(1 << 16)
	b, err := c.BufferOf(region, 0, 1<<16)
	good(t, b, err)
	called, closed := make(chan error, 1), make(chan error, 1)
	go func() { _, err := c.CallInto(h.ctx, []byte("call"), b); called <- err }()
	for k := kindCredits; k.base() != kindCall; {
		k, _, _ = h.recv()
	}
	go func() { closed <- c.Close() }()
	if err := <-called; !errors.Is(err, net.ErrClosed) {
		t.Errorf("CallInto returns %v", err)
	}
	copy(h.mr.Bytes(), bytes.Repeat([]byte("y"), 4096))
	h.offer(offer{kind: kindReply, key: h.mr.RKey(), addr: h.mr.Addr(), length: 4096}, 0)
	eventually(t, h.ctx, c, "the reply is handled", func() bool {
		k := c.calls.all[0]
		return k.replied && (k.m.large == nil || !k.m.large.reading)
	})
	if bytes.Contains(region.Bytes(), []byte("y")) {
		t.Error("the reply is in the region")
	}
	h.send(kindTaken, 0, 0, nil)
	mayLose(t, <-closed)
	if err := region.Close(); err != nil {
		t.Error(err)
	}
}
