package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/verbstest"
)

// file writes a file with n random bytes.
func file(t *testing.T, n int) (name string, data []byte) {
	t.Helper()
	r := rand.NewChaCha8([32]byte{1})
	data = make([]byte, n)
	r.Read(data)
	name = filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name, data
}

// TestCopy copies files, also if packets are lost.
func TestCopy(t *testing.T) {
	for _, n := range []int{0, 1, 1 << 20, 5<<20 + 77} {
		for _, loss := range []float64{0, 0.0005} {
			net := verbstest.NewNetwork(t)
			here, there := net.Machine(), net.Machine()
			if loss > 0 {
				net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, Probability: loss})
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			source, data := file(t, n)
			target := filepath.Join(t.TempDir(), "target")
			received := make(chan error, 1)
			there.Run(func() { go func() { received <- receive(ctx, ":7472", target) }() })
			here.Run(func() {
				if err := sendWhenReady(ctx, there.AddrPort(7472).String(), source); err != nil {
					t.Errorf("%d bytes: %v", n, err)
				}
			})
			if err := <-received; err != nil {
				t.Errorf("%d bytes: %v", n, err)
			}
			cancel()
			if got, err := os.ReadFile(target); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes: %d have come (%v)", n, len(got), err)
			}
			if _, err := os.Stat(target + ".part"); err == nil {
				t.Error("the part is still there")
			}
		}
	}
}

// sendWhenReady sends as soon as the receiver listens.
func sendWhenReady(ctx context.Context, addr, name string) error {
	for {
		err := send(ctx, addr, name)
		if err == nil || ctx.Err() != nil || !isRejected(err) {
			return err
		}
	}
}

// isRejected reports whether nobody listens yet.
func isRejected(err error) bool { return errors.Is(err, cm.ErrRejected) }

// TestInterrupted ends the sender and the receiver in the middle: the other one reports it, and no file is left.
func TestInterrupted(t *testing.T) {
	for name, side := range map[string]int{"sender": 0, "receiver": 1} {
		t.Run(name, func(t *testing.T) {
			net := verbstest.NewNetwork(t)
			here, there := net.Machine(), net.Machine()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			contexts := [2]context.Context{ctx, ctx}
			var interrupt context.CancelFunc
			contexts[side], interrupt = context.WithCancel(ctx)
			defer interrupt()
			source, _ := file(t, 100<<20)
			target := filepath.Join(t.TempDir(), "target")
			ends := make(chan error, 2)
			there.Run(func() { go func() { ends <- receive(contexts[1], ":7472", target) }() })
			here.Run(func() { go func() { ends <- sendWhenReady(contexts[0], there.AddrPort(7472).String(), source) }() })
			for { // until something has come
				if s, err := os.Stat(target + ".part"); err == nil && s.Size() > 0 {
					break
				}
				if ctx.Err() != nil {
					t.Fatal("nothing has come")
				}
				runtime.Gosched()
			}
			interrupt()
			for range 2 {
				if err := <-ends; err == nil {
					t.Error("no error")
				}
			}
			if names, err := filepath.Glob(target + "*"); err != nil || len(names) > 0 {
				t.Errorf("%v is left (%v)", names, err)
			}
		})
	}
}
