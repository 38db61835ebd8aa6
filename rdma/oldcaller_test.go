package rdma

import (
	"context"
	"errors"
	"testing"
)

// TestOldCallerGoesOn checks that a peer without trailers keeps its connection if a handler returns an error for a call
// that the peer has canceled, or that has its reply.
func TestOldCallerGoesOn(t *testing.T) {
	hi := honestHello()
	hi.features &^= featureTrailers
	c, h := hostilePair(t, nil, hi)
	began := make(chan struct{}, 1)
	handled := handledBy(h.ctx, c, func(ctx context.Context, r *Request) ([]byte, error) {
		switch string(r.Bytes()) {
		case "cancel":
			began <- struct{}{}
			<-ctx.Done()
			return nil, ctx.Err()
		case "reply":
			return nil, errors.Join(r.Reply(ctx, []byte("done")), errors.New("later"))
		}
		return []byte("good"), nil
	}, 1)
	replied := func(want string) {
		t.Helper()
		for {
			k, _, body := h.recv()
			if k == kindCredits {
				continue
			}
			if k != kindReply || string(body) != want {
				t.Fatalf("kind %d, %q, want %q", k, body, want)
			}
			return
		}
	}
	h.call(0, 8)
	replied("good")
	h.send(kindCall, 0, 0, []byte("cancel"))
	<-began
	h.send(kindCancel, 0, 0, nil)
	replied("")
	h.send(kindCall, 0, 0, []byte("reply"))
	replied("done")
	h.send(kindCall, 0, 0, nil)
	replied("good")
	h.end(farewell{})
	if err := <-handled; err != nil {
		t.Error(err)
	}
}
