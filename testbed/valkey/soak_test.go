//go:build vm && soak

package valkey_test

import (
	"bytes"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"
)

// TestSoakLargest stores the largest value that the server accepts.
func TestSoakLargest(t *testing.T) {
	values(t, start(t).dial(), 512<<20)
}

// TestSoakLoad writes and reads values of up to 64 MiB for some minutes, most of 1 MiB.
func TestSoakLoad(t *testing.T) {
	const clients = 8
	r := start(t)
	end := time.Now().Add(5 * time.Minute)
	failed := make(chan error, clients)
	for i := range clients {
		c := r.dial()
		go func() {
			key := strconv.Itoa(i)
			for time.Now().Before(end) {
				want := bytes.Repeat([]byte{byte(rand.Int())}, 1<<20<<(6*(rand.IntN(50)/49)))
				err := c.Do(t.Context(), c.B().Set().Key(key).Value(valkey.BinaryString(want)).Build()).Error()
				if err != nil {
					failed <- err
					return
				}
				got, err := c.Do(t.Context(), c.B().Get().Key(key).Build()).AsBytes()
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes of %d came back: %v", len(got), len(want), err)
				}
			}
			failed <- nil
		}()
	}
	for range clients {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}
