package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
	"golang.org/x/sys/unix"
)

// A transfer has the machines of a sender and a receiver, and their files.
type transfer struct {
	*testing.T
	net            *verbstest.Network
	here, there    *verbstest.Machine
	source, target string
	data           []byte // of the source
}

// newTransfer returns a transfer of n random bytes.
func newTransfer(t *testing.T, n int) *transfer {
	t.Helper()
	tr := &transfer{T: t, net: verbstest.NewNetwork(t), data: make([]byte, n)}
	tr.here, tr.there = tr.net.Machine(), tr.net.Machine()
	rand.NewChaCha8([32]byte{1}).Read(tr.data)
	dir := t.TempDir()
	tr.source, tr.target = filepath.Join(dir, "source"), filepath.Join(dir, "target")
	if err := os.WriteFile(tr.source, tr.data, 0o600); err != nil {
		t.Fatal(err)
	}
	return tr
}

// start starts both sides, and returns where their errors arrive.
func (tr *transfer) start(sender, receiver context.Context) (sent, received <-chan error) {
	ends := [2]chan error{make(chan error, 1), make(chan error, 1)}
	tr.there.Run(func() { go func() { ends[1] <- receive(receiver, ":7472", tr.target) }() })
	tr.here.Run(func() { go func() { ends[0] <- tr.send(sender) }() })
	return ends[0], ends[1]
}

// send sends the file as soon as the receiver listens.
func (tr *transfer) send(ctx context.Context) error {
	for {
		err := send(ctx, tr.there.AddrPort(7472).String(), tr.source)
		if !errors.Is(err, cm.ErrRejected) || ctx.Err() != nil {
			return err
		}
	}
}

// limit returns a context for a transfer.
func (tr *transfer) limit() context.Context {
	ctx, cancel := context.WithTimeout(tr.Context(), 2*time.Minute)
	tr.Cleanup(cancel)
	return ctx
}

// copied runs the transfer and checks that the target is the source.
func (tr *transfer) copied(ctx context.Context) {
	tr.Helper()
	sent, received := tr.start(ctx, ctx)
	tr.arrived(sent, received)
}

func (tr *transfer) arrived(sent, received <-chan error) {
	tr.Helper()
	if err := errors.Join(<-sent, <-received); err != nil {
		tr.Error(err)
	}
	if got, err := os.ReadFile(tr.target); err != nil || !bytes.Equal(got, tr.data) {
		tr.Errorf("%d bytes of %d have come, or others (%v)", len(got), len(tr.data), err)
	}
	if err := os.Remove(tr.target); err != nil {
		tr.Error(err)
	}
	tr.nothingLeft()
}

// nothingLeft checks that there is no file of the receiver.
func (tr *transfer) nothingLeft() {
	tr.Helper()
	if names, err := filepath.Glob(tr.target + "*"); err != nil || len(names) > 0 {
		tr.Errorf("%v is left (%v)", names, err)
	}
}

// untilBegun waits until the receiver has written a part of the file.
func (tr *transfer) untilBegun(ctx context.Context) {
	tr.Helper()
	for ctx.Err() == nil {
		if s, err := os.Stat(tr.target + ".part"); err == nil && s.Size() > 0 {
			return
		}
	}
	tr.Fatal("nothing has come")
}

func TestCopy(t *testing.T) {
	faults := map[string]verbstest.PacketFault{
		"nothing":   {},
		"loss":      {Action: verbstest.Drop, Probability: 0.0005},
		"reorder":   {Action: verbstest.Reorder, Probability: 0.001},
		"duplicate": {Action: verbstest.Duplicate, Probability: 0.01},
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{0, 1, 1 << 20, 5<<20 + 77} {
				tr := newTransfer(t, n)
				if fault.Action != "" {
					tr.net.AddFault(fault)
				}
				tr.copied(tr.limit())
			}
		})
	}
}

// TestEachPacketLost loses each packet of a short transfer in turn.
func TestEachPacketLost(t *testing.T) {
	tr := newTransfer(t, 5000)
	tr.net.SetTimeouts(verbstest.Timeouts{Ack: 13}) // 33 ms
	ctx := tr.limit()
	for n := range 24 {
		remove := tr.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, Skip: n, Count: 1})
		tr.copied(ctx)
		remove()
	}
}

// TestPartition separates the machines for less than the time of the retries.
func TestPartition(t *testing.T) {
	tr := newTransfer(t, 64<<20)
	ctx := tr.limit()
	sent, received := tr.start(ctx, ctx)
	tr.untilBegun(ctx)
	heal := tr.net.Partition(tr.here, tr.there)
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	tr.here.Run(func() {
		if err := send(short, tr.there.AddrPort(7473).String(), tr.source); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want that the other machine does not reply", err)
		}
	})
	heal()
	tr.arrived(sent, received)
}

