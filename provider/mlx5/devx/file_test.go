package devx

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// messages returns a file of which the test writes the messages.
func messages(t *testing.T) (*file, *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := &file{op: "read", f: os.NewFile(uintptr(fds[0]), "messages"), turn: make(chan struct{}, 1)}
	w := os.NewFile(uintptr(fds[1]), "kernel")
	t.Cleanup(func() {
		if err := errors.Join(f.f.Close(), w.Close()); err != nil {
			t.Error(err)
		}
	})
	return f, w
}

// TestNextOfMany checks that several goroutines that read get each message once and unchanged.
func TestNextOfMany(t *testing.T) {
	const readers, each = 4, 200
	f, w := messages(t)
	var mu sync.Mutex
	got := map[uint64]int{}
	var reading sync.WaitGroup
	for range readers {
		reading.Go(func() {
			for range each {
				b, err := f.next(t.Context(), hdrSize+eqeSize)
				if err != nil {
					t.Error(err)
					return
				}
				number, data, err := split(b)
				if err != nil || len(data) != 8 || binary.NativeEndian.Uint64(data) != ^number {
					t.Errorf("message %d: % x, %v", number, data, err)
				}
				mu.Lock()
				got[number]++
				mu.Unlock()
			}
		})
	}
	for i := range uint64(readers * each) {
		if _, err := w.Write(binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, i), ^i)); err != nil {
			t.Fatal(err)
		}
	}
	reading.Wait()
	if len(got) != readers*each {
		t.Errorf("%d different messages, want %d", len(got), readers*each)
	}
}

// TestNextContext checks that a goroutine that waits for its turn returns when its context is done, and that the end of
// a context does not disturb later reads.
func TestNextContext(t *testing.T) {
	f, w := messages(t)
	f.turn <- struct{}{} // another goroutine reads
	why := errors.New("the operator said so")
	ctx, cancel := context.WithCancelCause(t.Context())
	returned := make(chan error)
	go func() {
		_, err := f.next(ctx, hdrSize)
		returned <- err
	}()
	cancel(why)
	if err := <-returned; !errors.Is(err, why) {
		t.Errorf("while another goroutine reads: %v", err)
	}
	<-f.turn
	if _, err := f.next(ctx, hdrSize); !errors.Is(err, why) {
		t.Errorf("with a context that has ended: %v", err)
	}
	message := make([]byte, hdrSize)
	for range 200 {
		ctx, cancel := context.WithCancelCause(t.Context())
		go cancel(why)
		go func() { _, err := w.Write(message); returned <- err }()
		_, errFirst := f.next(ctx, hdrSize)
		if errWrite := <-returned; errWrite != nil {
			t.Fatal(errWrite)
		}
		if errFirst == nil {
			continue
		}
		if !errors.Is(errFirst, why) {
			t.Fatal(errFirst)
		}
		if _, err := f.next(t.Context(), hdrSize); err != nil {
			t.Fatalf("after the end of another context: %v", err)
		}
	}
}