// TestStandsStill has a side that stands still, as after SIGSTOP: the receiver in a write, or the sender in a read. The
// other waits.
func TestStandsStill(t *testing.T) {
	t.Run("receiver", func(t *testing.T) {
		tr := newTransfer(t, 64<<20)
		ctx := tr.limit()
		if err := unix.Mkfifo(tr.target+".part", 0o600); err != nil {
			t.Fatal(err)
		}
		sent, received := tr.start(ctx, ctx)
		f, err := os.Open(tr.target + ".part") // when the receiver opens it
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		got := make([]byte, len(tr.data))
		if _, err := io.ReadFull(f, got[:1<<20]); err != nil {
			t.Fatal(err)
		}
		tr.still(sent, received)
		if _, err := io.ReadFull(f, got[1<<20:]); err != nil || !bytes.Equal(got, tr.data) {
			t.Errorf("other bytes have come (%v)", err)
		}
		if err := errors.Join(<-sent, <-received, os.Remove(tr.target)); err != nil {
			t.Error(err)
		}
		tr.nothingLeft()
	})
	t.Run("sender", func(t *testing.T) {
		tr := newTransfer(t, 5<<20)
		ctx := tr.limit()
		if err := errors.Join(os.Remove(tr.source), unix.Mkfifo(tr.source, 0o600)); err != nil {
			t.Fatal(err)
		}
		sent, received := tr.start(ctx, ctx)
		f, err := os.OpenFile(tr.source, os.O_WRONLY, 0) // when the sender opens it
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write(tr.data[:1<<20]); err != nil {
			t.Fatal(err)
		}
		tr.untilBegun(ctx)
		tr.still(sent, received)
		if _, err := f.Write(tr.data[1<<20:]); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		tr.arrived(sent, received)
	})
}

// still checks that neither side ends for a while.
func (tr *transfer) still(sent, received <-chan error) {
	tr.Helper()
	select {
	case err := <-sent:
		tr.Fatalf("the sender returns %v", err)
	case err := <-received:
		tr.Fatalf("the receiver returns %v", err)
	case <-time.After(time.Second):
	}
}

// TestGone ends one side in the middle, or its machine: both report it, and no file is left.
func TestGone(t *testing.T) {
	for name, end := range map[string]func(tr *transfer, interrupt [2]context.CancelFunc){
		"sender interrupted":        func(_ *transfer, interrupt [2]context.CancelFunc) { interrupt[0]() },
		"receiver interrupted":      func(_ *transfer, interrupt [2]context.CancelFunc) { interrupt[1]() },
		"sender killed":             func(tr *transfer, _ [2]context.CancelFunc) { tr.here.Kill() },
		"receiver killed":           func(tr *transfer, _ [2]context.CancelFunc) { tr.there.Kill() },
		"sender's device removed":   func(tr *transfer, _ [2]context.CancelFunc) { tr.here.RemoveDevice() },
		"receiver's device removed": func(tr *transfer, _ [2]context.CancelFunc) { tr.there.RemoveDevice() },
		"partition": func(tr *transfer, _ [2]context.CancelFunc) {
			tr.net.Partition(tr.here, tr.there)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // a side that only waits finds out with its keepalive, after up to 30 seconds
			tr := newTransfer(t, 0)
			if err := os.Truncate(tr.source, 1<<30); err != nil { // more than is copied before the end
				t.Fatal(err)
			}
			tr.net.SetTimeouts(verbstest.Timeouts{Ack: 13, Reply: 50 * time.Millisecond})
			ctx := tr.limit()
			sender, stopSender := context.WithCancel(ctx)
			receiver, stopReceiver := context.WithCancel(ctx)
			defer stopSender()
			defer stopReceiver()
			sent, received := tr.start(sender, receiver)
			tr.untilBegun(ctx)
			end(tr, [2]context.CancelFunc{stopSender, stopReceiver})
			for side, err := range map[string]error{"sender": <-sent, "receiver": <-received} {
				t.Logf("%s: %v", side, err)
				if err == nil || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the %s returns %v, want why there is no file", side, err)
				}
				if interrupted := name == side+" interrupted"; interrupted != errors.Is(err, context.Canceled) {
					t.Errorf("the %s returns %v", side, err)
				}
			}
			tr.nothingLeft()
		})
	}
}

// TestTargetIsDirectory has a receiver that cannot rename its file: the sender reports why.
func TestTargetIsDirectory(t *testing.T) {
	tr := newTransfer(t, 10)
	ctx := tr.limit()
	if err := os.MkdirAll(filepath.Join(tr.target, "file"), 0o700); err != nil {
		t.Fatal(err)
	}
	sent, received := tr.start(ctx, ctx)
	if err := <-sent; err == nil || !strings.Contains(err.Error(), "file exists") {
		t.Errorf("the sender returns %v, want that the file exists", err)
	}
	if err := <-received; !errors.Is(err, os.ErrExist) {
		t.Errorf("the receiver returns %v, want that the file exists", err)
	}
	if _, err := os.Stat(tr.target + ".part"); err == nil {
		t.Error("the part is left")
	}
}

// TestCorrupt has a sender whose trailer does not fit what it has sent.
func TestCorrupt(t *testing.T) {
	tr := newTransfer(t, 0)
	ctx := tr.limit()
	received := make(chan error, 1)
	tr.there.Run(func() { go func() { received <- receive(ctx, ":7472", tr.target) }() })
	tr.here.Run(func() {
		c, err := rdma.Dial(ctx, tr.there.AddrPort(7472).String(), nil)
		for errors.Is(err, cm.ErrRejected) {
			c, err = rdma.Dial(ctx, tr.there.AddrPort(7472).String(), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := c.Send(ctx, []byte("data")); err != nil {
			t.Fatal(err)
		}
		m, err := c.Call(ctx, []byte("5 bytes, CRC-32C 00000000"))
		if reply := string(m.Copy()); err != nil || !strings.HasPrefix(reply, "corrupt: 4 bytes, ") {
			t.Errorf("%q, %v", reply, err)
		}
	})
	if err := <-received; err == nil || !strings.Contains(err.Error(), "corrupt") {
		t.Errorf("the receiver returns %v, want that the file is corrupt", err)
	}
	tr.nothingLeft()
}
